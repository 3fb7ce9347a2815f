"""What goes wrong around a recorder: broken scripts, full disks, lost files, a second recorder."""

from __future__ import annotations

import asyncio
import errno
import io
import os
import time
from pathlib import Path
from typing import Any

import pytest

from core import events as ev
from core.errors import LostError, PilotageError, SessionError
from core.recorder import Recorder
from sessions.log import EventLog
from tests.core.recorder.recording import Console, make, record, recording
from tests.core.recorder.test_recorder import pending, said


async def test_a_broken_script_fails_the_agent_with_a_sentence(tmp_path: Path) -> None:
    path = make(tmp_path, '[[step]]\nsya = "typo"\n')
    state = await record(path)
    assert isinstance(state.agent_end, ev.AgentFailed)
    assert "agent.toml, line 1, step 1" in state.agent_end.error


async def test_a_fault_of_the_driver_ends_only_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from core.agents.scripted import ScriptedDriver

    async def broken(self: Any, bridge: Any) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(ScriptedDriver, "run", broken)
    path = make(tmp_path, '[[step]]\nsay = "one"\n')
    state = await record(path)
    assert isinstance(state.agent_end, ev.AgentFailed)
    assert "ZeroDivisionError: oops" in state.agent_end.error
    assert not state.recorder_up and state.runs  # the reference was recorded all the same
    assert "Traceback" in (path.parent / "recorder.log").read_text()


async def test_one_recorder_per_session(tmp_path: Path) -> None:
    from core.process import recorder_alive

    path = make(tmp_path, '[[step]]\nask = "wait"\n')
    assert not recorder_alive(path.parent)
    with Console(path) as console:
        async with recording(path) as recorder:
            await console.until(pending)
            assert recorder_alive(path.parent)
            with pytest.raises(PilotageError, match="is running already"):
                await record(path)
            recorder.stop("test")
        assert not recorder_alive(path.parent)
        assert console.kinds().count("recorder.started") == 1


class FullDisk:
    """A log whose disk is full for some appends, then has room again."""

    def __init__(self, path: Path, when: Any, times: int) -> None:
        self._log = EventLog.open(path)
        self._when, self.left = when, times

    def append(self, *new: ev.NewEvent) -> list[ev.Event]:
        if self.left and any(self._when(n.body) for n in new):
            self.left -= 1
            raise SessionError("The disk is full.")
        return self._log.append(*new)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


async def test_a_full_disk_that_is_cleared_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path, "[[step]]\nrun = true\n")
    log = FullDisk(path, lambda body: isinstance(body, ev.RunOutput), times=2)
    state = await record(path, log=log)
    log.close()
    assert log.left == 0 and state.phase == "finished"
    assert [line.text for line in state.attempts[0].lines][-1] == "acc 0.9"
    trouble = (path.parent / "recorder.log").read_text()
    assert "The disk is full." in trouble and "nothing was lost" in trouble


async def test_a_disk_that_stays_full_ends_no_run_and_keeps_none_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run goes to its own end; only then does the recorder give up."""
    monkeypatch.setattr("core.recorder.journal.PATIENCE_S", 0.0)
    done = tmp_path / "done"
    code = f"print('x' * 70, flush=True)\nprint(('y' * 99 + chr(10)) * 40000)\nopen({str(done)!r}, 'w')"
    path = make(tmp_path, "[[step]]\nrun = true\n", {"train.py": code})
    log = FullDisk(path, lambda body: isinstance(body, ev.RunOutput), times=10_000)
    with pytest.raises(PilotageError, match="disk is full"):
        await asyncio.wait_for(record(path, log=log), 60)
    log.close()
    assert done.exists()
    assert "Gave up" in (path.parent / "recorder.log").read_text()


async def test_a_session_without_a_word_from_anybody_ends_after_its_grace(tmp_path: Path) -> None:
    path = make(tmp_path, '[[step]]\nsay = "hi"\n', config="[recorder]\ngrace_s = 0.2\n")
    state = await record(path, linger_s=None)
    assert state.over


async def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    path = make(tmp_path, '[[step]]\nrun = "no-such-program --x"\nif_failed = "no"\n')
    state = await record(path)
    run = state.attempts[0]
    assert run.ended is not None and run.ended.reason == "not started"
    assert "no-such-program" in run.ended.text and said(state) == ["no"]


async def test_the_runs_have_the_operators_pythonpath_moved_to_the_worktree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "proj"
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(project / "lib"), "/elsewhere", "."]))
    code = "import os\nprint('path', os.environ['PYTHONPATH'])\n"
    path = make(tmp_path, "[[step]]\nrun = true\n", {"train.py": code})
    state = await record(path)
    shown = state.attempts[0].lines[0].text.split()[1].split(os.pathsep)
    assert shown[1:] == [str(path.parent / "worktree" / "lib"), "/elsewhere", "."]


def test_a_disk_too_full_for_a_word_does_not_end_the_recorder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its standard error is its own log, on the same disk."""
    path = make(tmp_path, '[[step]]\nsay = "x"\n')

    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    with EventLog.open(path) as log:
        monkeypatch.setattr("sys.stderr", Full())
        recorder = Recorder(log, path.parent)
        notes = path.parent / "recorder.log"
        notes.symlink_to("/dev/full")
        recorder.note("first")
        recorder.note("second")
        notes.unlink()
        recorder.note("third")
        monkeypatch.undo()
        assert [line.split()[-1] for line in notes.read_text().splitlines()] == [
            "first",
            "second",
            "third",
        ]


async def test_a_deleted_session_ends_its_recorder_at_once(tmp_path: Path) -> None:
    path = make(tmp_path, '[[step]]\nrun = "python forever.py"\n')
    with Console(path) as console:
        begin = time.monotonic()

        async def delete() -> None:
            async with recording(path):
                await console.until(lambda s: s.running and s.running.lines)
                path.unlink()

        with pytest.raises(LostError, match="was deleted"):
            await delete()
        assert time.monotonic() - begin < 40
    assert "event lost: " in (path.parent / "recorder.log").read_text()
