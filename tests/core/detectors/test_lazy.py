"""Lazy execution: rates over steps, and what a short faithful run must not be taken for."""

from __future__ import annotations

import pytest

from core.body import JSON
from tests.core.detectors.judging import Change, attempt, each, kinds


def in_steps(field: str, counts: dict[int, int], **more: object) -> Change:
    return each(**{field: lambda s: counts.get(s["n"], 0)}, **more)


# --- compilations ----------------------------------------------------------------------------


def test_an_evaluation_and_a_last_batch_of_a_short_run_are_no_recompiling() -> None:
    """Epochs of five steps: a graph for the last batch, three for the first evaluation."""
    assert attempt(in_steps("compiles", {1: 1, 2: 1, 5: 1, 6: 3, 11: 1}), count=12) == {}


def test_several_compilations_in_every_fourth_step_are_recompiling_in_a_long_run() -> None:
    often = in_steps("compiles", dict.fromkeys(range(4, 200, 4), 3))
    assert attempt(often, count=30) == {}
    assert set(attempt(often, count=60)) == {"recompile"}


def test_compiling_that_has_ended_is_no_finding_of_a_long_run() -> None:
    assert attempt(in_steps("compiles", dict.fromkeys(range(2, 60, 3), 2)), count=150) == {}


def test_a_graph_that_grows_is_told_from_one_that_changes() -> None:
    grows = each(compiles=1, compile_s=lambda s: 0.1 * s["n"])
    evidence = attempt(grows, count=20)["recompile"].evidence
    assert "each takes longer: 0.4 s at first, 2.0 s now" in evidence[1]
    assert len(attempt(each(compiles=1, compile_s=0.5), count=20)["recompile"].evidence) == 1


def test_compiling_because_of_an_operator_sized_by_the_data_is_one_finding() -> None:
    masked = each(compiles=1, compile_s=0.1, transfers=3, fallbacks={"aten::nonzero": 3})
    found = attempt(masked, count=20)
    assert kinds(found) == {("recompile", "C4")}
    finding = found["recompile"]
    assert "compilations: 17 in the 17 steps up to step 20" in finding.evidence[0]
    assert finding.evidence[1] == "aten::nonzero: 60 times"
    assert "depends on the data" in finding.next_step


def test_an_operator_sized_by_the_data_whose_sizes_come_back_is_only_a_fallback() -> None:
    masked = each(compiles=0, transfers=3, fallbacks={"aten::nonzero": 3})
    assert kinds(attempt(masked, count=20)) == {("aten_fallback", "C5")}


def test_another_operator_does_not_explain_compiling() -> None:
    both = each(compiles=1, fallbacks={"aten::median": 1})
    assert set(attempt(both, count=20)) == {"aten_fallback", "recompile"}


@pytest.mark.parametrize(
    ("what", "detector"),
    [("CompileTime", "compile_too_slow"), ("ExecuteTime", "execution_too_slow")],
)
def test_the_profilers_word_on_one_slow_instance_is_taken(what: str, detector: str) -> None:
    found = attempt(lines=[f"pt-xla-profiler: {what} too slow: longest instance took 01m02s."])
    assert kinds(found) == {(detector, "C4")}


# --- executions ------------------------------------------------------------------------------


def test_steps_that_only_a_read_executes_are_seen() -> None:
    """No sync, and a loss read every fifth step: five steps in one graph."""
    read = in_steps("executes", dict.fromkeys(range(5, 41, 5), 1), signature="B S Z")
    found = attempt(read, reference=False)
    assert kinds(found) == {("no_step_boundary", "C4")}
    assert found["no_step_boundary"].evidence == [
        "executions: 8 in the steps 4 to 40",
        "no torch_xla.sync() or mark_step() in these steps",
    ]


def test_a_loss_read_in_each_step_without_a_sync_is_a_graph_that_grows() -> None:
    """``loss.item()`` executes a graph each time, but no step ends: the next goes on from it."""
    grows = each(compiles=1, compile_s=0.5, executes=1, transfers=1, signature="B S Z")
    found = attempt(grows, count=20, reference=False)
    assert kinds(found) == {("no_step_boundary", "C4")}
    assert "torch_xla.sync()" in found["no_step_boundary"].next_step
    assert found["no_step_boundary"].evidence[0].startswith("compilations: 17 in the 17 steps")


def test_one_sync_for_two_optimizers_is_a_step_boundary() -> None:
    def pairs(steps: list[JSON], signals: list[JSON]) -> None:
        for step in steps:
            even = step["n"] % 2 == 0
            step |= {"executes": int(even), "signature": "B C(1) S M" if even else "B C(1) S"}

    assert attempt(pairs) == {}


def test_memory_that_grows_because_nothing_ends_the_graph_is_one_finding() -> None:
    grows = each(executes=0, signature="B S Z", rss_mb=lambda s: 900 + 5 * s["n"])
    found = attempt(grows, count=250, reference=False)
    assert set(found) == {"no_step_boundary"}
    assert found["no_step_boundary"].evidence[-1] == "host memory: 1155 to 2150 MiB in them"


# --- reads -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reads",
    [
        dict.fromkeys(range(1, 11), 1),  # the first ten losses are printed
        dict.fromkeys([*range(1, 11), 11, 21, 31], 1),  # and every tenth, counted from 0
        dict.fromkeys(range(2, 41, 2), 1),  # every second loss
        dict.fromkeys(range(10, 41, 10), 10),  # an evaluation that reads each of its ten batches
    ],
)
def test_reads_that_are_not_of_every_step_are_no_finding(reads: dict[int, int]) -> None:
    for count in range(8, 41):
        assert attempt(in_steps("transfers", reads), count=count) == {}


def test_reading_began_late_or_ended_long_ago() -> None:
    late = in_steps("transfers", dict.fromkeys(range(100, 400), 1))
    assert attempt(late, count=150) == {}
    assert set(attempt(late, count=350)) == {"transfer_per_step"}
    early = in_steps("transfers", dict.fromkeys(range(1, 120), 1))
    assert attempt(early, count=140) == {}


def test_a_fallbacks_own_reads_are_its_finding_and_further_ones_another() -> None:
    fallen = {"fallbacks": {"aten::median": 1}}
    assert set(attempt(each(transfers=1, **fallen))) == {"aten_fallback"}
    assert set(attempt(each(transfers=2, **fallen))) == {"aten_fallback", "transfer_per_step"}
