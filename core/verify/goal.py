"""L3: as many samples, trained on and evaluated."""

from __future__ import annotations

from core import records_view as view
from core.levels import FAIL
from core.state_parts import Run
from core.verify.batches import is_padded, unfed
from core.verify.passes import most_padding, passes, total
from core.verify.ranks import finishes, trained
from core.verify.registry import check
from core.verify.subject import NotRun, Subject, Verdict, judged


@check("L3.samples")
def samples(s: Subject) -> Verdict:
    """As many samples went through the model in evaluation, and in the last one: exact.

    In all ranks together, or in each: every rank may evaluate the whole set, or a part of it. More
    are right where the loaders gave as many: then batches are padded, as for static shapes.
    """
    _ended_well(s.run)
    for field, what in (
        ("eval_last", "samples in the last evaluation"),
        ("eval_samples", "evaluated samples"),
    ):
        verdict = _same(s, "eval", _evaluated(s.reference, field), _evaluated(s.run, field), what)
        if verdict.state == FAIL:
            break
    return verdict


def _ended_well(run: Run) -> None:
    if not run.ok_exit:
        raise NotRun(f"Run #{run.number} did not end with exit 0, so its samples say nothing.")


def _evaluated(run: Run, field: str) -> list[int | None]:
    # Probes that do not tell the last evaluation apart still count them all.
    return [view.count(r.get(field, r.get("eval_samples"))) for r in finishes(run)]


@check("L3.budget")
def budget(s: Subject) -> Verdict:
    """As many samples trained on: exact. ``drop_last`` and a smaller batch drop data silently.

    More are right where the loaders gave as many: then batches are padded, as for static shapes.
    """
    _ended_well(s.run)
    return _same(s, "train", trained(s.reference), trained(s.run), "training samples")


def _same(
    s: Subject, role: str, ours: list[int | None], theirs: list[int | None], what: str
) -> Verdict:
    mine, other = _sum(ours), _sum(theirs)
    if len(ours) != len(theirs) and mine != other and ours[0] == theirs[0]:
        mine, other = ours[0], theirs[0]
        what += " in each rank"
    # 0 is what the probe reports where it could not see them; it is not a count to rely on.
    if not mine or other is None:
        raise NotRun(f"The number of {what} is not known for both runs.")
    padded = "" if other <= mine else _padded(s, role)
    return judged(
        mine == other or bool(padded),
        f"{other} {what}" + (padded if padded or mine == other else f" instead of {mine}"),
        expected=str(mine),
        actual=str(other),
        tolerance="equal",
    )


def _padded(s: Subject, role: str) -> str:
    """Where the loaders gave no more samples than the reference's: what they gave, in words.

    Shards over several ranks may be padded by the loaders themselves. A training that has no loader
    is padded where the parity run saw that its batches are, and takes as many steps.
    """
    if role == "train" and not any(passes(run, role) for run in (s.reference, s.run)):
        return _padded_steps(s)
    mine, other = total(s.reference, role), total(s.run, role)
    if mine is None or other is None:
        return ""
    alike = len(passes(s.reference, role)) == len(passes(s.run, role))
    spare = 0 if alike else most_padding(s.run, role)
    return f", padded from {other}" if mine <= other <= mine + spare else ""


def _padded_steps(s: Subject) -> str:
    if not is_padded(s) or unfed(s):
        return ""
    ours, theirs = ([view.count(r.get("samples")) for r in r.steps] for r in (s.reference, s.run))
    pairs = list(zip(ours, theirs, strict=False))
    fits = all(a is not None and b is not None and a <= b for a, b in pairs)
    if len(ours) != len(theirs) or not fits:
        return ""
    return f", padded from {_sum(ours)}"


def _sum(counts: list[int | None]) -> int | None:
    known = [n for n in counts if n is not None]
    return sum(known) if len(known) == len(counts) else None
