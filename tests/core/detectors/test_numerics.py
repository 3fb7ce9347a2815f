"""Number formats: types that the environment changes, and mixed precision as it was for CUDA."""

from __future__ import annotations

import pytest

from core.body import JSON
from tests.core.detectors.judging import attempt, each, kinds
from tests.core.scene import signal

TARGET = "python -m inkformer.train --device xla"


@pytest.mark.parametrize("name", ["XLA_USE_BF16", "XLA_DOWNCAST_BF16", "XLA_USE_32BIT_LONG"])
def test_a_variable_that_changes_a_type_is_seen(name: str) -> None:
    found = attempt(env={name: "1", "PJRT_DEVICE": "CPU"})
    assert kinds(found) == {("forced_dtype", "C5")}
    assert found["forced_dtype"].evidence[0].startswith(f"{name}=1: ")


def test_it_is_seen_in_the_command_too() -> None:
    asked = f"env PJRT_DEVICE=CPU XLA_USE_BF16=true {TARGET}"
    found = attempt(config={"target": {"command": asked}})
    assert set(found) == {"forced_dtype"}


def test_a_variable_that_the_program_sets_itself_is_seen_by_what_torch_xla_says() -> None:
    said = "XLA_USE_32BIT_LONG will be deprecated after the 2.6 release"
    found = attempt(lines=[said])
    assert kinds(found) == {("forced_dtype", "C5")}
    assert found["forced_dtype"].evidence == [f"{said} (int64 is computed as int32)"]
    assert (
        len(attempt(lines=[said] * 3, env={"XLA_USE_32BIT_LONG": "1"})["forced_dtype"].evidence)
        == 1
    )


@pytest.mark.parametrize("value", ["0", "", "false", None])
def test_a_variable_that_is_off_or_taken_away_is_none(value: str | None) -> None:
    assert attempt(env={"XLA_USE_BF16": value}) == {}


def test_an_argument_of_the_program_is_no_variable() -> None:
    asked = f"{TARGET} XLA_USE_BF16=1"
    assert attempt(config={"target": {"command": asked}}) == {}


def test_a_scaler_on_the_xla_device_is_seen_and_its_reads_are_no_second_finding() -> None:
    scaling = each(loss_source="backward, unscaled", transfers=1)
    found = attempt(scaling)
    assert kinds(found) == {("cuda_amp", "C2")}
    assert found["cuda_amp"].evidence[1] == "transfers to the host: 10 in 10 of these steps"
    assert set(attempt(each(loss_source="backward, unscaled", transfers=3))) == {
        "cuda_amp",
        "transfer_per_step",
    }


def test_a_scaler_on_another_device_is_no_finding_of_its_own() -> None:
    def change(steps: list[JSON], signals: list[JSON]) -> None:
        each(loss_source="backward, unscaled", executes=None, transfers=None)(steps, signals)
        signal(signals, "model")["devices"] = {"cuda:0": 1500}

    assert attempt(change, command="python other.py") == {}
