"""What of the model is trained, and what of its activations is dropped."""

from __future__ import annotations

from contextlib import suppress

from core import records_view as view
from core.body import JSON
from core.state_parts import Run
from core.verify.compare import step_of
from core.verify.registry import check
from core.verify.subject import NotRun, Subject, Verdict, judged

#: Steps of a run that are looked at.
STEPS = 10_000


@check("L1.dropout")
def dropout(s: Subject) -> Verdict:
    """Dropout of the same rates: as many modules, as many calls in the first training forward.

    Parity runs drop nothing, so no number shows a lost dropout. Calls count those of modules too,
    and decide where both runs know them: a module may be replaced by a function. Attention that
    drops out inside of one kernel counts like dropout of its weights, and more of it is no fault.
    Nor does it drop anything in a step that is made in evaluation mode, as after an evaluation that
    nothing ends: such steps are the same ones in both, in the parity runs and the full ones.
    """
    ours, theirs = s.models()
    modules = [_counts(m.get("dropouts")) for m in (ours, theirs)]
    calls = [_calls(run) for run in (s.parity_reference, s.parity)]
    if None in modules and None in calls:
        raise NotRun("The probe recorded no dropout in one of the parity runs.")
    wrong = ""
    if calls[0] is not None and calls[1] is not None:
        wrong = _unlike(_by_rate(calls[0]), _by_rate(calls[1]), calls[1], "calls")
        modules = [{k: n for k, n in (m or {}).items() if _kind(k) == "recurrent"} for m in modules]
    if not wrong and modules[0] is not None and modules[1] is not None:
        wrong = _unlike(_by_rate(modules[0]), _by_rate(modules[1]), {}, "modules")
    if not wrong and any([*modules, *calls]):
        wrong = _other_mode(s)
    shown = calls if None not in calls else [_counts(m.get("dropouts")) for m in (ours, theirs)]
    return judged(
        not wrong,
        wrong or ("the same dropout" if shown[0] else "no dropout"),
        expected=_told(shown[0]),
        actual=_told(shown[1]),
        tolerance="equal",
    )


def _other_mode(s: Subject) -> str:
    """Whether steps are made in evaluation mode that the reference makes in training mode."""
    pairs = [(s.parity_reference, s.parity)]
    with suppress(NotRun):
        pairs.append((s.reference, s.run))
    for ours, theirs in pairs:
        # Where the evaluated samples are as many as the reference's, the probe has missed others.
        evaluated = [_evaluated(run) for run in (ours, theirs)]
        mine, other = _samples(ours), _samples(theirs)
        n = next((n for n in sorted(mine) if mine[n] and other.get(n) == 0), None)
        if n is not None and any(other.values()) and evaluated[0] < evaluated[1]:
            last = max(n for n in other if not other[n])
            return (
                f"steps {n} to {last} are made in evaluation mode, the reference's in training mode"
            )
    return ""


def _samples(run: Run) -> dict[int, int | None]:
    """By step, the samples that passed through the model in training mode."""
    return {step_of(r): view.count(r.get("samples")) for r in view.steps(run, first=STEPS)}


def _evaluated(run: Run) -> int:
    return view.count((view.record(run, "finish") or {}).get("eval_samples")) or 0


def _counts(value: object) -> dict[str, int] | None:
    if not isinstance(value, dict):
        return None
    return {str(key): n for key, entry in value.items() if (n := view.count(entry))}


def _calls(run: Run) -> dict[str, int] | None:
    return _counts((view.record(run, "finish") or {}).get("functional_dropout"))


def _kind(key: str) -> str:
    return key.partition(" ")[0]


def _by_rate(counts: dict[str, int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for key, n in counts.items():
        rate = key.rpartition(" ")[2]
        found[rate] = found.get(rate, 0) + n
    return found


def _unlike(mine: dict[str, int], other: dict[str, int], calls: dict[str, int], what: str) -> str:
    for rate in mine:
        if other.get(rate, 0) < mine[rate]:
            new = [r for r in other if r not in mine]
            if rate not in other and new:
                return f"dropout of {new[0]} instead of {rate}"
            return f"dropout of {rate} in {other.get(rate, 0)} {what} instead of {mine[rate]}"
    for rate, n in other.items():
        attention = calls.get(f"attention {rate}", 0)
        if n - attention > mine.get(rate, 0):
            return f"dropout of {rate} in {n} {what} instead of {mine.get(rate, 0)}"
    return ""


def _told(counts: dict[str, int] | None) -> str:
    return ", ".join(f"{n} x {key}" for key, n in sorted((counts or {}).items())) or "none"


@check("L1.frozen")
def frozen(s: Subject) -> Verdict:
    """The same parameters are trained, by name, and by elements in the full runs as they went on.

    Where the names differ only the numbers are compared: a wrapper may rename.
    """
    ours, theirs = s.models()
    if not isinstance(ours.get("frozen"), list) or not isinstance(theirs.get("frozen"), list):
        raise NotRun("The probe recorded no frozen parameters in one of the parity runs.")
    mine, other = set(map(str, ours["frozen"])), set(map(str, theirs["frozen"]))
    common = set(map(str, ours.get("names") or ())) & set(map(str, theirs.get("names") or ()))
    thawed, lost = sorted((mine - other) & common), sorted((other - mine) & common)
    wrong = ""
    if thawed:
        wrong = f"{len(thawed)} frozen tensor(s) are trained, first {thawed[0]}"
    elif lost:
        wrong = f"{len(lost)} trained tensor(s) are frozen, first {lost[0]}"
    elif not common and ours.get("parameters") == theirs.get("parameters"):
        if ours.get("trainable") != theirs.get("trainable"):
            wrong = f"{theirs.get('trainable')} trained elements instead of {ours['trainable']}"
    wrong = wrong or _later(s)
    return judged(
        not wrong,
        wrong or (f"{len(mine)} tensor(s) frozen" if mine else "nothing is frozen"),
        expected=f"{len(mine)} frozen, {ours.get('trainable')} elements trained",
        actual=f"{len(other)} frozen, {theirs.get('trainable')} elements trained",
        tolerance="equal",
        evidence={"frozen only in the reference": thawed[:20], "frozen only here": lost[:20]},
    )


def _later(s: Subject) -> str:
    """Layers may be frozen or thawed in the course of a run, which only the full runs show."""
    try:
        ours, theirs = (_trained(run) for run in (s.reference, s.run))
    except NotRun:
        return ""
    for known in ours:
        if known in theirs and len({len(ours[known]), len(theirs[known])}) == 1:
            for (all_mine, mine), (all_other, other) in zip(
                ours[known], theirs[known], strict=True
            ):
                if all_mine == all_other and mine != other:
                    return f"later {other} trained elements instead of {mine}"
        elif known in theirs and ours[known][-1][0] == theirs[known][-1][0]:
            if ours[known][-1][1] != theirs[known][-1][1]:
                return f"in the end {theirs[known][-1][1]} trained elements instead of " + str(
                    ours[known][-1][1]
                )
    return ""


def _trained(run: Run) -> dict[int, list[tuple[int | None, int | None]]]:
    """By optimizer, (elements, trained elements) of its model each time they changed."""
    found: dict[int, list[tuple[int | None, int | None]]] = {}
    for record in view.records(run, "model"):
        pair = _pair(record)
        rows = found.setdefault(view.count(record.get("optimizer_id")) or 0, [])
        if not rows or rows[-1] != pair:
            rows.append(pair)
    return found


def _pair(record: JSON) -> tuple[int | None, int | None]:
    return view.count(record.get("parameters")), view.count(record.get("trainable"))
