"""Placement: which devices are the target's, under torch_xla and under TorchTPU."""

from __future__ import annotations

from core.body import JSON
from tests.core.detectors.judging import Change, attempt, kinds
from tests.core.scene import signal


def on(*devices: str, **records: JSON) -> Change:
    """A model for each device, as of several optimizers."""

    def change(steps: list[JSON], signals: list[JSON]) -> None:
        model, optimizer = signal(signals, "model"), signal(signals, "optimizer")
        for i, device in enumerate(devices, 1):
            signals.append(model | {"optimizer_id": i, "devices": {device: 1500}})
            signals.append(optimizer | {"optimizer_id": i, "devices": {device: 1500}})
        signals.remove(model)
        signals.remove(optimizer)

    return change


TPU = {"target": {"kind": "tpu-v5e-1"}}


def test_torchtpus_device_is_the_target_of_a_tpu_session_only() -> None:
    def tpu(steps: list[JSON], signals: list[JSON]) -> None:
        on("tpu:0")(steps, signals)
        signals.remove(signal(signals, "xla"))
        for step in steps:
            for name in ("executes", "transfers", "fallbacks"):
                step.pop(name)

    assert attempt(tpu, config=TPU) == {}
    assert kinds(attempt(tpu)) == {("model_on_cpu", "C2")}


def test_one_of_two_models_on_the_host_is_seen() -> None:
    found = attempt(on("xla:0", "cpu"))
    assert kinds(found) == {("model_on_cpu", "C2")}
    assert found["model_on_cpu"].evidence == [
        "1500 trained parameters on xla:0",
        "1500 trained parameters on cpu",
    ]
    assert attempt(on("xla:0", "xla:0")) == {}


def test_a_model_written_again_counts_as_it_is_now() -> None:
    def moved(steps: list[JSON], signals: list[JSON]) -> None:
        on("xla:0")(steps, signals)
        signals.insert(0, signal(signals, "model") | {"devices": {"cpu": 1500}})

    assert attempt(moved) == {}
