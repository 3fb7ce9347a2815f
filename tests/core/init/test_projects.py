"""`pilotage init` on three projects in three styles: each file runs as it was written.

The projects are read, their configuration is written, and a session that is opened with it records
the reference on the CPU, with its metric.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from core.config import load
from core.state import SessionState
from core.state_parts import Run
from pilotage import cli
from sessions.opening import create
from tests.core.recorder.recording import Console, recording

PROJECTS = Path(__file__).parent / "projects"

EXPECTED = {
    "single": {
        "command": "python main.py --epochs 3 --lr 0.05",
        "target": "python main.py --epochs 3 --lr 0.05",
        "metric": "test accuracy",
        "higher": True,
        "points": 1.0,
        "seeds": [1],
        "range": (50.0, 100.0),
    },
    "package": {
        "command": "torchrun --standalone --nproc_per_node=1 -m textcls.train "
        "--config configs/base.yaml --output-dir exp/base",
        "target": "python -m textcls.train --config configs/base.yaml --output-dir exp/base",
        "metric": "valid accuracy",
        "higher": True,
        "points": 100.0,
        "seeds": [13],
        "range": (0.5, 1.0),
    },
    "hf": {
        "command": "python run_classification.py --output_dir results/tiny --do_train --do_eval "
        "--num_train_epochs 1 --per_device_train_batch_size 16 --learning_rate 1e-3 --seed 3 "
        "--report_to none",
        "target": "python run_classification.py --output_dir results/tiny --do_train --do_eval "
        "--num_train_epochs 1 --per_device_train_batch_size 16 --learning_rate 1e-3 --seed 3 "
        "--report_to none",
        "metric": "eval accuracy",
        "higher": True,
        "points": 100.0,
        "seeds": [3],
        "range": (0.3, 1.0),
    },
}


@pytest.fixture(params=list(EXPECTED))
def project(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A copy of one of the projects, under its own name, as a stranger has it on the disk."""
    place = tmp_path / request.param
    shutil.copytree(PROJECTS / request.param, place, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return place


def _init(project: Path) -> dict[str, object]:
    done = CliRunner().invoke(cli, ["init", str(project), "--json", "--python", sys.executable])
    assert done.exit_code == 0, done.output
    result: dict[str, object] = json.loads(done.stdout)
    return result


async def _reference(path: Path) -> Run:
    """The reference of a session, as soon as its metric has been looked for."""

    def recorded(state: SessionState) -> Run | None:
        runs = state.runs_for("reference")
        return runs[-1] if runs and runs[-1].result is not None else None

    async with recording(path) as recorder:
        with Console(path) as console:
            run = await console.until(recorded, limit_s=200)
        recorder.stop("the test has seen enough")
    return run


async def test_the_file_runs_without_an_edit(project: Path) -> None:
    expected = EXPECTED[project.name]
    result = _init(project)
    assert result["edits"] == []
    config = load(project)
    assert config.reference.command == expected["command"]
    assert config.target.command == expected["target"]
    assert config.reference.seeds == expected["seeds"]
    assert config.metric.name == expected["metric"]
    assert config.metric.higher_is_better is expected["higher"]
    assert config.metric.points == expected["points"]
    assert config.target.env["PJRT_DEVICE"] == "CPU" and config.agent.driver == "manual"

    run = await _reference(create(config, "0.0.test"))
    output = "\n".join(line.text for line in run.lines)
    assert run.ok_exit, output[-3000:]
    assert run.result is not None and run.result.value is not None, run.result
    low, high = expected["range"]
    assert low < run.result.value <= high
    assert run.steps, "the probe saw the optimizer step"


async def test_a_whole_session_from_the_file_ends_with_a_measurement(tmp_path: Path) -> None:
    place = tmp_path / "single"
    shutil.copytree(PROJECTS / "single", place)
    _init(place)
    state = await record_headless(place)
    (reference,) = state.runs_for("reference")
    (attempt,) = state.attempts
    assert reference.result is not None and attempt.result is not None
    assert attempt.result.value == reference.result.value  # nothing has been migrated
    checks = {c: results[-1].body.state for c, results in state.checks.items()}
    assert checks["L3.metric"] == "pass"
    assert checks["L2.device"] != "pass", "the model is on the CPU, not on XLA"
    assert state.measured_level < 2


async def record_headless(project: Path) -> SessionState:
    """The session of a project's own file, with nobody at a console."""
    import asyncio

    from core.state import fold
    from sessions.log import EventLog
    from sessions.opening import play_headless

    path = create(load(project), "0.0.test")
    await asyncio.to_thread(play_headless, path, lambda line: None)
    with EventLog.read(path) as log:
        return fold(log.events())
