"""What the probe does as a guest of a process: beats, records, backends, the time it takes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from core.runs import probe_setup
from core.runs.records import (
    BeatRecord,
    FinishRecord,
    Hello,
    Malformed,
    ModelRecord,
    ProbeErrorRecord,
    StepRecord,
    TpuRecord,
)
from core.runs.tail import RecordTail
from core.runs.unwatched import Process, command, judge, nothing, version
from tests.core.runs.interpreters import each_python
from tests.core.runs.interpreters import version as version_of


def run(tmp_path: Path, python: str, program: str, **env: str) -> Any:
    """(process, records) of a program under a probe that gives a beat after 0.2 s of silence."""
    (tmp_path / "program.py").write_text(program)
    given = probe_setup.install(tmp_path, env=env)
    beat = tmp_path / "probe" / "pilotage_probe" / "beat.py"
    assert "EVERY_S = 5.0" in beat.read_text()
    beat.write_text(beat.read_text().replace("EVERY_S = 5.0", "EVERY_S = 0.2"))
    done = subprocess.run(
        [python, "-W", "default", "program.py"],
        cwd=tmp_path,
        env={**os.environ, **env, **given, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    records = RecordTail(probe_setup.records_dir(tmp_path)).finish()
    assert not [r for r in records if isinstance(r, Malformed)]
    return done, records


def of(records: list[Any], cls: type[Any]) -> list[Any]:
    return [r for r in records if isinstance(r, cls)]


# The program waits until the beat that it needs has been written, and not a moment longer.
BEATS = """
import os, sys, threading, time, torch
from torch.utils.data import DataLoader, Dataset

def beats():
    with open(os.environ["PILOTAGE_PROBE_OUT"] + "/%d.jsonl" % os.getpid()) as file:
        return file.read().count('"k":"beat"')

def wait_for_a_beat():
    before, until = beats(), time.monotonic() + 60
    while beats() == before and time.monotonic() < until:
        time.sleep(0.02)

def step():
    optimizer.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()

model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step(); step(); step()
wait_for_a_beat()
if os.fork() == 0:
    os._exit(0)
os.wait()
print(threading.active_count(), [t.name for t in threading.enumerate()])
step()
wait_for_a_beat()
"""


@each_python
def test_a_silent_process_gives_beats(tmp_path: Path, python: str) -> None:
    done, records = run(tmp_path, python, BEATS)
    # Its thread is not to be seen, and Python 3.12 has nothing to warn of at the fork.
    assert (done.stdout, done.stderr) == ("1 ['MainThread']\n", "")
    beats = of(records, BeatRecord)
    assert {b.pid for b in beats} == {of(records, Hello)[0].pid}
    first, last = beats[0], beats[-1]
    assert (first.steps, last.steps) == (3, 4)
    assert first.since_step_s >= 0.2
    assert first.at.split("/")[-1].startswith("program.py:")
    assert first.at.endswith(" in wait_for_a_beat")
    assert first.rss_mb > 50
    assert (first.compiling, first.compiles, first.doing) == (None, None, None)
    assert of(records, FinishRecord)[-1].steps == 4


@each_python
def test_how_a_process_ends_is_recorded(tmp_path: Path, python: str) -> None:
    training = BEATS.partition("wait_for_a_beat()\nif")[0]
    _, records = run(tmp_path, python, training + "os._exit(3)")
    assert [(f.reason, f.steps) for f in of(records, FinishRecord)] == [("os._exit(3)", 3)]
    assert [s.n for s in of(records, StepRecord)] == [1, 2, 3]
    (tmp_path / "records" / f"{records[0].pid}.jsonl").unlink()

    end = "t = threading.Thread(target=lambda: sys.exit(9)); t.start(); t.join(); step()\n"
    end += "import signal; os.kill(os.getpid(), signal.SIGTERM)"
    done, records = run(tmp_path, python, training + end)
    assert done.returncode == -15
    assert of(records, FinishRecord) == []  # nothing is invented
    assert [s.n for s in of(records, StepRecord)] == [1, 2, 3]  # the fourth waits for its end


FAKE_TPU = '''
"""The surface of torch_tpu 0.2.0 that the probe reads, over the CPU."""
import datetime, sys, types

class Entry:
    compilation_duration = datetime.timedelta(seconds=0.25)

class Ops(types.ModuleType):
    misses = 0
    def _is_initialized(self): return True
    def _get_cache_misses(self): return self.misses
    def _get_device_count(self): return 4
    def _get_cache_stats(self): return types.SimpleNamespace(per_entry_stats=[Entry()] * self.misses)

ops = sys.modules["torch_tpu._internal.device._device_ops_backend"] = Ops("ops")
sync = sys.modules["torch_tpu._internal.sync"] = types.ModuleType("sync")
sync.is_materialized = lambda tensor: False
__version__ = "0.2.0"
'''


@each_python
def test_torch_tpu_is_read_by_the_same_records(tmp_path: Path, python: str) -> None:
    # Never run on a TPU: the real package has no mode without one.
    package = tmp_path / "lib" / "torch_tpu"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(FAKE_TPU)
    program = """
import torch, torch_tpu
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    torch_tpu.ops.misses += step < 2
    optimizer.step()
"""
    done, records = run(tmp_path, python, program, PYTHONPATH=str(tmp_path / "lib"))
    assert (done.returncode, done.stderr) == (0, "")
    assert of(records, ProbeErrorRecord) == []
    (tpu,) = of(records, TpuRecord)
    assert (tpu.version, tpu.devices) == ("0.2.0", None)
    steps = of(records, StepRecord)
    assert [(s.compiles, s.compile_s) for s in steps] == [(1, 0.25), (1, 0.25), (0, 0)]
    # What TorchTPU does not count is not said to be zero.
    assert {(s.executes, s.transfers, s.fallbacks) for s in steps} == {(None, None, None)}
    (end,) = of(records, FinishRecord)
    assert (end.compiles, end.compile_s, end.executes) == (2, 0.5, None)
    assert len(of(records, ModelRecord)) == 1


@each_python
def test_a_process_without_torch_loads_next_to_nothing(tmp_path: Path, python: str) -> None:
    program = "import sys; print(*sorted(sys.modules))"
    (tmp_path / "bare.py").write_text(program)
    bare = subprocess.run(
        [python, "-W", "default", "bare.py"], cwd=tmp_path, capture_output=True, text=True
    )
    done, records = run(tmp_path, python, program)
    new = {*done.stdout.split()} - {*bare.stdout.split()}
    new = {name for name in new if not name.startswith("pilotage_probe")}
    assert new <= {"sitecustomize", "atexit", "_json", "resource"}
    assert [f.reason for f in of(records, FinishRecord)] == ["exit"]


@each_python
def test_records_without_the_json_module_are_json(tmp_path: Path, python: str) -> None:
    program = 'raise SystemExit(2)  # \u2028 \\ " \x7f'
    done, records = run(tmp_path, python, program)
    assert done.returncode == 2
    assert of(records, Hello)[0].python.startswith(".".join(map(str, version_of(python))))


# --- which processes are not followed: the rule ----------------------------------------------


@pytest.mark.parametrize(
    ("line", "flags", "rest"),
    [
        ("python -I train.py -E", "I", ["train.py", "-E"]),
        ("python -Es -W ignore -X utf8 train.py", "Es", ["train.py"]),
        ("python -Wignore -uB -m pkg -S", "uB", ["-m", "", "pkg", "-S"]),
        ("python -cpass -I", "", ["-c", "pass", "-I"]),
        ("python -Bc pass", "B", ["-c", "", "pass"]),
        ("python - -I", "", ["-", "-I"]),
        ("python --check-hash-based-pycs always -S x", "S", ["x"]),
        ("python -X", "", []),
        ("python", "", []),
    ],
)
def test_command_lines_are_read_as_python_does(line: str, flags: str, rest: list[str]) -> None:
    found = command(line.split())
    assert (found.flags, list(found.rest)) == (frozenset(flags), rest)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("/usr/bin/python3.11", (3, 11)),
        ("python", ()),
        ("pypy3", (3,)),
        ("/usr/bin/pythonista", None),
        ("bash", None),
        ("", None),
    ],
)
def test_pythons_are_known_by_their_names(name: str, expected: Any) -> None:
    assert version(Process(1, argv=(name,))) == expected


def test_forks_and_helpers_of_a_watched_process_are_no_news() -> None:
    argv = ("python", "-I", "train.py")
    processes = [
        Process(1, argv=argv),
        Process(2, 1, argv),
        Process(3, 2, argv),
        Process(4, 1, ("python", "-c", "from multiprocessing.spawn import x"), pythonpath="/p"),
        Process(5, 1, ("python2.7", "old.py"), pythonpath="/p"),
        Process(6, 1, ("python", "x.py"), environ=False),
        Process(7, 1, ("python", "y.py"), pythonpath="/p", torch=True),
    ]
    found = dict(judge(processes, {1}, "/p"))
    assert set(found) == {5, 6, 7}
    assert "it is Python 2.7, and the probe needs 3.8" in found[5]
    assert "belongs to another user" in found[6]
    assert "it says nothing" in found[7]
    assert set(dict(judge(processes, set(), "/p"))) == {1, 2, 3, 5, 6, 7}


def test_work_that_is_done_elsewhere_is_named() -> None:
    text = nothing([Process(1, argv=("sh",)), Process(2, argv=("/usr/bin/docker", "run", "x"))])
    assert text is not None
    assert "docker starts its work in a container" in text
    assert nothing([Process(1, argv=("python",))]) is None
    assert nothing([]) is None
