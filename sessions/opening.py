"""Opening a session, starting its recorder, and being that recorder.

This is where the recorder of ``core`` meets the log of ``sessions``: ``core`` knows the log
only as a protocol.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from core.author import author
from core.config import SessionConfig
from core.errors import SessionError
from core.events import NewEvent, RecorderStarted, SessionOpened
from core.process import RECORDER_LOG, recorder_alive, start_recorder
from core.text import clean
from sessions.home import DB_NAME, new_session_id, session_dir
from sessions.log import EventLog

#: Seconds that a recorder may take from its start to its first event. Importing the recorder
#: takes about 0.3 s; the rest is for a machine whose cores are all in use by a run.
START_LIMIT_S = 30.0


def demo_config() -> Path:
    """The configuration of the demo, inside the package."""
    import core.demo

    return Path(core.demo.__file__).parent / "pilotage.toml"


def create(config: SessionConfig, version: str) -> Path:
    """A new session with its first event; returns the path of its file.

    Raises :class:`PilotageError` where that can't be, or where the bundle that the configuration
    names can't be its reference.
    """
    if config.reference.bundle:
        from core.reference.importing import refuse_unusable

        refuse_unusable(config)
    session_id = new_session_id(config.title)
    path = session_dir(session_id) / DB_NAME
    opened = SessionOpened(
        session_id=session_id,
        title=config.title,
        project=str(config.project),
        config=config.to_json(),
        pilotage_version=version,
    )
    ours = not path.parent.exists()
    try:
        with EventLog.create(path) as log:
            log.append(NewEvent(opened, source=f"console:{author()}"))
    except SessionError:
        if ours:  # a full disk, say: leave nothing in the list that never was a session
            shutil.rmtree(path.parent, ignore_errors=True)
        raise
    return path


def start(path: Path) -> None:
    """Start the recorder of a session, detached, and wait until it has said so in the log.

    Nothing happens where one is alive already. Raises :class:`SessionError` where the new one
    ends or stays silent.
    """
    directory = path.parent
    if recorder_alive(directory):
        return
    with EventLog.read(path) as log:
        before = log.last_seq()
        process = start_recorder(directory)
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            if any(log.events(before, kinds={RecorderStarted.KIND})):
                return
            if _has_ended(process):
                break
            time.sleep(0.02)
    raise SessionError(
        f"The recorder of {directory.name} did not start. {_last_word(directory / RECORDER_LOG)}"
    )


def _last_word(log: Path) -> str:
    """The last line of a recorder's own log, which says why it ended; one or two sentences."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, log.stat().st_size - 4000))
            lines = file.read().decode("utf-8", "replace").strip().splitlines()
    except OSError as err:
        return f"Its log {log} can't be read ({err.strerror})."
    if not lines:
        return f"It left no word in {log}: is there room on the disk?"
    return f"The end of its log {log}: {clean(lines[-1])[:600]}"


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is not None


def record(directory: Path) -> None:
    """Be the recorder of the session in ``directory`` until it is over."""
    from core.recorder import Recorder

    with EventLog.open(directory / DB_NAME) as log:
        asyncio.run(Recorder(log, directory).run())
        _bring_up_tables(log)


def _bring_up_tables(log: EventLog) -> None:
    """Leave the derived tables at the last event, for whoever opens the file with other tools."""
    from sessions.derived import refresh

    try:
        refresh(log)
    except SessionError as err:  # they can be made again any time; the session itself went well
        print(err, file=sys.stderr)


def play_headless(path: Path, say: Callable[[str], None]) -> None:
    """Record a session in this process, with its script playing the operator too.

    ``say`` gets one line for each thing worth telling while it goes on.
    """
    from core.operator_script import play
    from core.recorder import Recorder

    async def both(log: EventLog) -> None:
        recorder = Recorder(log, path.parent, linger_s=0.0)
        operator = asyncio.create_task(play(log, say))
        try:
            await recorder.run()
        finally:
            operator.cancel()
            await asyncio.gather(operator, return_exceptions=True)

    with EventLog.open(path) as log:
        asyncio.run(both(log))
        _bring_up_tables(log)
