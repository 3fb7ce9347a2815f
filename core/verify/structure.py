"""L1, first half: the same model, the same optimizer, the same order of events."""

from __future__ import annotations

from typing import Any

from core import records_view as view
from core.body import JSON
from core.verify.compare import clip_factor, compare, relative, share, show, step_of
from core.verify.registry import check
from core.verify.subject import NotRun, Subject, Verdict, judged

#: How an optimizer is computed, not what it computes.
IMPLEMENTATION = {"foreach", "fused", "capturable", "differentiable", "lr", "initial_lr"}


@check("L1.parameters")
def parameters(s: Subject) -> Verdict:
    """Same number of elements and tensors, and as many trained: exact (L1)."""
    ours, theirs = s.models()
    names = {"parameters": "parameters", "tensors": "tensors", "trainable": "trained"}
    mine = {k: view.count(ours.get(k)) for k in names}
    other = {k: view.count(theirs.get(k)) for k in names}
    if not mine["parameters"] or not other["parameters"]:
        raise NotRun("The probe saw no model with parameters in one of the parity runs.")

    def words(counts: dict[str, int | None]) -> str:
        return ", ".join(f"{counts[k]} {word}" for k, word in names.items())

    good = mine == other
    return judged(
        good,
        f"{other['parameters']} parameters"
        + ("" if good else f", the reference has {mine['parameters']}"),
        expected=words(mine),
        actual=words(other),
        tolerance="equal",
        evidence={"only in one": sorted(set(view.norms(ours)) ^ set(view.norms(theirs)))[:20]},
    )


@check("L1.ties")
def ties(s: Subject) -> Verdict:
    """The same names share a tensor: exact (measured on torch_xla 2.9.0: ``.to(xla)`` unties)."""
    ours, theirs = s.models()
    if not all(isinstance(m.get("tied"), list) for m in (ours, theirs)):
        raise NotRun("The probe recorded no ties in one of the parity runs.")
    mine, other = view.ties(ours), view.ties(theirs)
    lost, new = sorted(mine - other), sorted(other - mine)
    parts = [f"lost {' = '.join(g)}" for g in lost] + [f"new {' = '.join(g)}" for g in new]
    return judged(
        not parts,
        "; ".join(parts[:3]) or (f"{len(mine)} tied group(s)" if mine else "nothing is tied"),
        expected="; ".join(" = ".join(g) for g in sorted(mine)) or "no ties",
        actual="; ".join(" = ".join(g) for g in sorted(other)) or "no ties",
        tolerance="equal",
    )


@check("L1.optimizer")
def optimizer(s: Subject) -> Verdict:
    """Same class and the same hyperparameters per group (L1).

    Left out are the learning rate, which has a check of its own per step, and switches such as
    ``fused`` that say how a step is computed. Numbers: relative ``hyper_rtol``.
    """
    ours, theirs = s.optimizers()
    bad: list[str] = []
    if len(ours) != len(theirs):
        bad.append(f"{len(theirs)} optimizers instead of {len(ours)}")
    for mine, other in zip(ours, theirs, strict=False):
        if mine.get("cls") != other.get("cls"):
            bad.append(f"{other.get('cls')} instead of {mine.get('cls')}")
        a, b = view.rows(mine.get("groups")), view.rows(other.get("groups"))
        if len(a) != len(b):
            bad.append(f"{len(b)} parameter groups instead of {len(a)}")
        for i, (x, y) in enumerate(zip(a, b, strict=False)):
            bad += [f"group {i}: {text}" for text in _unequal(x, y, s.criteria.hyper_rtol)]
    return judged(
        not bad,
        bad[0] if bad else f"{ours[0].get('cls')}, {len(view.rows(ours[0].get('groups')))} groups",
        expected=_optimizers(ours),
        actual=_optimizers(theirs),
        tolerance=f"relative {share(s.criteria.hyper_rtol)}",
        evidence={"differences": bad[:50]},
    )


def _unequal(x: JSON, y: JSON, rtol: float) -> list[str]:
    names = [k for k in x if k in y and k not in IMPLEMENTATION]
    one_sided = sorted((set(x) ^ set(y)) - IMPLEMENTATION)
    bad = [f"{k} is {y[k]} instead of {x[k]}" for k in names if not _equal(x[k], y[k], rtol)]
    return bad + [f"{k} is set on one side only" for k in one_sided]


def _equal(x: Any, y: Any, rtol: float) -> bool:
    if isinstance(x, list) and isinstance(y, list):
        return len(x) == len(y) and all(_equal(a, b, rtol) for a, b in zip(x, y, strict=True))
    a, b = view.number(x), view.number(y)
    if a is not None and b is not None:
        return relative(a, b) <= rtol
    return bool(x == y)


def _optimizers(records: list[JSON]) -> str:
    texts = []
    for record in records:
        groups = [
            ", ".join(f"{k}={v}" for k, v in g.items() if k not in IMPLEMENTATION)
            for g in view.rows(record.get("groups"))
        ]
        texts.append(f"{record.get('cls')}({'; '.join(groups)})")
    return " / ".join(texts)[:1000]


@check("L1.schedule")
def schedule(s: Subject) -> Verdict:
    """Same learning rate and weight decay of each group in each step, relative ``hyper_rtol``."""
    ours, theirs = s.pair()
    other = {step_of(r): r for r in theirs}
    compared = 0
    for record in ours:
        mine = view.rows(record.get("groups"))
        found = view.rows(other.get(step_of(record), {}).get("groups"))
        for i, (x, y) in enumerate(zip(mine, found, strict=False)):
            for name in ("lr", "weight_decay"):
                pair = (step_of(record), view.number(x.get(name)), view.number(y.get(name)))
                result = compare([pair], s.criteria.hyper_rtol)
                compared += result.compared
                if result.first:
                    return judged(
                        False,
                        f"{name} differs from step {result.first} on",
                        expected=f"{name} {show(pair[1])} in step {result.first}, group {i}",
                        actual=f"{name} {show(pair[2])}",
                        tolerance=f"relative {share(s.criteria.hyper_rtol)}",
                        evidence={"step": result.first, "group": i},
                    )
    if not compared:
        raise NotRun("No learning rates were recorded for the same step of both parity runs.")
    return judged(
        True,
        f"same in {min(len(ours), len(theirs))} steps",
        expected="the reference's learning rate in each step",
        actual="the same",
        tolerance=f"relative {share(s.criteria.hyper_rtol)}",
    )


def canonical(signature: str, chips: int) -> list[str]:
    """A step's events without what may differ in a faithful migration.

    ``M`` (sync, mark_step) only exists on the target. ``R`` (reduce) only matters where there
    is more than one chip. ``Z`` and ``L`` after the step commute, so they are put in one order.
    Clipping by value is of each element by itself: one call for each group of parameters is one.
    """
    events: list[str] = []
    for event in signature.split():
        if event == "M" or (event == "R" and chips <= 1):
            continue
        if not (event.startswith("CV(") and events[-1:] == [event]):
            events.append(event)
    if "S" not in events:
        return events
    at = events.index("S") + 1
    tail = events[at:]
    free = sorted(e for e in tail if e in ("L", "Z"))
    return events[:at] + [e for e in tail if e not in ("L", "Z")] + free


def clipped_first(events: list[str]) -> bool:
    """Whether gradients are clipped before they are reduced over the ranks."""
    clips = [i for i, e in enumerate(events) if e.startswith("C")]
    return "R" in events and bool(clips) and clips[0] < events.index("R")


@check("L1.events")
def events(s: Subject) -> Verdict:
    """The same events in the same order in each step: exact (event signature).

    A clip that was moved behind the step, or dropped, shows here before any number does. With
    several chips, clipping before the gradients are averaged fails too (pytorch/xla#1708).
    Clipping by norm that one of the two programs has written out instead of calling torch's is
    the same event where it made the clip coefficient the same (``grad_rtol``).
    """
    ours, theirs = s.pair()
    written_out = by_hand(ours) != by_hand(theirs)
    other = {step_of(r): r for r in theirs}
    compared = 0
    for record in ours:
        n = step_of(record)
        found = other.get(n)
        if found is None:
            continue
        if not record.get("signature") or not found.get("signature"):
            raise NotRun(f"The probe recorded no order of events for step {n}.")
        mine = canonical(str(record["signature"]), 1)
        raw = canonical(str(found["signature"]), s.chips)
        compared += 1
        if clipped_first(raw) and not clipped_first(canonical(str(record["signature"]), s.chips)):
            return _other_events(n, mine, raw, "gradients are clipped before they are averaged")
        now = [e for e in raw if e != "R"]
        if now != mine and not (written_out and _clipped_alike(s, record, found)):
            moved = _what_moved(mine, now)
            return _other_events(n, mine, now, moved + _clipped(record, found))
    if not compared:
        raise NotRun("No event signature was recorded for the same step of both parity runs.")
    return judged(
        True,
        f"same in {compared} steps",
        expected=" ".join(canonical(str(ours[0].get("signature", "")), 1)),
        actual="the same",
        tolerance="equal",
    )


def by_hand(steps: list[JSON]) -> bool:
    """Whether the program itself changed the gradients of a step, and called no clipping."""
    found = [str(record.get("signature", "")).split() for record in steps]
    return any("H" in events for events in found) and not any(
        event.startswith("C") for events in found for event in events
    )


def _clipped_alike(s: Subject, record: JSON, found: JSON) -> bool:
    """Whether two steps differ by nothing but who clipped: torch, or the program itself."""
    pair = [canonical(str(r["signature"]), 1) for r in (record, found)]
    alike = [["H" if e.startswith("C(") else e for e in events] for events in pair]
    if not all("H" in events for events in alike):  # a clip that had no effect leaves no trace
        alike = [[e for e in events if e != "H"] for events in alike]
    mine, other = clip_factor(record), clip_factor(found)
    if alike[0] != alike[1] or mine is None or other is None:
        return False
    return relative(mine, other) <= s.criteria.grad_rtol


def _other_events(n: int, mine: list[str], other: list[str], what: str) -> Verdict:
    return judged(
        False,
        f"{what} (step {n})",
        expected=" ".join(mine),
        actual=" ".join(other),
        tolerance="equal",
        evidence={"step": n},
    )


_WORDS = {
    "B": "backward",
    "C": "clipping",
    "S": "optimizer step",
    "L": "schedule",
    "Z": "zero_grad",
    "H": "a change of the gradients by hand",
    "R": "reduction",
}


def _clipped(ours: JSON, theirs: JSON) -> str:
    """What another clipping did to the coefficient, as the end of a sentence."""
    mine, other = clip_factor(ours), clip_factor(theirs)
    if mine is None or other is None or relative(mine, other) <= 1e-6:
        return ""
    return f": clip coefficient {show(other)} instead of {show(mine)}"


def _what_moved(mine: list[str], other: list[str]) -> str:
    for event in [*mine, *other]:
        word = _WORDS.get(event[:1], event)
        before, after = mine.count(event), other.count(event)
        if before != after:
            alike = [e for e in other if e[:1] == event[:1] and e != event]
            if alike and not after:
                return f"{word} has changed from {event} to {alike[0]}"
            return f"{word} {event} happens {after} time(s) instead of {before}"
    if [e[:1] for e in mine].count("C"):
        clip = next(e for e in mine if e.startswith("C"))
        if (mine.index(clip) < mine.index("S")) != (other.index(clip) < other.index("S")):
            return "clipping has moved behind the optimizer step, where it does nothing"
    return "the order of events has changed"
