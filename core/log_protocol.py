"""What the recorder needs of an event log.

``core`` holds no SQLite: ``sessions.log.EventLog`` has this shape and is handed in.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator
from typing import Protocol

from core.events import Event, NewEvent


class Log(Protocol):
    """An append-only log that several processes write to; ``seq`` starts at 1."""

    def append(self, *new: NewEvent) -> list[Event]:
        """Store all of ``new`` or none, and return them stored; raises ``SessionError``."""
        ...

    def events(
        self, after: int = 0, upto: int | None = None, kinds: Collection[str] | None = None
    ) -> Iterator[Event]:
        """The events with ``after < seq <= upto``, in order."""
        ...

    def last_seq(self) -> int:
        """Number of the last event, 0 in an empty log."""
        ...

    def data_version(self) -> int:
        """A number that changes when the log may have new events."""
        ...

    def follow(self, after: int = 0, interval: float = 0.05) -> AsyncIterator[list[Event]]:
        """Lists of new events for ever, looked for every ``interval`` seconds."""
        ...
