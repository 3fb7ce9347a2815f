"""Real processes: how they end, what they say, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from core.errors import PilotageError
from core.runs import environment, leftovers, processes
from core.runs.launcher import (
    BATCH_LINES,
    Ended,
    Item,
    Launcher,
    Notice,
    Output,
    Progress,
    Records,
    RunHandle,
    RunSpec,
    Usage,
)

ROOT = Path(__file__).resolve().parents[3]

# Leaves a child, one in a session of its own, and a daemon that ignores SIGTERM.
LITTER = """
import os, signal, subprocess, sys, time
subprocess.Popen(["sleep", "600"])
subprocess.Popen(["sleep", "600"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.environ.clear()
        os.close(1); os.close(2)
        print_ready = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
        time.sleep(600)
    os._exit(0)
os.wait()
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
print("littered", flush=True)
if sys.argv[2] == "stay":
    time.sleep(600)
"""


def spec(tmp_path: Path, command: Any, **more: Any) -> RunSpec:
    return RunSpec(f"run-{uuid.uuid4().hex[:8]}", command, tmp_path, **more)


async def play(wanted: RunSpec) -> tuple[list[Item], Ended]:
    handle = await Launcher().start(wanted)
    items = [item async for item in handle]
    end = items[-1]
    assert isinstance(end, Ended)
    assert alive(wanted.run_id) == []
    return items, end


def alive(run_id: str) -> list[int]:
    return processes.marked(leftovers.RUN_VARIABLE, run_id)


def said(items: list[Item], stream: str) -> list[str]:
    return [x for i in items if isinstance(i, Output) and i.stream == stream for x in i.lines]


async def until_gone(run_id: str, *also: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if not alive(run_id) and not any(Path(f"/proc/{pid}").exists() for pid in also):
            return
        await asyncio.sleep(0.02)
    pytest.fail(f"still there: {alive(run_id)} {also}")


async def littered(handle: RunHandle) -> None:
    async for item in handle:
        if isinstance(item, Output) and "littered" in item.lines:
            return
    pytest.fail("the run ended first")


# --- ends ------------------------------------------------------------------------------------


async def test_exit_code_and_both_streams(tmp_path: Path) -> None:
    items, end = await play(spec(tmp_path, "echo one; echo two >&2; exit 3"))
    assert (said(items, "stdout"), said(items, "stderr")) == (["one"], ["two"])
    assert (end.reason, end.exit_code, end.signal) == ("exited", 3, "")
    assert end.duration_s > 0
    assert end.max_rss_mb > 0


async def test_a_list_of_arguments_is_not_given_to_a_shell(tmp_path: Path) -> None:
    items, _ = await play(spec(tmp_path, ["printf", "%s", "$HOME; false"]))
    assert said(items, "stdout") == ["$HOME; false"]


async def test_death_by_signal_is_named(tmp_path: Path) -> None:
    _, end = await play(spec(tmp_path, "kill -SEGV $$"))
    assert (end.reason, end.exit_code, end.signal) == ("signalled", None, "SIGSEGV")


async def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    _, end = await play(spec(tmp_path, ["/nonexistent/python", "train.py"]))
    assert end.reason == "not started"
    assert "/nonexistent/python" in end.text


async def test_a_directory_that_does_not_exist_is_an_error_in_words(tmp_path: Path) -> None:
    with pytest.raises(PilotageError, match="does not exist"):
        await Launcher().start(spec(tmp_path / "gone", "true"))


async def test_stop_lets_a_handler_finish(tmp_path: Path) -> None:
    wanted = spec(tmp_path, "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 1; done")
    handle = await Launcher().start(wanted)
    items = []
    async for item in handle:
        items.append(item)
        if isinstance(item, Output) and "ready" in item.lines:
            await handle.stop(grace_s=10)
    end = items[-1]
    assert isinstance(end, Ended)
    assert said(items, "stdout") == ["ready", "saved"]
    assert (end.reason, end.exit_code) == ("stopped", 0)


async def test_stop_kills_what_ignores_it(tmp_path: Path) -> None:
    wanted = spec(tmp_path, [sys.executable, "-c", LITTER, str(tmp_path / "ready"), "stay"])
    handle = await Launcher().start(wanted)
    await littered(handle)
    family = processes.descendants(os.getpid())
    await handle.stop(grace_s=0.2)
    end = [item async for item in handle][-1]
    assert isinstance(end, Ended)
    assert end.reason == "stopped"
    await until_gone(wanted.run_id, *family)
    await handle.stop()  # harmless now


async def test_time_limit(tmp_path: Path) -> None:
    _, end = await play(spec(tmp_path, ["sleep", "600"], time_limit_s=0.2, stop_grace_s=1))
    assert (end.reason, end.signal) == ("time limit", "SIGTERM")
    assert end.duration_s < 10


# --- nothing is left -------------------------------------------------------------------------


async def test_grandchildren_end_with_a_run_that_ended_by_itself(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    _, end = await play(spec(tmp_path, [sys.executable, "-c", LITTER, str(ready), "go"]))
    assert (end.reason, end.exit_code, end.swept) == ("exited", 0, 3)
    assert processes.descendants(os.getpid()) == []


RECORDER = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from core.runs.launcher import Launcher, Output, RunSpec

async def main():
    command = [sys.executable, "-c", sys.argv[3], sys.argv[4], "stay"]
    handle = await Launcher().start(RunSpec(sys.argv[2], command, Path("/"), session_id="s-" + sys.argv[2]))
    async for item in handle:
        if isinstance(item, Output):
            print(*item.lines, flush=True)

asyncio.run(main())
"""


async def recorder_with_litter(tmp_path: Path) -> tuple[asyncio.subprocess.Process, str]:
    run_id = f"run-{uuid.uuid4().hex[:8]}"
    recorder = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", RECORDER, str(ROOT), run_id, LITTER, str(tmp_path / "ready")),
        stdout=asyncio.subprocess.PIPE,
    )
    assert recorder.stdout is not None
    assert await recorder.stdout.readline() == b"littered\n"
    return recorder, run_id


async def test_kill_9_of_the_recorder_leaves_no_process(tmp_path: Path) -> None:
    recorder, run_id = await recorder_with_litter(tmp_path)
    family = processes.descendants(recorder.pid)
    # The supervisor, the run, two sleeps and the daemon without an environment.
    assert len(family) == 5
    assert len(alive(run_id)) >= 3
    recorder.kill()
    await recorder.wait()
    await until_gone(run_id, *family)


async def test_leftovers_are_found_when_recorder_and_supervisor_were_both_killed(
    tmp_path: Path,
) -> None:
    recorder, run_id = await recorder_with_litter(tmp_path)
    family = processes.descendants(recorder.pid)
    marked = set(alive(run_id))
    supervisor = family[0]
    os.kill(supervisor, signal.SIGSTOP)  # so that it can't act between the two deaths
    recorder.kill()
    await recorder.wait()
    os.kill(supervisor, signal.SIGKILL)
    killed = await asyncio.to_thread(leftovers.kill_leftovers, "s-" + run_id, 0.0)
    assert set(killed) <= marked
    assert alive(run_id) == []
    for pid in set(family) - set(killed):  # the one that cleared its environment
        processes.signal_all([pid], signal.SIGKILL)
    await until_gone(run_id, *family)


async def test_kill_9_of_the_supervisor_ends_the_run_and_says_so(tmp_path: Path) -> None:
    wanted = spec(tmp_path, "sleep 600 & echo ready; sleep 600")
    handle = await Launcher().start(wanted)
    end: Item | None = None
    async for end in handle:
        if isinstance(end, Output):
            os.kill(handle._supervisor.pid, signal.SIGKILL)
    assert isinstance(end, Ended)
    assert end.reason == "cut off"
    await until_gone(wanted.run_id)


# --- output ----------------------------------------------------------------------------------


async def test_output_is_cleaned_and_progress_collapsed(tmp_path: Path) -> None:
    command = r"printf ' 1%%\r 2%%\r100%%\nbad \377 utf\n\033[31mred\033[0m\nno newline'"
    items, _ = await play(spec(tmp_path, command))
    assert said(items, "stdout") == ["100%", "bad \ufffd utf", "red", "no newline"]


async def test_an_unfinished_line_is_shown_as_progress(tmp_path: Path) -> None:
    handle = await Launcher().start(spec(tmp_path, r"printf '50%%\r'; sleep 600"))
    async for item in handle:
        if isinstance(item, Progress):
            assert item == Progress("stdout", "50%")
            await handle.stop(0)
    assert isinstance(handle.ended, Ended)


async def test_a_flood_arrives_whole_and_in_bounded_batches(tmp_path: Path) -> None:
    code = "for i in range(30000): print('line', i)"
    handle = await Launcher().start(spec(tmp_path, [sys.executable, "-c", code]))
    lines: list[str] = []
    async for item in handle:
        if isinstance(item, Output):
            assert len(item.lines) <= BATCH_LINES
            lines += item.lines
            if len(lines) == BATCH_LINES:
                await asyncio.sleep(0.3)  # a slow reader loses nothing
    assert lines == [f"line {i}" for i in range(30000)]


async def test_memory_of_the_tree_is_sampled(tmp_path: Path) -> None:
    hold = (
        "import time; x = bytearray(60 << 20); x[::4096] = b'1' * len(x[::4096]); time.sleep(600)"
    )
    command = f'{sys.executable} -c "{hold}" & {sys.executable} -c "{hold}"'
    handle = await Launcher().start(spec(tmp_path, command))
    end: Item | None = None
    async for end in handle:
        if isinstance(end, Usage) and end.rss_mb > 120:
            assert end.processes >= 3  # the shell and both
            await handle.stop(0)
    assert isinstance(end, Ended)
    assert end.max_rss_mb > 120


# --- environment and probe -------------------------------------------------------------------


async def test_ours_and_secrets_stay_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "PILOTAGE_HOME", "ANTHROPIC_API_KEY", "HF_TOKEN", "MY_PASSWORD"):
        monkeypatch.setenv(name, "secret-value")
    monkeypatch.setenv("XLA_FLAGS", "--kept")
    wanted = spec(tmp_path, "env; readlink /proc/$$/fd/0", env={"PJRT_DEVICE": "CPU"})
    handle = await Launcher().start(wanted)
    lines = said([item async for item in handle], "stdout")
    assert not [line for line in lines if "secret-value" in line]
    assert "XLA_FLAGS=--kept" in lines
    assert "PJRT_DEVICE=CPU" in lines
    assert f"PILOTAGE_RUN_ID={wanted.run_id}" in lines
    assert lines[-1] == "/dev/null"
    assert handle.stated_env["HF_TOKEN"] is None
    assert handle.stated_env["PJRT_DEVICE"] == "CPU"
    assert "XLA_FLAGS" not in handle.stated_env


async def test_an_explicit_addition_is_passed_even_if_it_looks_secret(tmp_path: Path) -> None:
    items, _ = await play(spec(tmp_path, "echo $HF_TOKEN", env={"HF_TOKEN": "given"}))
    assert said(items, "stdout") == ["given"]


async def test_records_of_the_probe_arrive(tmp_path: Path) -> None:
    wanted = spec(tmp_path, [sys.executable, "-c", "1"], probe="light", probe_dir=tmp_path / "p")
    items, end = await play(wanted)
    assert end.exit_code == 0
    kinds = [type(r).__name__ for i in items if isinstance(i, Records) for r in i.records]
    assert kinds == ["Hello", "FinishRecord"]


async def test_the_probe_adds_itself_and_nothing_else_to_the_path_of_a_run(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; print(*sys.path, sep=chr(10))"]
    plain, _ = await play(spec(tmp_path, command))
    probed, _ = await play(spec(tmp_path, command, probe="light", probe_dir=tmp_path / "p"))
    added = [x for x in said(probed, "stdout") if x not in said(plain, "stdout")]
    assert added == [str(tmp_path / "p" / "probe")]
    parts = {path.name for path in Path(added[0]).iterdir()}
    assert parts - {"__pycache__"} == {"sitecustomize.py", "pilotage_probe"}


def test_a_path_is_stated_without_the_operators_own() -> None:
    stated = environment.stated(
        {"PATH": "/usr/bin", "HOME": "/h"}, {"PATH": "/venv/bin:/usr/bin", "HOME": "/h", "X": "1"}
    )
    assert stated == {"PATH": "/venv/bin:$PATH", "X": "1"}


async def test_a_python_that_the_probe_cannot_follow_is_said(tmp_path: Path) -> None:
    code = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.02)"
    command = [sys.executable, "-I", "-c", code]
    handle = await Launcher().start(
        spec(tmp_path, command, probe="light", probe_dir=tmp_path / "p")
    )
    notices = []
    async for item in handle:
        if isinstance(item, Usage):
            (tmp_path / "go").touch()
        if isinstance(item, Notice):
            notices.append(item)
    (notice,) = notices
    assert notice.kind == "unwatched"
    assert "started with -I, which ignores PYTHONPATH" in notice.text
