"""SPMD over four virtual CPU devices: one process, four devices, and what is executed on all of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from core.runs import probe_setup

pytestmark = pytest.mark.xla

STEPS = 8
PROGRAM = f"""
import torch, torch_xla
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr

xr.use_spmd()
mesh = xs.Mesh(range(4), (4,), ("data",))
torch.manual_seed(0)
model = torch.nn.Linear(3, 1).to(torch_xla.device())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range({STEPS}):
    x = torch.randn(8, 3).to(torch_xla.device())
    xs.mark_sharding(x, mesh, ("data", None))
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    torch_xla.sync()
"""


def test_one_process_has_four_devices_and_its_executions_are_counted(tmp_path: Path) -> None:
    env = probe_setup.install(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={
            **os.environ,
            **env,
            "PJRT_DEVICE": "CPU",
            "CPU_NUM_DEVICES": "4",
            "OMP_NUM_THREADS": "1",
            "XLA_FLAGS": "--xla_backend_optimization_level=0",
        },
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    (file,) = probe_setup.records_dir(tmp_path).glob("*.jsonl")
    records = [json.loads(line) for line in file.read_text().splitlines()]
    (devices,) = [r["devices"] for r in records if r["k"] == "xla" and r.get("devices")]
    assert devices == ["CPU:0", "CPU:1", "CPU:2", "CPU:3"]
    steps = [r for r in records if r["k"] == "step"]
    assert [r["samples"] for r in steps] == [8] * STEPS  # the global batch
    assert "rank" not in steps[0] or steps[0]["rank"] is None
    (finish,) = [r for r in records if r["k"] == "finish"]
    assert finish["executes"] >= STEPS
    assert finish["errors"] == 0
