"""kill -9 of the real, detached recorder: no event lost, no process left, and it goes on."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from core import events as ev
from core.process import recorder_alive
from sessions.log import EventLog
from sessions.opening import start
from tests.core.recorder.recording import Console, make
from tests.core.recorder.test_recorder import alive, running, said

SCRIPT = """
[[step]]
say = "one"
[[step]]
run = "python forever.py"
[[step]]
say = "three"
"""


async def gone(pid: int) -> bool:
    for _ in range(1000):
        if not alive(pid):
            return True
        await asyncio.sleep(0.02)
    return False


async def test_kill_9_loses_nothing_and_the_next_start_says_what_was_cut_off(
    tmp_path: Path,
) -> None:
    path = make(tmp_path, SCRIPT)
    with Console(path) as console:
        await asyncio.to_thread(start, path)
        recorder = (await console.until(lambda s: s.recorder_pid),)[0]
        run = await console.until(running("forever"))
        child = int(run.lines[0].text.split()[1])
        assert os.getsid(recorder) == recorder  # a session of its own, so no terminal's
        os.kill(recorder, signal.SIGKILL)
        assert await gone(run.started.pid) and await gone(child)
        acknowledged = [e.event_id for e in console.log.events()]
        assert console.look().phase == "working"  # the log alone can't know
        assert not recorder_alive(path.parent)

        await asyncio.to_thread(start, path)
        await console.until(lambda s: s.recoveries)
        events = list(console.log.events())
        assert [e.event_id for e in events][: len(acknowledged)] == acknowledged
        ended = console.look().runs[run.run_id].ended
        assert ended is not None and ended.reason == "cut off"
        _, recovered = console.state.recoveries[0]
        assert recovered.cut_off_runs == [run.run_id] and len(recovered.cut_off_calls) == 1
        assert f"run #{run.number}" in recovered.text
        kinds = [e.kind for e in events[len(acknowledged) :]]
        assert kinds[:3] == ["run.ended", "recorder.recovered", "recorder.started"]

        await console.until(lambda s: running("forever")(s) if len(s.attempts) == 2 else None)
        console.act(ev.OperatorRequested("stop run", author="ana"))
        await console.until(lambda s: s.agent_end)
        assert said(console.state) == ["one", "three"]
        console.act(ev.OperatorRequested("stop session", author="ana"))
        await console.until(lambda s: s.over)
        assert await gone(console.state.recorder_pid)
    with EventLog.read(path) as log:
        assert [e.seq for e in log.events()] == list(range(1, log.last_seq() + 1))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_in_good_order(tmp_path: Path, number: signal.Signals) -> None:
    path = make(tmp_path, SCRIPT)
    with Console(path) as console:
        await asyncio.to_thread(start, path)
        run = await console.until(running("forever"))
        os.kill(console.state.recorder_pid, signal.SIGHUP)  # a line that drops ends nothing
        os.kill(console.state.recorder_pid, number)
        await console.until(lambda s: not s.recorder_up)
        assert console.bodies(ev.RecorderStopped)[0].reason == f"signal {number.name}"
        ended = console.state.runs[run.run_id].ended
        assert ended is not None and ended.reason == "stopped"
        assert await gone(console.state.recorder_pid) and await gone(run.started.pid)
        assert not console.state.recoveries
