"""The comparison of steps with the probe and without, on made times and counts."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.bench import compare
from core.bench.compare import LIMIT, Comparison, Pair, Times, Verdict, undecided
from core.bench.probe import MAX_BATCH, TARGET_S, next_batch


def times(*wall: float) -> Times:
    """Steps that used half of their time on a processor."""
    return Times(wall, tuple(value / 2 for value in wall))


def pairs(off: float, on: float, *, noise: float = 0.0, blocks: int = 30) -> list[Pair]:
    """Blocks of nine steps; ``noise`` moves a whole pair, as a busy neighbour does."""
    rng = random.Random(7)
    made = []
    for _ in range(blocks):
        slow = 1 + noise * rng.random()
        made.append(
            Pair(
                off=times(*(off * slow * (1 + 0.01 * rng.random()) for _ in range(9))),
                on=times(*(on * slow * (1 + 0.01 * rng.random()) for _ in range(9))),
            )
        )
    return made


def found(off_s: float, ratio: float) -> Comparison:
    return Comparison(off_s, off_s * ratio, ratio, ratio, ratio, ratio, ratio, 100)


# --- order -----------------------------------------------------------------------------------


@given(st.integers(1, 200), st.integers())
def test_each_pair_of_blocks_has_one_of_each_kind(count: int, seed: int) -> None:
    order = compare.plan(count, seed)
    assert len(order) == 2 * count
    assert all(a != b for a, b in zip(order[::2], order[1::2], strict=True))
    assert compare.plan(count, seed) == order


def test_neither_kind_always_goes_first() -> None:
    first = compare.plan(200, 1)[::2]
    assert 60 < sum(first) < 140


# --- ratio -----------------------------------------------------------------------------------


@given(st.floats(0.001, 1), st.floats(0.5, 2), st.integers(1, 9), st.integers(1, 5))
def test_steps_that_all_take_the_same_give_the_ratio_and_no_spread(
    off: float, ratio: float, blocks: int, steps: int
) -> None:
    pair = Pair(times(*[off] * steps), times(*[off * ratio] * steps))
    seen = compare.compare([pair] * blocks)
    ratios = (seen.ratio, seen.low, seen.high, seen.paired, seen.processor)
    assert ratios == pytest.approx((ratio,) * 5)
    assert (seen.off_s, seen.on_s, seen.steps) == (off, off * ratio, blocks * steps)


def test_the_ratio_is_found_in_noise_that_both_kinds_share() -> None:
    seen = compare.compare(pairs(0.020, 0.0206, noise=0.3))
    assert seen.low <= 1.03 <= seen.high
    assert seen.paired == pytest.approx(1.03, abs=0.002)
    assert seen.steps == 270


def test_more_blocks_make_the_interval_narrower() -> None:
    few = compare.compare(pairs(0.02, 0.02, noise=0.3, blocks=8))
    many = compare.compare(pairs(0.02, 0.02, noise=0.3, blocks=200))
    assert many.high - many.low < few.high - few.low


@pytest.mark.parametrize("none", [[], [Pair(times(), times(0.1))], [Pair(times(0.1), times())]])
def test_nothing_measured_is_no_ratio(none: list[Pair]) -> None:
    with pytest.raises(ValueError, match="no step was measured"):
        compare.compare(none)


# --- verdicts --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("off_s", "ratio", "state"),
    [
        (0.020, 1.02, "pass"),
        (0.030, 0.99, "pass"),
        (0.020, 1.0201, "fail"),
        (0.0199, 1.0, "not run"),
        (0.0199, 1.5, "not run"),
    ],
)
def test_time_is_judged_for_long_steps_only(off_s: float, ratio: float, state: str) -> None:
    verdict = compare.judge_time(found(off_s, ratio))
    assert verdict.state == state
    assert bool(verdict.reasons) == (state != "pass")


def test_a_short_step_may_be_shown_without_being_judged() -> None:
    assert compare.judge_time(found(0.001, 1.5), judged=False) == Verdict("shown")


def test_counts_must_be_equal() -> None:
    off = {"compiles": 2, "transfers_from": 3, "executes": 30}
    assert compare.judge_counts(compare.added(off, off)) == Verdict("pass")
    more = compare.added(off, {**off, "transfers_from": 15, "compiles": 3})
    assert more == {"compiles": 1, "executes": 0, "transfers_from": 12}
    verdict = compare.judge_counts(more)
    assert verdict.state == "fail"
    assert verdict.reasons == (
        "XLA's own counters with the probe: compiles +1, transfers_from +12",
    )
    fewer = compare.judge_counts(compare.added(off, {**off, "executes": 29}))
    assert (fewer.state, fewer.reasons[0][-11:]) == ("fail", "executes -1")


def test_a_counter_that_only_one_side_has_is_counted() -> None:
    assert compare.added({"a": 1}, {"b": 2}) == {"a": -1, "b": 2}


@pytest.mark.parametrize(
    ("states", "whole"),
    [
        (("pass", "pass"), "pass"),
        (("pass", "not run"), "not run"),
        (("not run", "fail", "pass"), "fail"),
        (("shown",), "shown"),
        (("shown", "fail"), "fail"),
        ((), "not run"),
    ],
)
def test_one_verdict_over_several(states: tuple[compare.State, ...], whole: str) -> None:
    assert compare.all_of([Verdict(state) for state in states]).state == whole


# --- the batch -------------------------------------------------------------------------------


@given(st.floats(0, 0.01), st.floats(1e-5, 1e-3))
def test_two_measurements_find_the_batch_for_the_wanted_time(fixed: float, slope: float) -> None:
    batch = next_batch([(16, fixed + 16 * slope), (64, fixed + 64 * slope)])
    assert fixed + batch * slope == pytest.approx(TARGET_S, abs=slope)


def test_the_batch_stays_within_bounds_whatever_was_measured() -> None:
    assert next_batch([(16, 1e-9)]) == MAX_BATCH
    assert next_batch([(16, 100.0)]) == 1
    assert next_batch([(16, 0.020), (32, 0.019)]) == round(32 * TARGET_S / 0.019)  # noise won


def test_a_comparison_is_undecided_while_the_limit_lies_within_its_interval() -> None:
    def found(low: float, high: float) -> Comparison:
        return Comparison(0.03, 0.03, (low + high) / 2, low, high, 1.0, 1.0, 400)

    assert undecided(found(1.01, 1.03))
    assert not undecided(found(1.001, LIMIT))
    assert not undecided(found(1.021, 1.04))
