"""A session without an agent: the code as it is, run and measured against its reference, once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import socket
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

from core import events as ev
from core.config import SessionConfig
from core.errors import PilotageError, SessionError
from core.events import Event
from core.log_protocol import Log
from core.process import RecorderLock
from core.recorder.journal import Journal
from core.recorder.recovery import recover
from core.recorder.runs import Runs
from core.recorder.stopping import runs_stoppable
from core.recorder.worktree import Worktree
from core.workspace import CACHES, LINK_MB, Workspace

Say = Callable[[str], None]
Import = Callable[[Journal], Awaitable[None]]
"""Puts a reference on record that was made elsewhere (``core.reference.importing``)."""


async def verify(
    log: Log,
    session_dir: Path,
    level: int,
    *,
    say: Say,
    baseline: Path | None = None,
    bring: Import | None = None,
) -> None:
    """Make the runs that checks up to ``level`` need and are not on record, and evaluate all.

    ``baseline`` is the untouched project of a new session whose own project is the migrated code;
    without one, the project is what the session began with. ``bring`` imports the reference; else
    it is run. ``say`` gets one line for each run. Raises :class:`PilotageError` where the session
    can't be used, and where it was stopped by a signal.
    """
    session_dir = session_dir.absolute()
    with RecorderLock(session_dir):
        journal = Journal(log, lambda text: say(f"note: {text}"))
        journal.catch_up()
        opened = journal.state.opened
        if opened is None:
            raise SessionError(f"{session_dir.name} has no session.opened event to go by.")
        config = SessionConfig.from_json(opened.config)
        recovered = await recover(journal, opened.session_id)
        await journal.emit(
            ev.RecorderStarted(os.getpid(), socket.gethostname(), opened.pilotage_version)
        )
        journal.listeners.append(_teller(journal, say))
        reason = "verified"
        try:
            files = await asyncio.to_thread(_workspace, journal, config, session_dir, baseline)
            if not journal.state.snapshots:
                await journal.emit(files.baseline_snapshot(), tree=files.baseline)
            worktree = Worktree(files, journal)
            await worktree.snapshot("cut off" if recovered else "outside")
            if bring is not None:
                await bring(journal)
            runs = Runs(journal, config, worktree, session_dir, opened.session_id, say)
            with runs_stoppable("verification", runs, journal):
                try:
                    await runs.prepare()
                    await runs.verify("verification", upto=level)
                finally:
                    runs.stop("The verification ended.")
                    await runs.settled()
        except BaseException as err:
            reason = str(err) or type(err).__name__
            raise
        finally:
            journal.giving_up = True
            with contextlib.suppress(PilotageError):
                await journal.emit(ev.RecorderStopped(reason))


def _workspace(
    journal: Journal, config: SessionConfig, session_dir: Path, baseline: Path | None
) -> Workspace:
    project = Path(config.project.path)
    if (session_dir / "baseline").exists():
        last = journal.state.snapshots
        return Workspace.reopen(project, session_dir, last[-1].body if last else None)
    # A copy, whatever is there: what is verified is the directory as it stands, not its HEAD,
    # and nothing of it is touched.
    files = Workspace.create(
        baseline or project,
        session_dir,
        copy=True,
        outputs=config.project.outputs,
        link=config.project.link,
    )
    # With what git ignores, too: data that the code reads.
    replace_files(files.root, project)
    return files


def replace_files(root: Path, project: Path) -> None:
    """Make the files of a worktree those of ``project``; large ones are linked, caches left out.

    Pipes, sockets and devices are no part of a project, and are left out too. Raises
    :class:`PilotageError` where a file can't be read or written.
    """
    caches = {name.rstrip("/") for name in CACHES if name.endswith("/") and "*" not in name}

    def left_out(place: str, names: list[str]) -> set[str]:
        return {n for n in names if n in caches or n == ".git" or _special(Path(place, n))}

    def copy(source: str, target: str) -> None:
        if not os.path.islink(source) and os.path.getsize(source) > LINK_MB * 1_000_000:  # noqa: PTH114, PTH202
            Path(target).symlink_to(source)
        else:
            shutil.copy2(source, target, follow_symlinks=False)

    try:
        for entry in root.iterdir():
            if entry.name == ".git":
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        shutil.copytree(
            project,
            root,
            symlinks=True,
            dirs_exist_ok=True,
            copy_function=copy,
            ignore=left_out,
        )
    except OSError as err:
        raise PilotageError(f"The files of {project} could not be copied: {_why(err)}.") from err


def _special(path: Path) -> bool:
    """Whether it is neither file nor directory nor a link: reading it may wait for ever."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False  # the copying says what is wrong with it
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))


def _why(err: OSError) -> str:
    """The first thing that went wrong, as a clause, and how many more there are."""
    found = err.args[0] if isinstance(err, shutil.Error) and err.args else None
    if not isinstance(found, list) or not found:
        return f"{err.filename}: {err.strerror}" if err.filename else str(err)
    source, _, why = found[0]
    why = re.sub(r"^\[Errno \d+\] ", "", str(why)).split(": '")[0]
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return f"{source}: {why}{more}"


def _teller(journal: Journal, say: Say) -> Callable[[Event], None]:
    """One line when a run begins and one when it ends."""

    def tell(event: Event) -> None:
        run = journal.state.runs.get(event.run_id)
        if run is None:
            return
        what = run.started.purpose + (f" of the {run.started.of}" if run.started.of else "")
        if run.started.bundle:
            if isinstance(event.body, ev.RunStarted):
                say(f"run #{run.number}: {what}, from the bundle: {run.started.command}")
        elif isinstance(event.body, ev.RunStarted):
            say(f"run #{run.number}: {what}: {run.started.command}")
        elif isinstance(event.body, ev.RunEnded):
            end = event.body
            how = f"exit {end.exit_code}" if end.exit_code is not None else end.signal or end.reason
            cause = f" ({end.cause})" if end.cause else ""
            say(f"run #{run.number}: {what} ended after {end.duration_s:.1f} s, {how}{cause}")

    return tell
