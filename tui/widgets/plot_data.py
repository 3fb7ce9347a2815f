"""Series of numbers brought down to the dots of a screen: minimum and maximum of each column."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

Bounds = tuple[float, float, float, float]
"""x from, x to, y from, y to."""


HUGE = 1e300
"""From here on a value counts as infinite: differences of such values overflow."""


@dataclass(frozen=True)
class Series:
    """A named line; ``xs`` ascend. Values that are no number, or infinite, leave a gap."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    runs: tuple[tuple[int, int], ...] = field(init=False, repr=False, compare=False)
    positive: tuple[tuple[int, int], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.xs) != len(self.ys):
            raise ValueError(
                f"Series {self.name!r} has {len(self.xs)} x and {len(self.ys)} y values."
            )
        # Worked out once, since a plot is drawn more often than it changes.
        runs = _runs([-HUGE < y < HUGE for y in self.ys])
        object.__setattr__(self, "runs", runs)
        low = min((min(self.ys[a:b]) for a, b in runs), default=1.0)
        positive = runs
        if low <= 0:
            positive = _runs([0 < y < HUGE for y in self.ys])
        object.__setattr__(self, "positive", positive)

    def drawn(self, log: bool) -> tuple[tuple[int, int], ...]:
        """Half-open ranges of values that can be drawn; a logarithmic axis has none below zero."""
        return self.positive if log else self.runs

    def bad_xs(self) -> list[float]:
        """Where values are no number or infinite."""
        out: list[float] = []
        end = 0
        for start, stop in (*self.runs, (len(self.xs), len(self.xs))):
            out.extend(self.xs[end:start])
            end = stop
        return out

    def nearest(self, x: float) -> int | None:
        """Index of the value nearest to ``x``."""
        if not len(self.xs):
            return None
        at = bisect_left(self.xs, x)
        if at == len(self.xs) or (at and x - self.xs[at - 1] <= self.xs[at] - x):
            at -= 1
        return at


def _runs(good: list[bool]) -> tuple[tuple[int, int], ...]:
    if all(good):
        return ((0, len(good)),) if good else ()
    out, start = [], -1
    for at, ok in enumerate(good):
        if ok and start < 0:
            start = at
        elif not ok and start >= 0:
            out.append((start, at))
            start = -1
    if start >= 0:
        out.append((start, len(good)))
    return tuple(out)


def bounds(series: Sequence[Series], log: bool) -> Bounds | None:
    """The range of all that can be drawn, y as its logarithm when ``log``; None for nothing."""
    x_low = y_low = math.inf
    x_high = y_high = -math.inf
    for one in series:
        if not len(one.xs):
            continue
        x_low, x_high = min(x_low, one.xs[0]), max(x_high, one.xs[-1])
        for start, stop in one.drawn(log):
            part = one.ys[start:stop]
            y_low, y_high = min(y_low, min(part)), max(y_high, max(part))
    if not (math.isfinite(x_low) and math.isfinite(y_low)):
        return None
    if log:
        y_low, y_high = math.log10(y_low), math.log10(y_high)
    if y_high - y_low < 1 / HUGE:
        pad = max(abs(y_low) * 0.1, 1e-9) if y_low else 1.0
        y_low, y_high = y_low - pad, y_high + pad
    return x_low, x_high, y_low, y_high


def columns(
    one: Series, box: Bounds, width: int, height: int, log: bool
) -> list[tuple[int, int, int]]:
    """The dots of a line: ``(column, from, to)``, rows counted from the top, both ends included.

    Work is proportional to ``width`` and not to the number of values, apart from `min` and `max`
    over slices: 5,000 values take well under a millisecond.
    """
    x_low, x_high, y_low, y_high = box
    span = x_high - x_low
    # A whole number of dots between the first and the last column; one x stands at the left.
    scale = (width - 1) / span if span else 0.0
    rise = (height - 1) / (y_high - y_low)

    def row(value: float) -> int:
        level = math.log10(value) if log else value
        return max(0, min(height - 1, round((y_high - level) * rise)))

    out: list[tuple[int, int, int]] = []
    for start, stop in one.drawn(log):
        last: tuple[int, int] | None = None  # column and row where the line has come to
        at = start
        while at < stop:
            column = min(width - 1, int((one.xs[at] - x_low) * scale + 0.5))
            border = x_low + (column + 0.5) / scale if scale else math.inf
            end = max(at + 1, bisect_left(one.xs, border, at + 1, stop))
            part = one.ys[at:end]
            top, bottom = row(max(part)), row(min(part))
            first = row(one.ys[at])
            if last is not None:
                _join(out, last, (column, first))
            out.append((column, top, bottom))
            last = (column, row(one.ys[end - 1]))
            at = end
    return out


def _join(out: list[tuple[int, int, int]], start: tuple[int, int], end: tuple[int, int]) -> None:
    """Dots of a straight line between two columns, without its first dot."""
    (x0, y0), (x1, y1) = start, end
    steps = x1 - x0
    before = y0
    for step in range(1, steps + 1):
        here = round(y0 + (y1 - y0) * step / steps)
        low, high = sorted((before, here))
        if high - low > 1:
            # A steep piece belongs half to each of its columns.
            middle = (before + here) // 2
            out.append((x0 + step - 1, min(before, middle), max(before, middle)))
            out.append((x0 + step, min(here, middle), max(here, middle)))
        else:
            out.append((x0 + step, here, here))
        before = here


def ticks(low: float, high: float, count: int) -> list[float]:
    """Round values between two ends, about ``count`` of them (1, 2 or 5 times a power of ten)."""
    if count < 1 or not high > low:
        return []
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next((m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.75), 10 * power)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [n * step for n in range(first, last + 1)]


def short(value: float) -> str:
    """A number in at most 7 characters: ``0.412``, ``1,200`` as ``1200``, ``3.2e-05``."""
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    size = abs(value)
    if value == 0:
        return "0"
    if size >= 1e6 or size < 1e-3:
        mantissa, _, exponent = f"{value:.1e}".partition("e")
        return f"{mantissa.removesuffix('.0')}e{int(exponent)}"
    text = f"{value:.4g}" if size < 1e4 else f"{value:.0f}"
    return text


def gap_columns(one: Series, box: Bounds, width: int) -> set[int]:
    """Columns (of ``width``) in which a value is no number or infinite."""
    x_low, x_high = box[0], box[1]
    scale = (width - 1) / (x_high - x_low) if x_high > x_low else 0.0
    return {int((x - x_low) * scale + 0.5) for x in one.bad_xs()}


def between(one: Series, low: float, high: float) -> tuple[int, int]:
    """Half-open range of the values whose x lies between two ends, both included."""
    return bisect_left(one.xs, low), bisect_right(one.xs, high)
