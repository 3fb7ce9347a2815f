"""Running a small program with the probe in it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from core.runs import probe_setup
from core.runs.records import (
    FinishRecord,
    Malformed,
    ModelRecord,
    OptimizerRecord,
    Record,
    StepRecord,
)
from core.runs.tail import RecordTail


class Run(NamedTuple):
    code: int
    out: str
    err: str
    records: list[Record]

    def of(self, cls: type[Any]) -> list[Any]:
        return [r for r in self.records if isinstance(r, cls)]

    @property
    def steps(self) -> list[StepRecord]:
        return self.of(StepRecord)

    @property
    def models(self) -> list[ModelRecord]:
        return self.of(ModelRecord)

    @property
    def optimizers(self) -> list[OptimizerRecord]:
        return self.of(OptimizerRecord)

    @property
    def finish(self) -> FinishRecord:
        (found,) = self.of(FinishRecord)
        assert isinstance(found, FinishRecord)
        return found


def run_program(
    tmp_path: Path,
    program: str,
    *arguments: str,
    mode: probe_setup.Mode | None = "light",
    steps: int = 10,
    break_probe: tuple[str, str, str] | None = None,
    env: dict[str, str] | None = None,
) -> Run:
    script = tmp_path / "program.py"
    script.write_text(program)
    probe = tmp_path / f"probe-{mode}-{bool(break_probe)}"
    given = dict(env or {})
    if mode is not None:
        given = {**given, **probe_setup.install(probe, mode=mode, steps=steps, env=given)}
    if break_probe is not None:
        name, old, new = break_probe
        part = probe / "probe" / name
        assert old in part.read_text()
        part.write_text(part.read_text().replace(old, new))
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        cwd=tmp_path,
        env={**os.environ, **given},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    records = RecordTail(probe_setup.records_dir(probe)).finish()
    assert not [r for r in records if isinstance(r, Malformed)]
    return Run(
        done.returncode, done.stdout, done.stderr, [r for r in records if isinstance(r, Record)]
    )


@pytest.fixture(scope="session")
def run() -> Callable[..., Run]:
    """``run(tmp_path, program, *arguments, mode=, steps=, env=, break_probe=)``.

    ``break_probe``: (file of the probe, text, what to put in its place) in this run's copy.
    """
    return run_program
