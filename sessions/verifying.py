"""Verifying code without a terminal: a session made for it, or one that is there."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from core.author import author
from core.config import SessionConfig
from core.errors import SessionError
from core.events import LevelMeasured, NewEvent, OperatorRequested, SessionOpened
from core.process import recorder_alive
from core.recorder.journal import Journal
from core.recorder.stopping import stoppable, unhurried
from core.recorder.verifying import verify
from core.state import fold
from core.verification import level_to_ask, result_of
from sessions.home import DB_NAME, home, make_private_dir, new_session_id
from sessions.log import EventLog

Say = Callable[[str], None]


def verify_project(
    config: SessionConfig,
    version: str,
    *,
    level: int | None,
    say: Say,
    bundle: Path | None = None,
    baseline: Path | None = None,
    force: str = "",
    keep: bool = False,
) -> dict[str, Any]:
    """Verify a directory of migrated code; returns :func:`core.verification.result_of`.

    The reference comes from ``bundle`` (``force``: the reason for taking one of another project), or is run from ``baseline``, the untouched project; with
    neither, from the code itself by ``[reference] command``. The session is made in a temporary
    home and deleted, or with ``keep`` put among the others and left. Raises ``PilotageError``.
    """
    began = time.monotonic()
    session_id = new_session_id(config.title)
    place = home() if keep else Path(tempfile.mkdtemp(prefix="pilotage-verify-"))
    directory = place / session_id
    opened = SessionOpened(
        session_id=session_id,
        title=config.title,
        project=str(config.project),
        config=config.to_json(),
        pilotage_version=version,
    )
    done = False
    try:
        make_private_dir(directory)
        with stoppable("verification"), EventLog.create(directory / DB_NAME) as log:
            log.append(NewEvent(opened, source=f"console:{author()}"))
            state = fold(log.events())
            asked = level_to_ask(state, level)
            bring = None
            if bundle is not None:
                bring = _importing(bundle, directory, force, say)
            asyncio.run(verify(log, directory, asked, say=say, baseline=baseline, bring=bring))
            result = result_of(fold(log.events()), asked, time.monotonic() - began)
            if keep:
                _bring_up_tables(log)
        result["path"] = str(directory / DB_NAME) if keep else ""
        done = True
        return result
    finally:
        with unhurried():
            if not keep:
                shutil.rmtree(place, ignore_errors=True)
            elif not done and not (directory / "runs").exists():
                shutil.rmtree(directory, ignore_errors=True)  # bad input: nothing was made


def verify_session(path: Path, *, level: int | None, say: Say) -> dict[str, Any]:
    """Verify the present code of a session; runs that are on record are not made again.

    Where its recorder is alive it is asked to, and makes the runs anew. Raises ``PilotageError``.
    """
    began = time.monotonic()
    with stoppable("verification"), EventLog.open(path) as log:
        asked = level_to_ask(fold(log.events()), level)
        if recorder_alive(path.parent):
            _ask_recorder(log, path.parent, say)
        else:
            asyncio.run(verify(log, path.parent, asked, say=say))
            _bring_up_tables(log)
        result = result_of(fold(log.events()), asked, time.monotonic() - began)
    result["path"] = str(path)
    return result


def _ask_recorder(log: EventLog, directory: Path, say: Say) -> None:
    """Have the session's own recorder verify, and wait for its answer."""
    who = author()
    (asked,) = log.append(NewEvent(OperatorRequested("verify", who), source=f"console:{who}"))
    say("the session's recorder is at it")
    while True:
        if any(log.events(asked.seq, kinds={LevelMeasured.KIND})):
            return
        if not recorder_alive(directory):
            raise SessionError(
                f"The recorder of {directory.name} ended before it had verified. Try again."
            )
        time.sleep(0.2)


def _importing(bundle: Path, directory: Path, force: str, say: Say) -> Callable[[Journal], Any]:
    """The import of a bundle into the session that is being made."""
    from core.reference.importing import import_bundle

    async def bring(journal: Journal) -> None:
        done = await import_bundle(journal, directory, bundle, force)
        for note in done.notes:
            say(note)

    return bring


def _bring_up_tables(log: EventLog) -> None:
    from sessions.derived import refresh

    refresh(log)
