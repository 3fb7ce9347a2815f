"""The recorder's side of the log: append with patience, fold, wait for what others append."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

from core.errors import LostError, PilotageError
from core.events import Body, Event, NewEvent
from core.log_protocol import Log
from core.state import SessionState

T = TypeVar("T")

POLL_S = 0.05
"""Seconds between two looks for events of other processes."""

PATIENCE_S = 600.0
"""For how long an event that can't be stored (a full disk) is tried again before giving up."""

Note = Callable[[str], None]


class Journal:
    """Log and fold together: what is emitted is stored first and then known.

    All events, the recorder's own and those of consoles, reach ``listeners`` in the order of the
    log, each right after the fold took it in.
    """

    def __init__(self, log: Log, note: Note) -> None:
        self.state = SessionState()
        self.listeners: list[Callable[[Event], None]] = []
        self._log = log
        self.note = note
        self._waiters: list[tuple[Callable[[SessionState], Any], asyncio.Future[Any]]] = []
        self._version = -1
        self.giving_up = False
        """Whether the recorder ends, so that what can't be stored is tried for 3 s only."""
        self.runs_on = 0
        """Runs that go on: none is ended because a disk is full, so nothing gives up meanwhile."""

    async def emit(
        self, *bodies: Body, source: str = "recorder", run_id: str = "", tree: str = ""
    ) -> None:
        """Store events, all or none, and take them in.

        Where the log can't be written it says so in the recorder's own log and tries again for
        ten minutes, or as long as a run goes on, so that a full disk that somebody clears costs
        nothing. Raises the log's :class:`PilotageError` after that, and at once for a file that
        is damaged or gone.
        """
        new = [NewEvent(b, source=source, run_id=run_id, tree=tree) for b in bodies]
        await self.emit_events(*new)

    def store(self, *new: NewEvent) -> None:
        """Store events, all or none, and take them in; one try.

        Raises the log's :class:`PilotageError`; nothing was stored then.
        """
        try:
            self._log.append(*new)
        except LostError as err:
            self.note(f"{len(new)} event{'s' * (len(new) > 1)} lost: {err}")
            raise
        self.catch_up()

    async def emit_events(self, *new: NewEvent) -> None:
        """As ``emit``, for events that are made already."""
        if not new:
            return
        begin = time.monotonic()
        tries = 0
        while True:
            try:
                self._log.append(*new)
                break
            except LostError as err:
                self.note(f"{len(new)} event{'s' * (len(new) > 1)} lost: {err}")
                raise
            except PilotageError as err:
                tries += 1
                if tries == 1:
                    self.note(f"The log can't be written, trying again each second: {err}")
                patience = 3.0 if self.giving_up else PATIENCE_S
                waits = self.runs_on and not self.giving_up
                if not waits and time.monotonic() - begin > patience:
                    self.note(f"Gave up after {tries} tries; {len(new)} events are lost: {err}")
                    raise
                # The event ids stay the same, so a try whose answer got lost stores nothing twice.
                await asyncio.sleep(1.0)
        if tries:
            self.note(f"The log can be written again after {tries} tries; nothing was lost.")
        self.catch_up()

    def catch_up(self) -> None:
        """Take in what is new in the log, from whichever process."""
        for event in self._log.events(after=self.state.seq):
            self.state.apply(event)
            for listener in self.listeners:
                listener(event)
        self._wake()

    async def follow(self) -> None:
        """Take in what others append, for ever."""
        failed = False
        while True:
            try:
                version = self._log.data_version()
                if version != self._version:
                    self.catch_up()
                    self._version = version
                failed = False
            except PilotageError as err:
                if not failed:
                    self.note(f"The log can't be read, trying again: {err}")
                failed = True
            await asyncio.sleep(POLL_S)

    async def wait_for(self, look: Callable[[SessionState], T | None]) -> T:
        """Wait until ``look`` finds something (not None) in the state, and return that."""
        found = look(self.state)
        if found is not None:
            return found
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        waiter = (look, future)
        self._waiters.append(waiter)
        try:
            return await future
        finally:
            self._waiters.remove(waiter)

    def _wake(self) -> None:
        for look, future in self._waiters:
            if future.done():
                continue
            found = look(self.state)
            if found is not None:
                future.set_result(found)
