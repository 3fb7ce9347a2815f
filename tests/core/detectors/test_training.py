"""Training itself: what stands still, what is constant from the start, what is no number."""

from __future__ import annotations

import pytest

from core.body import JSON
from tests.core.detectors.judging import Change, attempt, each, kinds
from tests.core.scene import signal


def stale(**fields: object) -> Change:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        signal(signals, "optimizer").update(fields)

    return change


# --- parameters ------------------------------------------------------------------------------


def test_an_optimizer_on_another_device_than_its_model_is_stale() -> None:
    found = attempt(stale(orphaned=2, devices={"cpu": 1000, "xla:0": 500}))
    assert kinds(found) == {("params_unchanged", "C2")}


def test_an_optimizer_of_nothing_that_is_trained_is_stale() -> None:
    assert set(attempt(stale(orphaned=3))) == {"params_unchanged"}


def test_a_tensor_trained_beside_the_model_is_not_stale() -> None:
    assert attempt(stale(tensors=4, orphaned=1)) == {}


def test_what_the_reference_has_too_is_not_stale() -> None:
    beside = stale(orphaned=3)
    assert attempt(beside, before=beside) == {}


def test_an_image_optimised_through_a_frozen_model_is_not_stale() -> None:
    def frozen(steps: list[JSON], signals: list[JSON]) -> None:
        stale(tensors=1, orphaned=1)(steps, signals)
        signal(signals, "model").update(trainable=0, devices={})

    assert attempt(frozen) == {}


def test_the_last_record_of_an_optimizer_counts() -> None:
    def mended(steps: list[JSON], signals: list[JSON]) -> None:
        made = signal(signals, "optimizer")
        made.update(optimizer_id=1)
        signals.insert(0, {**made, "orphaned": 3, "devices": {"cpu": 1500}})

    assert attempt(mended) == {}


def test_updates_lost_to_few_digits_say_so() -> None:
    def lost(steps: list[JSON], signals: list[JSON]) -> None:
        signal(signals, "model")["dtypes"] = {"bfloat16": 1500}
        for step in steps:
            if "params_changed" in step:
                step |= {"params_changed": False, "update_norm": 0.0}

    finding = attempt(lost)["params_unchanged"]
    assert (
        finding.evidence[-1]
        == "parameters in bfloat16: bfloat16 keeps 8 bits, a smaller update is lost"
    )
    assert "autocast" in finding.next_step


# --- loss ------------------------------------------------------------------------------------


def test_a_loss_that_ends_constant_is_convergence() -> None:
    ends = each(loss=lambda s: 2.0 / s["n"] if s["n"] < 30 else 0.0625)
    for count in (40, 120, 400):
        assert attempt(ends, count=count) == {}


def test_a_loss_that_is_read_now_and_then_is_constant_too() -> None:
    now_and_then = each(loss=lambda s: 0.5 if s["n"] % 50 == 0 else None)
    assert attempt(now_and_then, count=450) == {}
    assert set(attempt(now_and_then, count=500)) == {"loss_constant"}


def test_a_loss_of_few_digits_needs_more_readings() -> None:
    def low(steps: list[JSON], signals: list[JSON]) -> None:
        each(loss=1.5)(steps, signals)
        signal(signals, "model")["dtypes"] = {"bfloat16": 1500}

    assert attempt(low, count=20) == {}
    assert set(attempt(low, count=30)) == {"loss_constant"}


@pytest.mark.parametrize("field", ["loss", "grad_norm", "param_norm"])
def test_what_is_not_finite_says_when_it_last_was(field: str) -> None:
    breaks = each(**{field: lambda s: 1.5 + s["n"] if s["n"] < 7 else "nan"})
    found = attempt(breaks)
    assert kinds(found) == {("nan", "C5")}
    first, last = found["nan"].evidence
    assert first.startswith("step 7: ")
    assert first.endswith(" nan")
    assert last.endswith(" 7.5 in step 6, the last finite one")
