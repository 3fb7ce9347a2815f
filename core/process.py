"""The recorder as a process: started detached, found by its lock.

A recorder holds an exclusive ``flock`` on ``recorder.lock`` of its session for as long as it
lives; the kernel drops it however the process ends, so the lock can't lie as a pid file does.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

from core.errors import PilotageError

LOCK_NAME = "recorder.lock"
RECORDER_LOG = "recorder.log"

RUN_PYTHONPATH = "PILOTAGE_RUN_PYTHONPATH"
"""Carries the operator's ``PYTHONPATH`` past the recorder, which must not import by it, to the runs."""


class RecorderLock:
    """The lock of a session's one recorder; a context manager.

    Raises :class:`PilotageError` when another recorder holds it. ``wait_s``: for how long to
    try, since a look of :func:`recorder_alive` also takes the lock for an instant.
    """

    def __init__(self, session_dir: Path, wait_s: float = 1.0) -> None:
        self._path = session_dir / LOCK_NAME
        self._wait_s = wait_s
        self._fd = -1

    def __enter__(self) -> RecorderLock:
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as err:
            raise PilotageError(
                f"The lock {self._path} can't be opened ({err.strerror}). Check the rights of "
                "the session's directory."
            ) from err
        until = time.monotonic() + self._wait_s
        while not _try_lock(self._fd, fcntl.LOCK_EX):
            if time.monotonic() > until:
                os.close(self._fd)
                self._fd = -1
                raise PilotageError(
                    f"A recorder for {self._path.parent.name} is running already. "
                    "Attach to the session, or stop it first."
                )
            time.sleep(0.02)
        with contextlib.suppress(OSError):  # for people; a full disk is no reason to hold no lock
            os.ftruncate(self._fd, 0)
            os.write(self._fd, f"{os.getpid()}\n".encode())
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def recorder_alive(session_dir: Path) -> bool:
    """Whether a process holds the session's recorder lock right now."""
    try:
        fd = os.open(session_dir / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # Shared: two consoles that look at the same time must not see each other.
        return not _try_lock(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


def _try_lock(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except OSError as err:
        if err.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def program() -> Path:
    """The file ``pilotage.py`` that belongs to this installation."""
    return Path(__file__).resolve().parent.parent / "pilotage.py"


def start_recorder(session_dir: Path) -> subprocess.Popen[bytes]:
    """Start a detached recorder for a session; it is up once it has said so in the log.

    The process has a session of its own and no terminal, so closing the operator's changes
    nothing for it; what it prints goes to ``recorder.log``. Where another recorder holds the
    lock, the new one ends at once with exit code 1.
    """
    env = dict(os.environ)
    # Never the operator's modules in our process; the runs get the variable back.
    if path := env.pop("PYTHONPATH", ""):
        env[RUN_PYTHONPATH] = path
    for name in ("PYTHONHOME", "PYTHONSTARTUP", "PYTHONINSPECT"):
        env.pop(name, None)
    log = os.open(
        session_dir / RECORDER_LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    try:
        return subprocess.Popen(
            [sys.executable, str(program()), "recorder", str(session_dir)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=session_dir,
            env=env,
            start_new_session=True,
        )
    finally:
        os.close(log)


def run_pythonpath(project: Path, worktree: Path) -> str:
    """The ``PYTHONPATH`` the operator had, for a run in ``worktree``; ``""`` for none.

    Entries inside the project are moved to the worktree: an absolute path would make the runs
    import the code that is not being migrated.
    """
    path = os.environ.get(RUN_PYTHONPATH) or os.environ.get("PYTHONPATH", "")
    if not path:
        return ""
    return os.pathsep.join(_moved(entry, project, worktree) for entry in path.split(os.pathsep))


def _moved(entry: str, project: Path, worktree: Path) -> str:
    if not Path(entry).is_absolute():
        return entry
    try:
        inside = Path(entry).resolve().relative_to(project.resolve())
    except (ValueError, OSError):
        return entry
    return str(worktree / inside)
