"""Light mode writes the records of several steps together: when, and that none is lost."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from core.runs import probe_setup
from tests.core.runs.interpreters import each_python

# Steps of next to no time, so that the batch is what decides when a record is written.
PROGRAM = """
import os, sys, time, torch

def written():
    with open(os.environ["PILOTAGE_PROBE_OUT"] + "/%d.jsonl" % os.getpid()) as file:
        return file.read().count('"k":"step"')

def step():
    optimizer.zero_grad()
    loss = model(torch.ones(1, 2)).sum()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    losses.append(loss.item())

losses = []
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def run(tmp_path: Path, python: str, program: str, **patches: str) -> tuple[Any, list[Any]]:
    """(process, records of each file in it as they stand there); patches of ``batch.py``."""
    (tmp_path / "program.py").write_text(PROGRAM + program)
    env = probe_setup.install(tmp_path)
    part = tmp_path / "probe" / "pilotage_probe" / "batch.py"
    text = part.read_text()
    for name, value in patches.items():
        (old,) = [line for line in text.splitlines() if line.startswith(f"{name} = ")]
        text = text.replace(old, f"{name} = {value}")
    part.write_text(text)
    done = subprocess.run(
        [python, "program.py"],
        cwd=tmp_path,
        env={**os.environ, **env, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    files = probe_setup.records_dir(tmp_path).glob("*.jsonl")
    return done, [[json.loads(line) for line in path.read_text().splitlines()] for path in files]


@each_python
def test_every_step_is_written_once_and_in_order(tmp_path: Path, python: str) -> None:
    program = """
seen = []
for _ in range(60):
    step()
    seen.append(written())
for _ in range(5):
    step()
print(seen, losses, sep="\\n")
"""
    done, (records,) = run(tmp_path, python, program, EVERY_S="1e9")
    assert done.stderr == ""
    seen, losses = map(json.loads, done.stdout.splitlines())
    # The first ten at once, each when the next step begins; from there on sixteen together.
    assert seen[:12] == [*range(11), 10]
    assert set(seen) == {*range(11), 26, 42, 58}
    steps = [r for r in records if r["k"] == "step"]
    assert [s["n"] for s in steps] == [s["optimizer_n"] for s in steps] == [*range(1, 66)]
    assert [s["loss"] for s in steps] == losses
    assert [s["signature"] for s in steps] == ["B C(1) S Z"] * 64 + ["B C(1) S"]
    assert all(s["t"] < after["t"] for s, after in itertools.pairwise(steps))
    assert all(abs(s["wall"] - s["t"] - steps[0]["wall"] + steps[0]["t"]) < 0.1 for s in steps)
    assert (records[-1]["k"], records[-1]["steps"]) == ("finish", 65)


@each_python
def test_a_slow_step_is_written_at_once(tmp_path: Path, python: str) -> None:
    program = """
for _ in range(12):
    step()
print(written())
"""
    done, _ = run(tmp_path, python, program, EVERY_S="0.0")
    assert (done.stdout, done.stderr) == ("11\n", "")


@each_python
def test_what_waits_is_written_before_a_fork_and_by_one_process(
    tmp_path: Path, python: str
) -> None:
    program = """
for _ in range(20):
    step()
before = written()
child = os.fork()
if not child:
    step()
    os._exit(0)
os.waitpid(child, 0)
print(before, written())
step()
raise KeyError("the end")
"""
    done, files = run(tmp_path, python, program, EVERY_S="1e9")
    assert done.stdout == "10 19\n"
    parent, child = sorted(files, key=len, reverse=True)
    assert [r["n"] for r in parent if r["k"] == "step"] == [*range(1, 22)]
    assert [r["n"] for r in child if r["k"] == "step"] == [1]
    assert parent[-1]["reason"] == "exception: KeyError"


@each_python
def test_what_waits_is_written_before_other_records_and_by_a_beat(
    tmp_path: Path, python: str
) -> None:
    program = """
from pilotage_probe import beat, process
for _ in range(15):
    step()
assert written() == 10
process.write("moved", root="Linear")
assert written() == 14
step()
beat.EVERY_S = 0.1
beat.stop()
process.beating = False
step()  # starts a thread that waits no longer than that
until = time.monotonic() + 60
while written() < 16 and time.monotonic() < until:
    time.sleep(0.02)
print(written())
os._exit(0)
"""
    done, (records,) = run(tmp_path, python, program, EVERY_S="1e9")
    assert (done.stdout, done.stderr) == ("16\n", "")
    kinds = [r["k"] for r in records if r["k"] in ("step", "moved", "beat")]
    assert kinds[:16] == ["step"] * 14 + ["moved", "step"]
    assert [r["n"] for r in records if r["k"] == "step"] == [*range(1, 18)]


@each_python
def test_a_limit_of_the_file_lets_in_what_fits(tmp_path: Path, python: str) -> None:
    program = """
import resource
for _ in range(15):
    step()
size = os.path.getsize(os.environ["PILOTAGE_PROBE_OUT"] + "/%d.jsonl" % os.getpid())
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1200, size + 1200))
from pilotage_probe import batch, process
process.writer.asked = 0
batch.flush(process.writer)
print(written(), process.writer.dropped)
os._exit(0)
"""
    done, (records,) = run(tmp_path, python, program, EVERY_S="1e9")
    fitted, dropped = map(int, done.stdout.split())
    assert 10 < fitted < 14
    assert fitted + dropped == 14
    assert [r["n"] for r in records if r["k"] == "step"] == [*range(1, fitted + 1)]


@each_python
def test_no_tensor_is_held_by_what_waits(tmp_path: Path, python: str) -> None:
    program = """
import gc, weakref
for _ in range(15):
    step()
optimizer.zero_grad()
loss = model(torch.ones(1, 2)).sum()
loss.backward()
norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
optimizer.step()
refs = [weakref.ref(loss), weakref.ref(norm)]
del loss, norm
step()
assert written() == 10
refs.append(weakref.ref(model.weight))
del model, optimizer
print([ref() is None for ref in refs])
"""
    done, _ = run(tmp_path, python, program, EVERY_S="1e9")
    assert (done.stdout, done.stderr) == ("[True, True, True]\n", "")
