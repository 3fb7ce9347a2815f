"""Recording a reference in a session made for it, and importing one into a session."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from core.author import author
from core.config import SessionConfig
from core.errors import PilotageError, SessionError
from core.events import NewEvent, SessionOpened
from core.process import RecorderLock, recorder_alive
from core.recorder.journal import Journal
from core.recorder.stopping import stoppable, unhurried
from core.reference.importing import Imported, import_bundle
from core.reference.manifest import BundleError, Manifest
from core.reference.recording import record
from sessions.home import DB_NAME, RECORDED, home, make_private_dir, new_session_id
from sessions.log import EventLog

Say = Callable[[str], None]


def record_reference(
    config: SessionConfig, version: str, output: Path, *, keep: bool, say: Say
) -> tuple[Manifest, int]:
    """Run the reference of ``config`` and write the bundle ``output``; its manifest and size.

    The session is made in a temporary place and deleted, or with ``keep`` put among the others and
    left. Raises :class:`PilotageError`, with ``exit_code`` 1 where the reference itself fails.
    """
    output = output.absolute()
    _refuse_place(output)
    session_id = new_session_id(config.title)
    place = home() if keep else Path(tempfile.mkdtemp(prefix="pilotage-record-"))
    directory = place / session_id
    opened = SessionOpened(
        session_id=session_id,
        title=config.title,
        project=str(config.project),
        config=config.to_json(),
        pilotage_version=version,
    )
    try:
        make_private_dir(directory)
        with stoppable("recording"), EventLog.create(directory / DB_NAME) as log:
            log.append(NewEvent(opened, source=f"console:{author()}"))
            try:
                return asyncio.run(record(log, directory, output, say, keep))
            finally:
                if keep:
                    _bring_up_tables(log)
                    say(f"The session is kept as {session_id}.")
    finally:
        if not keep:
            with unhurried():
                shutil.rmtree(place, ignore_errors=True)


def _refuse_place(output: Path) -> None:
    """Raise where a bundle can't be written, before hours of runs are made for it."""
    if not os.path.isdir(output.parent):  # noqa: PTH112  # Path's own raises for a long name
        raise BundleError(f"There is no directory {output.parent} to write the bundle to.")
    if os.path.isdir(output):  # noqa: PTH112
        raise BundleError(f"{output} is a directory. Name the file to write, such as x.pilotage.")
    if os.path.exists(output) and not os.path.isfile(output):  # noqa: PTH110, PTH113
        raise BundleError(f"{output} is a pipe or a device. Name the file to write.")
    try:
        with tempfile.TemporaryFile(dir=output.parent):
            pass
        output.lstat()
    except FileNotFoundError:
        pass
    except OSError as err:
        raise BundleError(
            f"The bundle {output} can't be written there ({err.strerror or err}). Name another place."
        ) from err


def import_reference(path: Path, bundle: Path, force: str = "") -> Imported:
    """Put the runs of a bundle into the session at ``path``; nothing is changed where it raises.

    Raises :class:`PilotageError`: for what is no usable bundle, one of another project without
    ``force`` (a reason), and a session that is being recorded.
    """
    directory = path.parent
    if directory.parent == RECORDED:
        raise SessionError(f"{directory.name} is a recorded session, which is only to look at.")
    if recorder_alive(directory):
        raise SessionError(
            f"{directory.name} is being recorded, and its recorder may be at a run. End it (s in "
            f"the cockpit), import, and go on with `pilotage run --resume {directory.name}`."
        )

    async def bring(log: EventLog) -> Imported:
        journal = Journal(log, lambda text: None)
        journal.giving_up = True  # a disk that is full is said at once
        journal.catch_up()
        if journal.state.opened is None:
            raise SessionError(f"{directory.name} has no session.opened event to go by.")
        return await import_bundle(journal, directory, bundle, force)

    with stoppable("import"), RecorderLock(directory), EventLog.open(path) as log:
        done = asyncio.run(bring(log))
        try:
            _bring_up_tables(log)
        except PilotageError:
            pass  # they can be made again any time (`pilotage rebuild`)
    return done


def _bring_up_tables(log: EventLog) -> None:
    from sessions.derived import refresh

    refresh(log)
