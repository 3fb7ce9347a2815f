"""Rounding that grows: from which step on two faithful runs are at other places."""

from __future__ import annotations

import math

from core.body import JSON
from core.verify.compare import clip_factor, relative, series, share, step_of
from core.verify.subject import Subject

FACTOR = 10.0
"""By so much a difference may grow in one step and still be the one of the step before.

A network of convolutions, batch norm, ReLU and max pooling (a U-Net, SGD at 0.15) takes a
difference of 1e-6 of its weights to 2e-3 of its gradient norm in 12 steps on one CPU, by up to 8
times in a step once it is beyond 1e-4; its migration to torch_xla 2.9.0 on PJRT CPU went from 5e-7
in step 1 to 7e-3 in step 12, by up to 7.6 times. What a fault does begins at once.
"""

SAME_SIZE = 0.5
"""After that two faithful runs still are of one size: an update that is lost altogether is not."""

SEEN = 4
"""Steps that have to agree before any growth: they judge what the code computes."""


def grown(s: Subject, ours: list[JSON], theirs: list[JSON]) -> tuple[int, str]:
    """(First step in which rounding has become visible, in words); (0, "") where it never does.

    Both runs begin alike to rounding (``forward_rtol``), and a difference passes the tolerance for
    the first time in a step, after some that agreed, by growing from the largest one before it
    (:data:`FACTOR`), and never beyond :data:`SAME_SIZE`. A difference that comes from nowhere is none of rounding's. From that step on
    norms and losses are of other places, as they are in half precision from the second step on.
    """
    if s.low_precision:
        return 0, ""
    errors = _errors(s, ours, theirs)
    steps = sorted(errors)
    if not steps or errors[steps[0]] > s.criteria.forward_rtol / s.criteria.grad_rtol:
        return 0, ""
    largest = 0.0
    for number, n in enumerate(steps):
        here = errors[n]
        if here > 1.0:
            later = max(errors[k] for k in steps[number:]) * s.criteria.grad_rtol
            if number < SEEN or not here <= FACTOR * largest or not later <= SAME_SIZE:
                return 0, ""
            return n, f"rounding has grown to {share(here)} times the tolerance in step {n}"
        largest = max(largest, here)
    return 0, ""


def _errors(s: Subject, ours: list[JSON], theirs: list[JSON]) -> dict[int, float]:
    """By step, the largest error of its norms, clip coefficient and loss, in tolerances."""
    c = s.criteria
    found: dict[int, float] = {}
    for field, rtol in (
        ("grad_norm", c.grad_rtol),
        ("update_norm", c.grad_rtol),
        ("loss", c.trajectory_rtol),
    ):
        pairs = series(ours, theirs, field)
        known = [abs(p[1]) for p in pairs if p[1] is not None and math.isfinite(p[1])]
        floor = 1e-3 * max(known, default=0.0)  # as these are judged
        for n, expected, actual in pairs:
            if expected is not None and actual is not None and rtol > 0:
                error = relative(expected, actual, floor) / rtol
                found[n] = max(found.get(n, 0.0), error)
    other = {step_of(r): clip_factor(r) for r in theirs}
    for record in ours:
        n, mine = step_of(record), clip_factor(record)
        factor = other.get(n)
        if mine is not None and factor is not None and c.grad_rtol > 0:
            found[n] = max(found.get(n, 0.0), relative(mine, factor) / c.grad_rtol)
    return found
