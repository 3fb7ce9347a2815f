"""Comparing two ways to run the same steps: order of the blocks, medians, interval, verdict. Pure.

The two are measured in blocks of steps that take turns within one run, so that both see the same
minutes of a machine that others use too. Blocks come in pairs, one of each, in random order.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

LIMIT = 1.02
"""Largest ratio of median step times, probe on to off, that holds (issue: the probe's cost)."""

LONG_STEP_S = 0.020
"""Steps shorter than this are shown and not judged: a fixed cost is a large part of them."""

RESAMPLES = 1000
CONFIDENCE = 0.95

State = Literal["pass", "fail", "not run", "shown"]


def plan(pairs: int, seed: int) -> list[bool]:
    """Which side takes its turn: True for on; in each pair of blocks both, in random order."""
    rng = random.Random(seed)
    order: list[bool] = []
    for _ in range(pairs):
        first = rng.random() < 0.5
        order += [first, not first]
    return order


@dataclass(frozen=True, slots=True)
class Times:
    """What each step of a block took: seconds, and processor seconds of the whole process."""

    wall: tuple[float, ...]
    processor: tuple[float, ...]

    def without_first(self) -> Times:
        """The same without the first step."""
        return Times(self.wall[1:], self.processor[1:])


@dataclass(frozen=True, slots=True)
class Pair:
    """Two neighbouring blocks, one without the probe and one with it."""

    off: Times
    on: Times


@dataclass(frozen=True, slots=True)
class Comparison:
    """Median step times in seconds, their ratio on / off, and its bootstrap interval.

    ``paired`` is the median of the ratios within pairs: less exact, but deaf to slow drift.
    ``processor`` is the ratio of the medians of processor time: neighbours hardly change it, and
    a thread that waits for a device has no part in it.
    """

    off_s: float
    on_s: float
    ratio: float
    low: float
    high: float
    paired: float
    processor: float
    steps: int


def compare(pairs: Sequence[Pair], seed: int = 0) -> Comparison:
    """Compare the medians of all steps with the probe and of all without.

    The interval is the percentile bootstrap over whole pairs of blocks (Efron and Tibshirani 1993,
    chapter 13): steps of a block are not independent, since a neighbour's work slows them all.
    Raises ValueError without a step on either side.
    """
    off, on = _medians(pairs)
    used_off = statistics.median(time for pair in pairs for time in pair.off.processor)
    used_on = statistics.median(time for pair in pairs for time in pair.on.processor)
    rng = random.Random(seed)
    ratios = []
    for _ in range(RESAMPLES):
        drawn = rng.choices(pairs, k=len(pairs))
        some_off, some_on = _medians(drawn)
        ratios.append(some_on / some_off)
    ratios.sort()
    edge = round(RESAMPLES * (1 - CONFIDENCE) / 2)
    return Comparison(
        off_s=off,
        on_s=on,
        ratio=on / off,
        low=ratios[edge],
        high=ratios[-edge - 1],
        paired=statistics.median(
            statistics.median(p.on.wall) / statistics.median(p.off.wall) for p in pairs
        ),
        processor=used_on / used_off,
        steps=sum(len(p.on.wall) for p in pairs),
    )


def _medians(pairs: Sequence[Pair]) -> tuple[float, float]:
    off = [time for pair in pairs for time in pair.off.wall]
    on = [time for pair in pairs for time in pair.on.wall]
    if not off or not on:
        raise ValueError("no step was measured")
    return statistics.median(off), statistics.median(on)


def added(off: Mapping[str, int], on: Mapping[str, int]) -> dict[str, int]:
    """Counts with the probe minus those without, by name; for the same number of steps."""
    return {name: on.get(name, 0) - off.get(name, 0) for name in sorted({*off, *on})}


@dataclass(frozen=True, slots=True)
class Verdict:
    """``pass``, ``fail``, ``not run`` (nothing to judge, never a pass) or ``shown``; and why."""

    state: State
    reasons: tuple[str, ...] = ()


def undecided(found: Comparison) -> bool:
    """Whether the interval of the ratio reaches to both sides of the limit."""
    return found.low <= LIMIT < found.high


def judge_time(found: Comparison, *, judged: bool = True) -> Verdict:
    """Whether the ratio holds, for steps long enough to be judged."""
    if not judged:
        return Verdict("shown")
    if found.off_s < LONG_STEP_S:
        short = f"steps took {found.off_s * 1e3:.1f} ms, and only those of "
        return Verdict("not run", (f"{short}{LONG_STEP_S * 1e3:.0f} ms or more are judged",))
    if found.ratio > LIMIT:
        return Verdict(
            "fail", (f"a step takes {found.ratio:.3f} times as long, more than {LIMIT:g}",)
        )
    return Verdict("pass")


def judge_counts(difference: Mapping[str, int]) -> Verdict:
    """Whether the probe added nothing to what XLA counts; fewer would be as wrong as more."""
    changed = [f"{name} {count:+d}" for name, count in difference.items() if count]
    if changed:
        return Verdict("fail", (f"XLA's own counters with the probe: {', '.join(changed)}",))
    return Verdict("pass")


def all_of(verdicts: Sequence[Verdict]) -> Verdict:
    """One verdict over several: fail, else not run, else pass; shown only if all are."""
    reasons = tuple(reason for verdict in verdicts for reason in verdict.reasons)
    states = {verdict.state for verdict in verdicts}
    order: tuple[State, ...] = ("fail", "not run", "pass", "shown")
    for state in order:
        if state in states:
            return Verdict(state, reasons)
    return Verdict("not run", ("nothing was measured",))
