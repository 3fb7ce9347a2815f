"""``pilotage bench probe`` with real processes. No time is judged here: a timing is no test."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import pilotage
from core.bench import probe
from core.bench.worker import NotThere, Worker
from core.errors import PilotageError
from core.runs.records import StepRecord

TINY = probe.Model("mlp", 16, 2, batch=4)


def ask(*arguments: str) -> Result:
    return CliRunner().invoke(pilotage.cli, ["bench", "probe", *arguments])


def python_that(tmp_path: Path, script: str) -> str:
    """An executable that stands in the place of the project's Python."""
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_the_command_measures_a_model_on_the_cpu() -> None:
    done = ask("--quick", "--device", "cpu", "--model", "cnn", "--steps", "10", "--json")
    result = json.loads(done.stdout)
    assert done.exit_code == (0 if result["holds"] else 1), done.output
    (case,) = result["cases"]
    assert (case["device"], case["model"], case["judged"]) == ("cpu", "cnn", True)
    assert case["state"] == ("pass" if result["holds"] else case["state"])
    assert case["steps"] == 9  # the first of a block is left out
    assert case["tensors"] == 22
    assert case["off_ms"] > 0 < case["on_ms"]
    assert case["ratio"] == pytest.approx(case["on_ms"] / case["off_ms"], rel=1e-3)
    assert case["added"] is None  # nothing is compiled on the CPU
    assert not [reason for reason in case["reasons"] if "the probe" in reason], case["reasons"]
    assert result["torch"]
    assert result["own_ms"]["cpu"] > 0
    assert "cpu cnn: 10 steps with the probe and 10 without" in done.stderr


def test_without_torch_nothing_is_judged_and_nothing_passes(tmp_path: Path) -> None:
    bare = python_that(tmp_path, f'exec {sys.executable} -S "$@"')
    done = ask("--device", "cpu", "--python", bare, "--json")
    assert done.exit_code == 1
    result = json.loads(done.stdout)
    assert not result["holds"]
    assert {case["state"] for case in result["cases"]} == {"not run"}
    assert result["cases"][0]["reasons"] == ["The Python of the runs has no torch."]


def test_a_python_that_is_not_there_is_bad_input() -> None:
    done = ask("--python", "/nowhere/python", "--json")
    assert done.exit_code == 2
    assert "/nowhere/python could not be started" in json.loads(done.stdout)["error"]
    assert "--python" in done.stderr


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo broken >&2; exit 3", "ended early with exit code 3; its last line was: broken"),
        ("exit 0", "ended early with exit code 0 and printed nothing"),
        ("yes no-answer", "answered with something that is no answer"),
    ],
)
def test_a_process_that_does_not_greet(tmp_path: Path, script: str, said: str) -> None:
    python = python_that(tmp_path, script)
    with Worker(python, "cpu", tmp_path / "run", probe=False) as worker:
        with pytest.raises(NotThere) as caught:
            worker.greet()
    assert said in str(caught.value)
    assert worker.process.returncode is not None  # nothing is left behind


def test_unwatched_steps_leave_no_trace_and_watched_ones_all_do(tmp_path: Path) -> None:
    with Worker(sys.executable, "cpu", tmp_path / "run", probe=True) as worker:
        worker.greet()
        probe.calibrate(worker, TINY)
        probe.in_turns(worker, 40)
        worker.run(3, watched=True)
        assert worker.counters() is None
        worker.end()
        steps = [r for r in worker.records() if isinstance(r, StepRecord)]
    assert (worker.made, worker.watched) == (probe.WARM_UP + 83, probe.WARM_UP + 43)
    assert [step.n for step in steps] == list(range(1, worker.watched + 1))
    assert {step.signature for step in steps[2:-1]} == {steps[2].signature}
    assert "C(1) S" in (steps[2].signature or "")


def test_the_probe_has_to_be_there(tmp_path: Path) -> None:
    with Worker(sys.executable, "cpu", tmp_path / "run", probe=False) as worker:
        worker.greet()
        worker.make(TINY.name, TINY.size, TINY.depth, 4)
        with pytest.raises(PilotageError, match="The probe is not in place"):
            worker.run(2, watched=True)
