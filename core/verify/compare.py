"""Comparing two series of numbers, one value per step, and saying it in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from core.body import JSON
from core.records_view import number


@dataclass(frozen=True, slots=True)
class Comparison:
    """How far two series are apart. ``error`` is relative; steps count from 1.

    ``first`` is the first step beyond the tolerance (0: none), ``worst`` the one with the
    largest error; ``missing`` steps had a value on one side only.
    """

    compared: int
    missing: int
    first: int
    worst: int
    error: float
    expected: float | None
    actual: float | None

    @property
    def ok(self) -> bool:
        """Whether something was compared and every compared step lies within the tolerance."""
        return self.compared > 0 and not self.first


def compare(
    pairs: Iterable[tuple[int, float | None, float | None]], rtol: float, floor: float = 0.0
) -> Comparison:
    """Compare ``(step, expected, actual)`` triples.

    The error of a step is ``|actual - expected| / max(|expected|, floor)``; equal values have
    none, and a value that is not finite on one side only has an infinite one. ``expected`` and
    ``actual`` of the result are those of the first step beyond the tolerance, else the worst.
    """
    compared = missing = first = worst = 0
    error = -1.0
    at_first: tuple[float, float] | None = None
    at_worst: tuple[float, float] | None = None
    for step, expected, actual in pairs:
        if expected is None or actual is None:
            missing += expected is not actual
            continue
        compared += 1
        here = relative(expected, actual, floor)
        if here > error:
            error, worst, at_worst = here, step, (expected, actual)
        if here > rtol and not first:
            first, at_first = step, (expected, actual)
    shown = at_first or at_worst or (None, None)
    return Comparison(compared, missing, first, worst, max(error, 0.0), *shown)


def relative(expected: float, actual: float, floor: float = 0.0) -> float:
    """Relative error, 0 for equal values and for two NaN, infinite where only one is finite."""
    if expected == actual or (math.isnan(expected) and math.isnan(actual)):
        return 0.0
    if not (math.isfinite(expected) and math.isfinite(actual)):
        return math.inf
    scale = max(abs(expected), floor)
    return abs(actual - expected) / scale if scale else math.inf


def series(
    ours: list[JSON], theirs: list[JSON], field: str
) -> list[tuple[int, float | None, float | None]]:
    """Triples ``(step, expected, actual)`` of one field, joined by the step's number."""
    return joined(ours, theirs, lambda r: number(r.get(field)))


def joined(
    ours: list[JSON], theirs: list[JSON], value: Callable[[JSON], float | None]
) -> list[tuple[int, float | None, float | None]]:
    """Triples of a value computed from each step record, for the steps both sides have."""
    other = {n: r for r in theirs if (n := step_of(r))}
    return [(n, value(r), value(other[n])) for r in ours if (n := step_of(r)) and n in other]


def step_of(record: JSON) -> int:
    """The number of the step, from 1; 0 where the record has none."""
    n = record.get("n")
    return n if isinstance(n, int) and not isinstance(n, bool) and n > 0 else 0


def show(value: float | None) -> str:
    """A number in the few digits a person compares by."""
    if value is None:
        return "unknown"
    return f"{value:.6g}"


def share(value: float) -> str:
    """A relative error, such as ``3.2e-07``."""
    return "infinite" if math.isinf(value) else f"{value:.2g}"


def clip_factor(record: JSON) -> float | None:
    """By what factor clipping scaled the gradients of a step; 1 where it had no effect."""
    before, after = number(record.get("grad_norm")), number(record.get("grad_norm_after"))
    if before is None or after is None:
        return None
    return after / before if before else 1.0
