"""Copies of the trained weights that a program keeps: averages, momentum encoders, target networks."""

from __future__ import annotations

from core import records_view as view
from core.body import JSON
from core.state_parts import Run
from core.verify.compare import share, show
from core.verify.growth import grown
from core.verify.start import start_record
from core.verify.subject import Subject, Verdict, judged

#: A copy nearer to the weights than this has followed them all but wholly: what it is off by is
#: held against this distance, for rounding is 1e-7 of the weights themselves.
NEAR = 1e-4


def other_copies(s: Subject) -> Verdict | None:
    """The failure of a copy that is elsewhere after the parity steps: ``grad_rtol``, as updates are.

    Its distance from the weights is a sum of their updates. Copies are paired by it and not by
    name, for an average may be a module in one program and a table in the other; one that has no
    partner on either side is something else that a program keeps. Not where the reference's own
    repeats differ. Only where the program's own
    weights at the start are the reference's: a copy may have been made of them before they were
    replaced. Nor in a program that loads weights: what it loaded may still lie there, from a run that
    ended otherwise than the reference's.
    """
    if any(view.records(run, "loaded") for run in (s.parity, s.parity_reference)):
        return None
    start = start_record(s)
    natural = view.number((start or {}).get("natural_error"))
    if natural is None or natural > s.criteria.start_rtol:
        return None
    rtol, note = s.low(s.criteria.grad_rtol, s.criteria.bf16_trajectory_rtol)
    n, how = grown(s, *s.pair())
    if n:
        rtol, note = max(rtol, s.criteria.bf16_trajectory_rtol), f" ({how})"
    ours, theirs = _unlike(s.parity_reference, s.parity, rtol)
    if not ours or not theirs or any(_unlike(s.parity_reference, r, rtol)[0] for r in s.repeats):
        return None
    expected, actual = ours[0], theirs[0]
    return judged(
        False,
        f"a copy of the weights ({actual[0]}) is {share(actual[1])} away from them instead of "
        f"{share(expected[1])}",
        expected=f"{show(expected[1])} of the weights' norm ({expected[0]})",
        actual=show(actual[1]),
        tolerance=f"relative {share(rtol)}{note}",
        reason="It is updated in another way: an average, a momentum encoder or a target network.",
    )


def _unlike(
    reference: Run, run: Run, rtol: float
) -> tuple[list[tuple[str, float]], list[tuple[str, float]]]:
    """The copies of each of two runs, (name, distance), without those that both have."""
    ours, theirs = _copies(reference), _copies(run)
    for mine in list(ours):
        near = [other for other in theirs if _alike(mine[1], other[1], rtol)]
        if near:
            ours.remove(mine)
            theirs.remove(near[0])
    return ours, theirs


def _copies(run: Run) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for record in view.records(run, "copies"):
        for row in view.rows(record.get("copies")):
            distance = view.number(row.get("distance"))
            if distance is not None:
                found.append((_name(row), distance))
    return found


def _name(row: JSON) -> str:
    return str(row.get("name") or "")


def _alike(a: float, b: float, rtol: float) -> bool:
    return abs(a - b) <= rtol * max(abs(a), NEAR)
