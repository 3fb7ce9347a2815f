"""How a run ended, told apart: by real signals where one can be had, else by what would be seen."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from core.runs import oom
from core.runs.endings import CAUSES, Exit, describe
from core.runs.items import Ended, Output
from core.runs.launcher import Launcher
from tests.core.runs.test_launcher import ROOT, play, spec

GIB = 2**30


@pytest.mark.parametrize(
    ("name", "cause", "word"),
    [
        ("SIGSEGV", "segmentation fault", "PYTHONFAULTHANDLER"),
        ("SIGBUS", "bus error", "/dev/shm"),
        ("SIGABRT", "abort", "stderr"),
        ("SIGINT", "interrupted", "Ctrl-C"),
        ("SIGTERM", "terminated", "which Pilotage did not send"),
        ("SIGKILL", "killed", "which Pilotage did not send"),
        ("SIGILL", "illegal instruction", "CPU"),
        ("SIGUSR1", "signal", "SIGUSR1"),
    ],
)
async def test_a_signal_of_somebody_else(tmp_path: Path, name: str, cause: str, word: str) -> None:
    _, end = await play(spec(tmp_path, f"kill -{name.removeprefix('SIG')} $$"))
    assert (end.reason, end.signal, end.cause) == ("signalled", name, cause)
    assert word in end.text and cause in CAUSES


async def test_a_shell_whose_child_was_killed(tmp_path: Path) -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    _, end = await play(spec(tmp_path, f'{sys.executable} -c "{code}"; exit $?'))
    assert (end.reason, end.exit_code, end.cause) == ("exited", 139, "segmentation fault")
    assert end.text.startswith("Exit code 139 is how a shell says that SIGSEGV ended its command.")


async def test_our_own_stop_is_not_somebody_elses_signal(tmp_path: Path) -> None:
    handle = await Launcher().start(
        spec(tmp_path, "trap '' TERM; echo on; while :; do sleep 1; done")
    )
    end: object = None
    async for end in handle:
        if isinstance(end, Output):
            await handle.stop(0.1)
    assert isinstance(end, Ended)
    assert (end.reason, end.signal, end.cause) == ("stopped", "SIGKILL", "")
    assert end.text == "It did not end within 0.1 s of SIGTERM and was killed."


def killed(**seen: object) -> Ended:
    rss = seen.pop("rss", 1 * GIB)
    return describe(Exit(number=signal.SIGKILL, **seen), max_rss=rss)  # type: ignore[arg-type]


def test_the_kernels_count_makes_it_out_of_memory() -> None:
    end = killed(oom_kills=1, oom_where="cgroup", limit=16 * GIB, rss=15 * GIB)
    assert end.cause == "out of memory"
    assert "15.0 GiB resident of 16.0 GiB" in end.text and "smaller batch" in end.text
    assert killed(oom_kills=1, oom_where="machine").cause == "out of memory"
    assert killed(oom_pids=[7]).cause == "out of memory"


def test_without_a_count_memory_near_the_limit_makes_it_probable() -> None:
    assert killed(limit=10 * GIB, rss=9 * GIB).cause == "probably out of memory"
    end = killed(oom_kills=0, oom_where="cgroup", limit=10 * GIB, rss=2 * GIB)
    assert end.cause == "killed"
    assert "counts no process killed for want of memory" in end.text


def test_a_child_that_the_kernel_killed_is_named_although_the_parent_exits() -> None:
    end = describe(Exit(code=1, oom_kills=2, oom_where="cgroup"))
    assert (end.reason, end.exit_code, end.cause) == ("exited", 1, "out of memory")
    assert describe(Exit(code=1, oom_kills=2, oom_where="machine")).cause == ""
    assert describe(Exit(code=0, oom_kills=2, oom_where="cgroup")).cause == ""
    assert describe(Exit(code=137, oom_kills=1, oom_where="cgroup")).cause == "out of memory"


def test_codes_of_the_shell() -> None:
    assert "did not find" in describe(Exit(code=127)).text
    assert describe(Exit(code=3)).text == "" and describe(Exit(code=255)).cause == ""


def test_the_kernels_counters_can_be_read_here() -> None:
    limit = oom.limit_bytes()
    assert limit > 64 << 20
    counted = oom.kills()
    assert counted is None or (counted[0] >= 0 and counted[1] in ("cgroup", "machine"))
    assert oom.KernelLog().killed({os.getpid()}) == []


@pytest.mark.parametrize("version", [1, 2])
def test_the_counter_of_the_nearest_group_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    point = tmp_path / "cg"
    group = point / "job" / "inner"
    group.mkdir(parents=True)
    name = "memory.events" if version == 2 else "memory.oom_control"
    limit = "memory.max" if version == 2 else "memory.limit_in_bytes"
    (group / name).write_text("low 0\noom 1\noom_kill 3\n")
    (point / "job" / limit).write_text("1073741824\n")
    (group / limit).write_text("max\n")
    kind, options = ("cgroup2", "rw") if version == 2 else ("cgroup", "rw,memory")
    files = {
        "/proc/self/cgroup": "0::/job/inner\n" if version == 2 else "4:memory:/job/inner\n0::/\n",
        "/proc/self/mountinfo": f"30 20 0:26 / {point} rw - {kind} none {options}\n",
        "/proc/meminfo": "MemTotal: 4194304 kB\n",
    }
    real = oom._read
    monkeypatch.setattr(oom, "_read", lambda path: files.get(path) or real(path))
    assert oom.kills() == (3, "cgroup")
    assert oom.limit_bytes() == GIB


# A process of its own: the kernel ends the largest of a group, which must not be the tests.
IN_A_GROUP = """
import asyncio, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from core.runs.launcher import Launcher, RunSpec
Path(sys.argv[2], "cgroup.procs").write_text(str(os.getpid()))

async def main():
    hold = "x = bytearray(1000 << 20); x[::4096] = b'1' * len(x[::4096])"
    handle = await Launcher().start(RunSpec("oom-" + sys.argv[3], [sys.executable, "-c", hold], Path("/")))
    async for item in handle:
        pass
    print(handle.ended.reason, handle.ended.signal, handle.ended.cause, handle.ended.text, sep="|")

asyncio.run(main())
"""


def test_a_run_that_the_kernel_kills_says_so() -> None:
    """A control group of 256 MiB, where this machine lets us make one."""
    group = Path(f"/sys/fs/cgroup/memory/pilotage-test-{os.getpid()}")
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(256 << 20))
    except OSError:
        pytest.skip("no control group of our own can be made here")
    try:
        command = [sys.executable, "-c", IN_A_GROUP, str(ROOT), str(group), str(os.getpid())]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    finally:
        group.rmdir()
    reason, name, cause, text = done.stdout.strip().split("|")
    assert (reason, name, cause) == ("signalled", "SIGKILL", "out of memory")
    assert "of 0.2 GiB" in text
