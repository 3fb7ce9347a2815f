"""The same random numbers in each parity run, and on each device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.runs.records import ProbeErrorRecord

PROGRAM = (Path(__file__).parent / "programs" / "drawing.py").read_text()
XLA = {"PJRT_DEVICE": "CPU", "XLA_FLAGS": "--xla_backend_optimization_level=0"}


def _drawn(run: Callable[..., Any], where: Path, device: str) -> dict[str, list[float]]:
    where.mkdir()
    done = run(where, PROGRAM, device, mode="parity", env=XLA)
    assert done.code == 0, done.err
    assert done.of(ProbeErrorRecord) == []
    lines = [line.split("\t") for line in done.out.splitlines() if "\t" in line]
    return {words[0]: [float(word) for word in words[1:]] for words in lines}


@pytest.mark.xla
def test_a_device_draws_what_the_host_draws(run: Callable[..., Any], tmp_path: Path) -> None:
    host = _drawn(run, tmp_path / "cpu", "cpu")
    assert len(host) == 28
    assert len({tuple(numbers) for numbers in host.values()}) == 28
    # Neither workers nor what was drawn in between changes what a sample is made of.
    first, second = host["batches, 0 workers"], host["batches, 2 workers"]
    assert len(first) == len(second) == 5
    device = _drawn(run, tmp_path / "xla", "xla")
    assert device.keys() == host.keys()
    for name, numbers in host.items():
        within = 1e-4 if name.startswith("loss") else 1e-6  # what is computed, or what is drawn
        assert device[name] == pytest.approx(numbers, rel=within), name


def test_seeds_are_set_where_every_program_passes(run: Callable[..., Any], tmp_path: Path) -> None:
    program = """
import random, sys, numpy, torch
if sys.argv[1:] == ["else"]:  # another program has drawn other numbers by here
    torch.rand(100), random.random(), numpy.random.rand()
seen = []
def look():
    seen.append((torch.rand(()).item(), random.random(), numpy.random.rand()))
net = torch.nn.Linear(2, 1)
if sys.argv[1:] == ["else"]:
    net = torch.nn.Sequential(torch.nn.Linear(2, 9), torch.nn.Linear(9, 1))
for _ in range(2):
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    look()
loader = torch.utils.data.DataLoader(torch.arange(9), shuffle=True)
if sys.argv[1:] == ["else"]:
    list(torch.utils.data.DataLoader(torch.arange(5)))  # an evaluation in between
for _ in range(2):
    seen.append([int(x) for x in loader])
    look()
torch.manual_seed(3)
seen.append(torch.rand(()).item())
generator = torch.Generator().manual_seed(3)
assert torch.rand((), generator=generator).item() == seen[-1]
assert len(set(map(str, seen))) == len(seen)
print(seen)
"""
    one = run(tmp_path, program, mode="parity")
    other = run(tmp_path, program, "else", mode="parity")
    assert one.code == other.code == 0, one.err + other.err
    assert one.out == other.out
