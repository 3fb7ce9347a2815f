"""L2 to L4: placement, execution, the project's metric, time and dollars."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from core.body import JSON
from core.checks import CHECKS
from core.events import CheckEvaluated
from core.verify.evaluate import evaluate
from tests.core.scene import Scene, healthy, signal, signal_records, step_records


def attempt(change: Callable[[list[JSON], list[JSON]], object], **config: JSON) -> Scene:
    steps, signals = step_records(40, xla=True), signal_records(40, xla=True)
    change(steps, signals)
    scene = Scene(**config).references().snapshot("t1")
    scene.run("attempt", steps=steps, signals=signals)
    return scene


def result(scene: Scene, id: str) -> CheckEvaluated:
    return next(r for r in evaluate(scene.state, "t1") if r.check == id)


def state(scene: Scene, id: str) -> str:
    return result(scene, id).state


# --- L2 --------------------------------------------------------------------------------------


def test_a_healthy_run_passes_l2_to_l4_and_says_that_it_is_no_tpu() -> None:
    results = [r for r in evaluate(healthy().state, "t1") if r.level >= 2]
    told = {
        r.check: r.state for r in results if r.state == "not run" or not CHECKS[r.check].optional
    }
    assert {id for id, state in told.items() if state != "pass"} == {
        *("L2.replicas", "L2.shards", "L3.evaluated", "L3.reduced", "L3.checkpoint", "L4.cost")
    }
    for r in results:
        if r.level == 4:
            assert "xla-cpu, no TPU figure" in r.summary + r.reason


def test_a_model_left_on_the_cpu_fails() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        signal(signals, "model")["devices"] = {"cpu": 500, "xla:0": 1000}
        signal(signals, "xla").pop("devices")
        for step in steps:
            step["executes"] = 0

    scene = attempt(change)
    assert result(scene, "L2.device").actual == "500 on cpu, 1000 on xla:0"
    assert state(scene, "L2.device") == "fail"
    assert state(scene, "L2.executed") == "fail"
    assert state(scene, "L2.runtime") == "not run"


def test_a_tpu_that_turns_out_to_be_the_host_fails() -> None:
    scene = attempt(lambda *_: None, target={"kind": "tpu-v5e-1"})
    assert state(scene, "L2.runtime") == "fail"
    real = attempt(
        lambda _, signals: signal(signals, "xla").update(devices=["TPU:0"]),
        target={"kind": "tpu-v5e-1"},
    )
    assert state(real, "L2.runtime") == "pass"
    assert state(attempt(lambda *_: None), "L2.runtime") == "pass"


def test_chips_asked_for_are_chips_used() -> None:
    four = {"kind": "tpu-v5e-4", "chips": 4}
    one = attempt(lambda _, s: signal(s, "xla").update(devices=["TPU:0"]), target=four)
    assert result(one, "L2.chips").summary == "1 of 4 chip(s)"
    assert state(one, "L2.chips") == "fail"
    all_of = [f"TPU:{i}" for i in range(4)]
    scene = attempt(lambda _, s: signal(s, "xla").update(devices=all_of), target=four)
    assert state(scene, "L2.chips") == "pass"


def test_an_optimizer_of_other_parameters_fails() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        signal(signals, "optimizer").update(orphaned=3, devices={"cpu": 1500})

    assert "3 of 3 tensors" in result(attempt(change), "L2.optimizer").summary
    assert state(attempt(change), "L2.optimizer") == "fail"
    unknown = attempt(lambda _, signals: signal(signals, "optimizer").pop("orphaned"))
    assert state(unknown, "L2.optimizer") == "not run"


def test_recompiling_fails_above_the_threshold_only() -> None:
    def every(nth: int) -> Scene:
        def change(steps: list[JSON], signals: list[JSON]) -> None:
            for step in steps:
                step["compiles"] = int(step["n"] % nth == 0)

        return attempt(change)

    assert state(every(1), "L2.recompiles") == "fail"
    assert state(every(2), "L2.recompiles") == "fail"  # 19 in the 37 steps after the warm-up
    assert state(every(3), "L2.recompiles") == "pass"


def test_what_is_read_to_be_saved_is_no_read_of_a_step() -> None:
    def saving(says: bool) -> Callable[[list[JSON], list[JSON]], None]:
        def change(steps: list[JSON], signals: list[JSON]) -> None:
            steps[-1]["transfers"] = 60  # after the training
            steps[19]["transfers"] = 60
            if says:
                signals.append({"k": "saved", "pid": 7, "tid": 7, "path": "a.pt", "n": 20})

        return change

    assert state(attempt(saving(True)), "L2.transfers") == "pass"
    assert state(attempt(saving(False)), "L2.transfers") == "fail"


def test_reading_every_step_fails_and_every_tenth_does_not() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        for step in steps:
            step["transfers"] = 1

    assert state(attempt(change), "L2.transfers") == "fail"
    assert state(attempt(lambda *_: None), "L2.transfers") == "pass"


def test_a_fallback_fails_but_reading_a_scalar_is_none() -> None:
    def change(op: str) -> Callable[[list[JSON], list[JSON]], None]:
        return lambda steps, _: steps[5].update(fallbacks={op: 2})

    assert state(attempt(change("aten::nonzero")), "L2.fallback") == "fail"
    assert state(attempt(change("aten::_local_scalar_dense")), "L2.fallback") == "pass"


def test_what_only_the_tpu_lowers_is_no_fallback_on_the_host_and_no_transfer() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        for step in steps:
            step.update(fallbacks={"aten::upsample_bilinear2d_backward": 2}, transfers=2)

    def reading(steps: list[JSON], signals: list[JSON]) -> None:
        change(steps, signals)
        for step in steps:
            step["transfers"] = 3  # and the loss

    scene = attempt(change)
    assert state(scene, "L2.fallback") == state(scene, "L2.transfers") == "pass"
    assert state(attempt(reading), "L2.transfers") == "fail"
    tpu = attempt(change, target={"kind": "tpu-v5e-1"})
    assert state(tpu, "L2.fallback") == state(tpu, "L2.transfers") == "fail"


def test_without_counters_l2_is_not_run() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        for step in [*steps, signal(signals, "finish")]:
            for field in ("compiles", "executes", "transfers", "fallbacks"):
                step.pop(field, None)

    scene = attempt(change)
    for id in ("executed", "recompiles", "transfers", "fallback"):
        assert state(scene, f"L2.{id}") == "not run"


def test_a_target_kind_that_is_not_known_is_not_judged() -> None:
    assert state(attempt(lambda *_: None, target={"kind": "gpu"}), "L2.device") == "not run"


# --- L3 --------------------------------------------------------------------------------------


def goal(ours: str, theirs: str, **metric: object) -> CheckEvaluated:
    scene = Scene(metric=metric)
    scene.run("reference", lines=(f"test accuracy: {ours}",))
    scene.snapshot("t1").run("attempt", lines=(f"test accuracy: {theirs}",))
    return result(scene, "L3.metric")


@pytest.mark.parametrize(
    ("ours", "theirs", "metric", "state"),
    [
        ("0.9500", "0.9401", {}, "pass"),
        ("0.9500", "0.9399", {}, "fail"),
        ("0.9500", "0.9900", {}, "pass"),  # better is not worse
        ("20.0", "20.3", {"higher_is_better": False, "points": 1}, "pass"),
        ("20.0", "21.1", {"higher_is_better": False, "points": 1}, "fail"),
        ("20.0", "12.0", {"higher_is_better": False, "points": 1}, "pass"),
        ("20.0", "20.1", {"higher_is_better": False, "points": 0}, "pass"),
        ("20.0", "20.3", {"higher_is_better": False, "points": 0}, "fail"),
    ],
)
def test_the_metric_is_held_to_the_reference_in_its_direction(
    ours: str, theirs: str, metric: JSON, state: str
) -> None:
    assert goal(ours, theirs, **metric).state == state


def test_a_metric_that_is_nan_fails_and_a_reference_that_is_nan_is_no_yardstick() -> None:
    pattern = {"pattern": r"test accuracy: (\S+)"}
    found = goal("0.95", "nan", **pattern)
    assert (found.state, found.summary[-18:]) == ("fail", "which is no number")
    assert goal("nan", "0.95", **pattern).state == "not run"


def test_a_run_without_the_metric_does_not_reach_l3() -> None:
    assert goal("0.95", "none").state == "not run"


def test_fewer_evaluated_or_trained_samples_fail() -> None:
    fewer = attempt(lambda _, signals: signal(signals, "finish").update(eval_last=300))
    assert (
        result(fewer, "L3.samples").summary == "300 samples in the last evaluation instead of 360"
    )
    dropped = attempt(lambda steps, _: steps[-1].update(samples=20))
    assert state(dropped, "L3.budget") == "fail"
    unknown = attempt(lambda steps, _: steps[-1].pop("samples"))
    assert state(unknown, "L3.budget") == "not run"


# --- L4 --------------------------------------------------------------------------------------


def timed(seconds: float, **config: JSON) -> Scene:
    scene = Scene(**config).references().snapshot("t1")
    scene.run("attempt", seconds=seconds)
    return scene


def test_time_is_held_to_the_reference_with_compiling_shown_apart() -> None:
    assert state(timed(59.0), "L4.time") == "pass"
    slow = result(timed(90.0), "L4.time")
    assert slow.state == "fail"
    assert "0.03 min of it compiling" in slow.actual
    assert slow.evidence["compile_s"] == 1.5
    assert state(timed(90.0, criteria={"max_time_ratio": 2.0}), "L4.time") == "pass"


def test_dollars_need_prices_and_then_break_even() -> None:
    assert state(timed(30.0), "L4.cost") == "not run"
    tpu = {"kind": "tpu-v5e-1"}
    prices = {"reference": "gcp-g2-standard-8-l4", "target": "tpu-v5e"}
    cheap = result(timed(30.0, target=tpu, prices=prices), "L4.cost")
    assert cheap.state == "pass"
    assert cheap.expected == "$0.01423"  # 0.8536 $/h for a minute
    assert cheap.actual == "$0.01"  # 1.20 $/h for half a minute
    assert cheap.evidence["break_even_runs"] == 10  # 0.0385 $ spent, 0.00423 $ saved a run
    assert state(timed(60.0, target=tpu, prices=prices), "L4.cost") == "fail"


def test_a_tpu_price_never_applies_to_the_host() -> None:
    prices = {"reference": "gcp-g2-standard-8-l4", "target": "tpu-v5e"}
    cost = result(timed(30.0, prices=prices), "L4.cost")
    assert cost.state == "not run"
    assert "does not apply" in cost.reason


def test_the_time_of_a_failed_run_says_nothing() -> None:
    scene = Scene().references().snapshot("t1")
    scene.run("attempt", seconds=3.0, exit_code=1)
    assert state(scene, "L4.time") == "not run"
