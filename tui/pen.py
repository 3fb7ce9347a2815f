"""What this console writes: the operator's acts and signs of life, appended to the log.

All appends go through one thread, in the order they were asked for, so that a busy disk never
holds up a key press.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from core.author import author
from core.errors import PilotageError
from core.events import (
    Body,
    Event,
    NewEvent,
    OperatorAttached,
    OperatorDetached,
    OperatorHeartbeat,
)

if TYPE_CHECKING:
    from sessions.log import EventLog

BEAT_S = 15.0
"""Seconds at least between two heartbeats of one console."""


class Pen:
    """One console's way to write to one session. Safe to call from the UI's loop only."""

    def __init__(
        self,
        path: Path,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self.path = path
        self.console_id = secrets.token_hex(3)
        self.author = author()
        self.broken = ""
        """Why the last append failed, a sentence; empty after one that worked."""
        self.on_written: Callable[[], None] = lambda: None
        self._monotonic = monotonic
        self._clock = clock  # null: the log stamps at the append
        self._log: EventLog | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="console writes")
        self._last_beat = float("-inf")
        self.closed = False
        self.attached = False
        """Whether this console is on record as watching; only then are signs of it written."""

    @property
    def source(self) -> str:
        """The source of this console's events."""
        return f"console:{self.console_id}"

    async def write(
        self, *bodies: Body, run_id: str = "", tree: str = "", ts_us: int | None = None
    ) -> list[Event]:
        """Append events, all or none; they are on the disk when this returns.

        Raises :class:`PilotageError` (a sentence) where they are not; nothing was stored then.
        """
        if ts_us is None and self._clock is not None:
            ts_us = self._clock()
        new = [NewEvent(b, self.source, run_id=run_id, tree=tree, ts_us=ts_us) for b in bodies]
        loop = asyncio.get_running_loop()
        try:
            stored = await loop.run_in_executor(self._thread, self._append, new)
        except PilotageError as err:
            self.broken = str(err)
            raise
        self.broken = ""
        self.on_written()
        return stored

    def _append(self, new: list[NewEvent]) -> list[Event]:
        from sessions.log import EventLog

        if self._log is None:
            self._log = EventLog.open(self.path)
        return self._log.append(*new)

    async def attach(self, terminal: str) -> None:
        """Say that a console watches from here on."""
        self.attached = True
        try:
            await self.write(OperatorAttached(self.console_id, self.author, terminal))
        except PilotageError:
            self.attached = False
            raise

    def due(self) -> bool:
        """Whether the last sign of the operator is 15 s old."""
        return self._monotonic() - self._last_beat >= BEAT_S

    async def beat(self, signal: str) -> bool:
        """A sign of the operator; written if the last one is 15 s old. Whether it was written."""
        if not self.due():
            return False
        self._last_beat = self._monotonic()
        await self.write(OperatorHeartbeat(self.console_id, signal))
        return True

    async def detach(self) -> None:
        """Say that this console leaves, and close the file. Never raises: leaving must work."""
        self.closed = True
        try:
            if self.attached and self._log is not None:
                await self.write(OperatorDetached(self.console_id))
        except PilotageError:
            pass  # `broken` says why; a console that could not say goodbye is one that was killed
        log, self._log = self._log, None
        if log is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, log.close)
        self._thread.shutdown(wait=False)
