"""What a run is given so that the probe works in it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from core.errors import PilotageError
from core.runs import probe_setup
from core.runs.items import Ended, Output
from core.runs.launcher import Launcher, RunSpec


def test_the_variables_of_a_plain_run(tmp_path: Path) -> None:
    env = probe_setup.install(tmp_path, env={"PYTHONPATH": "mine"})
    assert env["PYTHONPATH"].endswith(":mine")
    assert set(env) == {
        "PYTHONPATH",
        "PILOTAGE_PROBE_OUT",
        "PILOTAGE_PROBE_MODE",
        "PILOTAGE_PROBE_STEPS",
        "PYTHONUNBUFFERED",
    }


def test_the_directory_of_a_capture_is_made_and_must_be_possible(tmp_path: Path) -> None:
    env = probe_setup.install(tmp_path / "a", capture=tmp_path / "deep" / "capture", budget_mb=7)
    assert (tmp_path / "deep" / "capture").is_dir()
    assert env["PILOTAGE_PROBE_BUDGET_MB"] == "7"
    (tmp_path / "file").write_text("")
    with pytest.raises(PilotageError, match="tensors of the run"):
        probe_setup.install(tmp_path / "b", capture=tmp_path / "file" / "capture")


def test_a_run_is_given_what_its_spec_says(tmp_path: Path) -> None:
    show = (
        "import os; print(*sorted(f'{k[15:]}={v}' for k, v in os.environ.items()"
        " if k.startswith('PILOTAGE_PROBE_')), sep='\\n')"
    )
    spec = RunSpec(
        "r1",
        [sys.executable, "-c", show],
        tmp_path,
        probe="parity",
        probe_dir=tmp_path / "probe",
        probe_capture=tmp_path / "mine",
        probe_reference=tmp_path / "theirs",
        probe_precision="fp32",
        probe_cuda="cpu",
        probe_budget_mb=5,
    )

    async def run() -> list[str]:
        said: list[str] = []
        async for item in await Launcher().start(spec):
            if isinstance(item, Output):
                said += item.lines
            if isinstance(item, Ended):
                assert item.exit_code == 0, item
        return said

    said = asyncio.run(run())
    assert {
        f"CAPTURE={tmp_path / 'mine'}",
        f"REFERENCE={tmp_path / 'theirs'}",
        "PRECISION=fp32",
        "CUDA=cpu",
        "BUDGET_MB=5",
        "MODE=parity",
    } <= set(said)
