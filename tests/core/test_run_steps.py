"""The step records of a run: packed in memory, and still a list to whoever reads it."""

from __future__ import annotations

import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import run_steps
from core.run_steps import RunSteps
from tests.core.scene import step_records


@given(
    st.lists(st.integers(0, 9), max_size=12),
    st.lists(st.tuples(st.integers(-60, 60), st.integers(-60, 60), st.sampled_from([1, 1, 2, -1]))),
)
def test_it_reads_like_a_list(batches: list[int], slices: list[tuple[int, int, int]]) -> None:
    old = run_steps.HEAD, run_steps.TAIL, run_steps.CHUNK
    run_steps.HEAD, run_steps.TAIL, run_steps.CHUNK = 5, 6, 4
    try:
        plain: list[dict[str, int]] = []
        steps = RunSteps()
        for size in batches:
            new = [{"n": len(plain) + i} for i in range(size)]
            plain += new
            steps.extend(new)
        assert len(steps) == len(plain) and list(steps) == plain
        assert list(reversed(steps)) == plain[::-1]
        assert [steps[i] for i in range(len(plain))] == plain
        for start, stop, step in slices:
            assert steps[start:stop:step] == plain[start:stop:step]
        with pytest.raises(IndexError):
            steps[len(plain)]
        with pytest.raises(IndexError):
            steps[-len(plain) - 1]
        if plain:
            assert steps[-1] == plain[-1]
    finally:
        run_steps.HEAD, run_steps.TAIL, run_steps.CHUNK = old


def test_a_long_run_takes_little_memory_and_loses_nothing() -> None:
    one = step_records(1, xla=True)[0]
    steps = RunSteps({**one, "n": n, "loss": 2.3 / (n + 1), "x": "nan"} for n in range(20_000))
    assert len(steps._head) + len(steps._tail) < run_steps.HEAD + run_steps.TAIL + run_steps.CHUNK
    assert sum(map(sys.getsizeof, steps._packed)) < 200 * 20_000
    assert [r["n"] for r in steps] == list(range(20_000))
    assert steps[10_001]["loss"] == 2.3 / 10_002


def test_numbers_that_are_no_json_survive() -> None:
    steps = RunSteps({"n": n, "loss": math.inf} for n in range(9_000))
    assert steps[3_000]["loss"] == math.inf
