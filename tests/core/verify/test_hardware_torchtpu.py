"""L2 on records of TorchTPU, and optimizers that hold more than the model: made-up records."""

from __future__ import annotations

from core.body import JSON
from core.events import CheckEvaluated
from core.verify.evaluate import evaluate
from tests.core.scene import Scene, signal, signal_records, step_records

TPU: JSON = {"target": {"kind": "tpu-v5e-1", "chips": 1}}


def measured(scene: Scene) -> dict[str, CheckEvaluated]:
    return {r.check: r for r in evaluate(scene.state, "t1")}


def torchtpu(**config: JSON) -> Scene:
    """An attempt under TorchTPU, which counts its compilations and nothing else."""
    steps, signals = step_records(40, xla=True), signal_records(40, xla=True)
    for step in steps:
        for name in ("executes", "transfers", "fallbacks"):
            step.pop(name)
    signal(signals, "model")["devices"] = {"tpu:0": 1500}
    signal(signals, "optimizer")["devices"] = {"tpu:0": 1500}
    signal(signals, "finish").pop("fallbacks")
    signals.remove(signal(signals, "xla"))
    who: JSON = {"pid": 7, "tid": 7}
    signals.insert(1, {"k": "tpu", **who, "version": "0.2.0", "devices": ["TPU:0"]})
    scene = Scene(**config).references().snapshot("t1")
    scene.run("attempt", steps=steps, signals=signals)
    return scene


def test_torchtpus_device_and_runtime_are_the_targets() -> None:
    results = measured(torchtpu(**TPU))
    for id in ("L2.device", "L2.runtime", "L2.chips", "L2.optimizer", "L2.recompiles"):
        assert results[id].state == "pass", (id, results[id])
    assert results["L2.device"].summary == "all trained parameters on the TPU"


def test_what_torchtpu_does_not_count_is_not_run_and_says_so() -> None:
    results = measured(torchtpu(**TPU))
    for id in ("L2.executed", "L2.fallback", "L2.transfers"):
        assert results[id].state == "not run"
        assert "TorchTPU counts only its compilations" in results[id].reason


def test_on_xla_cpu_it_is_not_the_target() -> None:
    assert measured(torchtpu())["L2.device"].state == "fail"


def test_a_tensor_trained_beside_the_model_passes_and_a_stale_model_does_not() -> None:
    def state(**fields: object) -> str:
        steps, signals = step_records(40, xla=True), signal_records(40, xla=True)
        signal(signals, "optimizer").update(fields)
        scene = Scene().references().snapshot("t1")
        scene.run("attempt", steps=steps, signals=signals)
        return measured(scene)["L2.optimizer"].state

    assert state(tensors=4, orphaned=1) == "pass"
    assert state(tensors=3, orphaned=3) == "fail"
    assert state(orphaned=1, devices={"cpu": 100, "xla:0": 1400}) == "fail"
