"""What the tests of the recorder share: tiny sessions, and waiting for events instead of time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

from core.config import SessionConfig, load
from core.events import Body, Event, NewEvent
from core.recorder import Recorder
from core.state import SessionState, fold
from sessions.log import EventLog
from sessions.opening import create

T = TypeVar("T")

TRAIN = """\
import sys, time
for step in range(3):
    print("loss", 1 / (step + 1), flush=True)
print("acc 0.9")
"""

FOREVER = """\
import subprocess, sys, time
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
print("child", child.pid, flush=True)
while True:
    time.sleep(0.05)
    print("tick", flush=True)
"""


METRIC = """\
name = "acc"
pattern = 'acc ([0-9.]+)'
"""


def make(
    tmp_path: Path,
    script: str,
    files: dict[str, str] | None = None,
    config: str = "",
    metric: str = METRIC,
) -> Path:
    """A new session on a project without torch; returns the path of its file."""
    project = tmp_path / "proj"
    project.mkdir()
    for name, text in {"train.py": TRAIN, "forever.py": FOREVER, **(files or {})}.items():
        (project / name).write_text(text)
    (tmp_path / "agent.toml").write_text(script)
    (tmp_path / "pilotage.toml").write_text(
        f"""
[project]
title = "tiny"
path = "proj"
[reference]
command = "python train.py"
[target]
command = "python train.py --device xla"
[metric]
{metric}
[agent]
script = "agent.toml"
speed = 0
verify_on_claim = true
{config}
"""
    )
    loaded: SessionConfig = load(tmp_path)
    return create(loaded, "0.0.test")


class Console:
    """A console of a test: appends operator's events, and waits for what the log says."""

    def __init__(self, path: Path) -> None:
        self.log = EventLog.open(path)
        self.state = SessionState()
        self.events: list[Event] = []

    def __enter__(self) -> Console:
        return self

    def __exit__(self, *_: object) -> None:
        self.log.close()

    def act(self, *bodies: Body) -> None:
        """Append what an operator does."""
        self.log.append(*(NewEvent(b, "console:test") for b in bodies))

    def look(self) -> SessionState:
        """The state as of now."""
        for event in self.log.events(after=self.state.seq):
            self.state.apply(event)
            self.events.append(event)
        return self.state

    async def until(self, what: Callable[[SessionState], T | None], limit_s: float = 60.0) -> T:
        """Wait until ``what`` finds something true in the state."""
        end = time.monotonic() + limit_s
        while True:
            if found := what(self.look()):
                return found
            if time.monotonic() > end:
                last = [f"{e.seq} {e.kind} {str(e.body)[:200]}" for e in self.events[-15:]]
                raise AssertionError("it did not come; the last events:\n" + "\n".join(last))
            await asyncio.sleep(0.02)

    def kinds(self) -> list[str]:
        """The kinds of all events."""
        self.look()
        return [e.kind for e in self.events]

    def bodies(self, cls: type[T]) -> list[T]:
        """All bodies of one kind."""
        self.look()
        return [e.body for e in self.events if isinstance(e.body, cls)]


@contextlib.asynccontextmanager
async def recording(path: Path, log: Any = None, **more: Any) -> AsyncIterator[Recorder]:
    """A recorder at work in this process; stopped at the end if it still is."""
    own = EventLog.open(path)
    recorder = Recorder(log or own, path.parent, **{"linger_s": 0.0, **more})
    task = asyncio.create_task(recorder.run())
    recorder.task = task  # type: ignore[attr-defined]
    try:
        yield recorder
        await asyncio.wait_for(task, 60)
    finally:
        if not task.done():
            recorder.stop("the test is over")
            await asyncio.wait({task}, timeout=20)
        own.close()


async def record(path: Path, **more: Any) -> SessionState:
    """Record a session to its end, and return what the log says then."""
    async with recording(path, **more):
        pass
    with EventLog.read(path) as log:
        return fold(log.events())
