"""Running ``programs/replayed.py`` as a reference, and as a program that is held against it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from core.runs import probe_setup
from core.runs.records import Malformed, ProbeErrorRecord, Record
from core.runs.records_replay import ForwardRecord, GradientsRecord, ModuleError, StartRecord
from core.runs.tail import RecordTail

PROGRAM = Path(__file__).parent / "programs" / "replayed.py"
RTOL = 1e-5


class Replayed(NamedTuple):
    """What came of a run."""

    out: str
    records: list[Record]

    def of(self, cls: type[Any]) -> list[Any]:
        return [r for r in self.records if isinstance(r, cls)]

    @property
    def errors(self) -> list[str]:
        return [f"{r.where}: {r.error}" for r in self.of(ProbeErrorRecord)]

    @property
    def start(self) -> StartRecord:
        found: StartRecord = self.of(StartRecord)[-1]
        return found

    @property
    def forward(self) -> ForwardRecord:
        found: ForwardRecord = self.of(ForwardRecord)[-1]
        return found

    def module(self, name: str, nth: int = 0) -> ModuleError:
        return [m for m in self.forward.modules if m.name == name][nth]

    def first_diverging(self, root: str) -> str | None:
        """The first module of a root, in the order in which they end, that differs in place."""
        for m in self.forward.modules:
            if m.name.split(".")[0] == root and m.error is not None and m.error > RTOL:
                return m.name
        return None

    def guilty(self, root: str) -> str | None:
        """The first one that differs on the reference's own inputs."""
        for m in self.forward.modules:
            if m.name.split(".")[0] == root and m.isolated is not None and m.isolated > RTOL:
                return m.name
        return None

    @property
    def gradients(self) -> dict[int, GradientsRecord]:
        """By step."""
        return {r.n or 0: r for r in self.of(GradientsRecord)}


def run(
    where: Path,
    *arguments: str,
    capture: Path | None = None,
    reference: Path | None = None,
    program: Path = PROGRAM,
    budget_mb: int = 256,
    env: dict[str, str] | None = None,
    steps: int = 1000,
) -> Replayed:
    """Run a program in parity mode to its end; it must end well."""
    given = probe_setup.install(
        where,
        mode="parity",
        steps=steps,
        capture=capture,
        reference=reference,
        budget_mb=budget_mb,
    )
    done = subprocess.run(
        [sys.executable, str(program), *arguments],
        cwd=where,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PJRT_DEVICE": "CPU",
            "XLA_FLAGS": "--xla_backend_optimization_level=0",
            "PYTHONDONTWRITEBYTECODE": "1",
            **(env or {}),
            **given,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    records = RecordTail(probe_setup.records_dir(where)).finish()
    assert not [r for r in records if isinstance(r, Malformed)]
    return Replayed(done.stdout, [r for r in records if isinstance(r, Record)])


def index(capture: Path, rank: int = 0) -> dict[str, Any]:
    """The index of a capture."""
    found = json.loads((capture / f"rank{rank}" / "index.json").read_text())
    assert isinstance(found, dict)
    return found
