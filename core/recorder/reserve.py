"""A little room on the disk, kept for the last words of a run when nothing else is left."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

SIZE = 1 << 20
"""Bytes: a few transactions of SQLite, which takes some pages for each."""

NAME = "reserve"


class Reserve:
    """A file in the session's directory that is there to be deleted."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME

    def take(self) -> bool:
        """Put room aside, if it is not yet; False where the disk has none."""
        try:
            if self._path.stat().st_size == SIZE:
                return True
        except OSError:
            pass
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                os.posix_fallocate(fd, 0, SIZE)
            finally:
                os.close(fd)
        except OSError:
            self.release()
            return False
        return True

    def release(self) -> bool:
        """Give the room back; False where there was none."""
        with contextlib.suppress(OSError):
            self._path.unlink()
            return True
        return False
