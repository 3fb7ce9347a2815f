"""The output of several ranks: kept apart, readable together, and nothing of it lost."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from pathlib import Path

import pytest

from core.runs.items import Ended, Output
from core.runs.launcher import Launcher, RunSpec
from core.runs.rank_pipes import RankPipes
from tests.core.runs.test_launcher import play, spec

RANKS = """
import os, subprocess, sys
if "RANK" not in os.environ:
    from_env = [
        subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, "RANK": str(r), "WORLD_SIZE": "2"})
        for r in range(2)
    ]
    print("parent waits", flush=True)
    sys.exit(max(p.wait() for p in from_env))
"""


async def lines_of(wanted: RunSpec) -> tuple[dict[tuple[str, str], list[str]], Ended]:
    items, end = await play(wanted)
    found: dict[tuple[str, str], list[str]] = {}
    for item in items:
        if isinstance(item, Output):
            found.setdefault((item.rank, item.stream), []).extend(item.lines)
    return found, end


def probed(tmp_path: Path, program: str, *arguments: str, **more: object) -> RunSpec:
    path = tmp_path / "prog.py"
    path.write_text(program)
    command = [sys.executable, *arguments, str(path)]
    return spec(tmp_path, command, probe="light", probe_dir=tmp_path / "p", **more)


async def test_each_rank_has_its_own_lines_whatever_both_write_at_once(tmp_path: Path) -> None:
    program = RANKS + (
        "rank = os.environ['RANK']\n"
        "for i in range(300):\n"
        "    for part in (f'rank {rank} ', f'line {i} ', 'end' + chr(10)):\n"
        "        os.write(1, part.encode())\n"
        "print(f'rank {rank} complains', file=sys.stderr)\n"
        "subprocess.run(['sh', '-c', f'echo inherited {rank}; echo device {rank} > /dev/stderr'])\n"
    )
    found, end = await lines_of(probed(tmp_path, program))
    assert end.exit_code == 0
    for rank in ("0", "1"):
        expected = [f"rank {rank} line {i} end" for i in range(300)]
        assert found[rank, "stdout"] == [*expected, f"inherited {rank}"]
        assert found[rank, "stderr"] == [f"rank {rank} complains", f"device {rank}"]
    assert found["", "stdout"] == ["parent waits"]


async def test_what_a_rank_said_before_it_died_is_there(tmp_path: Path) -> None:
    program = RANKS + (
        "import signal\n"
        "print('last words of', os.environ['RANK'], end='', flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    found, _ = await lines_of(probed(tmp_path, program))
    assert found["0", "stdout"] == ["last words of 0"]
    assert found["1", "stdout"] == ["last words of 1"]


async def test_a_path_longer_than_an_address_may_be(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    found, _ = await lines_of(probed(deep, RANKS + "print('hi')\n"))
    assert found["0", "stdout"] == found["1", "stdout"] == ["hi"]


async def test_spawned_processes_are_told_apart_by_pid(tmp_path: Path) -> None:
    program = (
        "import multiprocessing as mp, os\n"
        "def work(i):\n    print('child', i, os.getpid(), flush=True)\n"
        "if __name__ == '__main__':\n"
        "    print('main', flush=True)\n"
        "    ctx = mp.get_context('spawn')\n"
        "    some = [ctx.Process(target=work, args=(i,)) for i in range(2)]\n"
        "    [p.start() for p in some]; [p.join() for p in some]\n"
    )
    found, _ = await lines_of(probed(tmp_path, program))
    assert found["", "stdout"] == ["main"]
    children = {rank: lines for (rank, _), lines in found.items() if rank}
    assert len(children) == 2
    for rank, (line,) in children.items():
        assert rank == f"pid {line.split()[-1]}"


async def test_one_process_alone_stays_on_the_shared_pipe(tmp_path: Path) -> None:
    found, _ = await lines_of(probed(tmp_path, "print('alone')\n"))
    assert found == {("", "stdout"): ["alone"]}


async def test_a_rank_whose_output_goes_elsewhere_is_left_alone(tmp_path: Path) -> None:
    program = (
        "import os, subprocess, sys\n"
        "if 'RANK' in os.environ:\n    print('to the file'); sys.exit()\n"
        "env = {**os.environ, 'RANK': '0', 'WORLD_SIZE': '2'}\n"
        "with open('log.txt', 'w') as file:\n"
        "    subprocess.run([sys.executable, *sys.argv], env=env, stdout=file)\n"
        "done = subprocess.run([sys.executable, *sys.argv], env=env, capture_output=True, text=True)\n"
        "print('captured', done.stdout)\n"
    )
    found, _ = await lines_of(probed(tmp_path, program))
    assert found == {("", "stdout"): ["captured to the file", ""]}
    assert (tmp_path / "log.txt").read_text() == "to the file\n"


async def test_without_an_answer_all_stays_on_the_shared_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: RankPipes) -> None:
        while self._socket is not None:
            try:
                self._socket.accept()[0].close()
            except OSError:
                return

    monkeypatch.setattr(RankPipes, "take_waiting", broken)
    found, end = await lines_of(
        probed(tmp_path, RANKS + "os.write(1, b'rank %s\\n' % os.environb[b'RANK'])\n")
    )
    assert end.exit_code == 0
    assert sorted(found["", "stdout"]) == ["parent waits", "rank 0", "rank 1"]


async def test_strange_messages_are_refused(tmp_path: Path) -> None:
    taken: list[tuple[str, int, str]] = []

    def attach(fd: int, stream: str, pid: int, rank: str) -> None:
        os.close(fd)
        taken.append((stream, pid, rank))

    pipes = RankPipes(tmp_path, attach)
    assert pipes.open()
    assert pipes.path.stat().st_mode & 0o777 == 0o600
    read, write = os.pipe()
    file = os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
    try:
        good = {"pid": 7, "rank": 1, "streams": ["stdout"]}
        for text, fd, answer in (
            (json.dumps(good), read, b"+"),
            (json.dumps(good), file, b""),  # no pipe
            (json.dumps({**good, "streams": ["stdout", "stderr"]}), read, b""),
            (json.dumps({**good, "streams": [["stdout"]]}), read, b""),
            (json.dumps({**good, "pid": "x"}), read, b""),
            ("[" * 4000, read, b""),
            ("nonsense", read, b""),
        ):
            assert await _knock(pipes.path, text, fd) == answer
    finally:
        pipes.close()
        for fd in (read, write, file):
            os.close(fd)
    assert taken == [("stdout", 7, "1")]
    assert not pipes.path.exists()


async def _knock(path: Path, text: str, fd: int) -> bytes:
    def send() -> bytes:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
            line.settimeout(10)
            line.connect(str(path))
            socket.send_fds(line, [text.encode()], [fd])
            return line.recv(1)

    return await asyncio.to_thread(send)


async def test_a_directory_that_takes_no_socket_costs_nothing(tmp_path: Path) -> None:
    pipes = RankPipes(tmp_path / "gone", lambda *_: None)
    assert not pipes.open()
    pipes.close()


async def test_many_ranks_at_once_come_in_batches(tmp_path: Path) -> None:
    """Eight ranks that talk in turn must not make an event a line."""
    program = RANKS.replace("range(2)", "range(8)") + (
        "for i in range(50): print('line', i, flush=True)\n"
    )
    handle = await Launcher().start(probed(tmp_path, program))
    outputs = [item async for item in handle if isinstance(item, Output)]
    lines = [x for o in outputs for x in o.lines if x.startswith("line")]
    assert len(lines) == 400
    for rank in range(8):
        own = [x for o in outputs if o.rank == str(rank) for x in o.lines]
        assert own == [f"line {i}" for i in range(50)]


async def test_torchrun_with_a_rank_that_crashes_at_once(tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text(
        "import os, sys, time\n"
        "rank = os.environ['RANK']\n"
        "print('hello from', rank)\n"
        "if rank == '1':\n    raise ValueError('rank one is broken')\n"
        "print('waiting', end='', flush=True)\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node=2", "prog.py"]
    wanted = spec(
        tmp_path,
        command,
        probe="light",
        probe_dir=tmp_path / "p",
        env={"OMP_NUM_THREADS": "1"},
        time_limit_s=120,
    )
    found, end = await lines_of(wanted)
    assert (end.reason, end.exit_code) == ("exited", 1)
    assert found["0", "stdout"] == ["hello from 0", "waiting"]
    assert found["1", "stdout"] == ["hello from 1"]
    assert found["1", "stderr"][0] == "Traceback (most recent call last):"
    assert found["1", "stderr"][-1] == "ValueError: rank one is broken"
    assert ("0", "stderr") not in found or "rank one" not in " ".join(found["0", "stderr"])
    assert any("prog.py FAILED" in line for line in found["", "stderr"])  # torchrun's own words
