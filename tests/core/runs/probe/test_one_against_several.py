"""A reference of one process, and the same training on two: real processes of the project ``ddp4``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from core.bench.fault_projects import read_project
from core.bench.faults import PROJECTS
from core.runs import probe_setup, records

STEPS = 3


def train(place: Path, ranks: int, batch: int, **more: Any) -> list[dict[str, Any]]:
    """The records of a parity run on so many processes, with so large a batch in each."""
    env = probe_setup.install(place, mode="parity", steps=STEPS, **more)
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}",
         "train.py", f"--batch={batch}"],
        cwd=read_project(PROJECTS / "ddp4").original,
        env={**os.environ, **env, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [x for f in probe_setup.records_dir(place).glob("*.jsonl") for x in f.open("rb")]
    found = [r for x in lines if isinstance(r := records.parse(x), records.Record)]
    return [records.to_json(r) for r in found]


def of(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [r for r in found if r["k"] == kind]


def test_two_ranks_are_held_against_their_parts_of_the_batch_of_one(tmp_path: Path) -> None:
    capture = tmp_path / "capture"
    one = train(tmp_path / "one", 1, 32, capture=capture)
    two = train(tmp_path / "two", 2, 16, reference=capture)
    assert not of(one, "probe_error") and not of(two, "probe_error")
    batches = of(two, "batch")
    assert {r["rank"] for r in batches} == {0, 1}
    assert {r["state"] for r in batches} == {"same"}  # every second row of the sampler's order
    forward = of(two, "forward")
    assert [len(r["modules"]) for r in forward] == [12, 12]
    assert max(m["error"] for r in forward for m in r["modules"]) < 1e-6
    assert max(r["error"] for r in of(two, "gradients")) < 1e-5
    for n in range(1, STEPS + 1):
        (mine,) = [r for r in of(one, "step") if r["n"] == n]
        theirs = [r for r in of(two, "step") if r["n"] == n]
        assert sum(r["samples"] for r in theirs) == mine["samples"] == 32
        assert sum(r["loss"] for r in theirs) / 2 == pytest.approx(mine["loss"], rel=1e-6)
        for field in ("grad_norm", "grad_norm_after", "update_norm", "param_norm"):
            assert [r[field] for r in theirs] == pytest.approx([mine[field]] * 2, rel=1e-5), field
