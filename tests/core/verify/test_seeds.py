"""L3 with several runs: the reference's own variation is no loss of the migration."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import events as ev
from core.events import CheckEvaluated
from core.verify.evaluate import evaluate
from core.verify.seeds import half_width, judge, t95
from tests.core.scene import Scene, signal_records, step_records

values = st.lists(st.floats(-100, 100), min_size=2, max_size=6)


def session(references: list[float], targets: list[float], **metric: object) -> Scene:
    scene = Scene(metric=metric)
    for seed, value in enumerate(references):
        run_id = scene.start("reference", seed=seed)
        scene.records(run_id, step_records(40, xla=False), signal_records(40, xla=False))
        scene.output(run_id, f"test accuracy: {value}")
        scene.end(run_id)
    scene.run("parity", "reference", lines=())
    scene.snapshot("t1")
    for value in targets:
        scene.run("attempt", lines=(f"test accuracy: {value}",))
    scene.run("parity", "target", lines=())
    return scene


def metric(scene: Scene) -> CheckEvaluated:
    return next(r for r in evaluate(scene.state, "t1") if r.check == "L3.metric")


def test_one_run_may_be_worse_than_the_worst_seed_by_the_tolerance() -> None:
    result = metric(session([0.95, 0.91, 0.93], [0.905]))
    assert result.state == "pass"
    assert result.summary == "test accuracy 0.905, 0.50 points worse than the worst reference"
    assert result.expected == "0.91 to 0.95, mean 0.93, in 3 reference runs"
    assert "no worse than the worst of 3 reference runs" in result.tolerance
    assert result.evidence["footnotes"] == ["1 run(s) of the target against 3 of the reference"]
    assert metric(session([0.95, 0.91, 0.93], [0.899])).state == "fail"
    # Without the seeds, the same run would be far off the one reference run.
    assert metric(session([0.93], [0.905])).state == "fail"


def test_several_runs_on_both_sides_are_judged_by_the_interval_of_their_difference() -> None:
    result = metric(session([0.95, 0.91, 0.93], [0.94, 0.90, 0.92]))
    assert result.state == "pass"
    assert "95 % interval of the loss" in result.tolerance
    assert "more seeds would tell more" in result.evidence["footnotes"][0]
    worse = metric(session([0.950, 0.951, 0.952], [0.930, 0.931, 0.932]))
    assert (worse.state, "2.00 points worse" in worse.summary) == ("fail", True)
    assert "Welch" in worse.evidence["rule"]


def test_the_direction_of_the_metric_counts() -> None:
    scene = session([0.2, 0.3], [0.305], higher_is_better=False)
    assert metric(scene).state == "pass"
    assert metric(session([0.2, 0.3], [0.32], higher_is_better=False)).state == "fail"


def test_a_metric_that_is_no_number_is_no_pass_whatever_the_band() -> None:
    scene = session([0.2, 0.3], [0.3])
    run_id = scene.run("attempt", lines=("test accuracy: x",))
    scene.add(ev.RunResult("test accuracy", math.nan), run_id)
    result = metric(scene)
    assert result.state == "fail", result.reason
    assert "no number" in result.evidence["rule"]


def test_what_is_comparable_is_said_with_its_reason() -> None:
    scene = session([0.95], [0.95])
    said = metric(scene).evidence["comparable"]
    assert said.startswith("yes: the same number of samples evaluated")
    assert "the same batches" in said
    fewer = scene.start("attempt")
    scene.records(fewer, [], [{"k": "finish", "eval_last": 100, "steps": 40}])
    scene.output(fewer, "test accuracy: 0.95")
    scene.end(fewer)
    assert metric(scene).evidence["comparable"].startswith("no: 100 samples evaluated")


@given(values, values, st.booleans(), st.floats(0, 10))
def test_a_better_target_never_fails(
    ours: list[float], theirs: list[float], higher: bool, limit: float
) -> None:
    best = max(ours) if higher else min(ours)
    shifted = [best + abs(x) if higher else best - abs(x) for x in theirs]
    assert judge(ours, shifted, higher, limit).good
    assert judge(ours, shifted[:1], higher, limit).good
    assert judge([best], shifted, higher, limit).good


@given(values, values, st.floats(-50, 50))
def test_the_interval_moves_with_the_values_and_not_with_their_level(
    ours: list[float], theirs: list[float], by: float
) -> None:
    moved = half_width([x + by for x in ours], [x + by for x in theirs])
    assert moved == pytest.approx(half_width(ours, theirs), rel=1e-6, abs=1e-6)


def test_quantiles_are_those_of_the_tables() -> None:
    assert [t95(n) for n in (0.5, 1, 2.9, 30, 31)] == [12.706, 12.706, 4.303, 2.042, 1.96]
    # Welch 1947 by hand: s1^2/3 = s2^2/3 = 1/3 of 1e-4 each, nu = 4.
    assert half_width([0.01, 0.02, 0.03], [0.01, 0.02, 0.03]) == pytest.approx(
        2.776 * math.sqrt(2e-4 / 3)
    )
