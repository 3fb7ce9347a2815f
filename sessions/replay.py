"""Replay: the state at any position of a log, the moments worth jumping to, and the clock.

Nothing here knows a terminal. The same classes serve a finished session and the history of one
that is still being recorded (:meth:`Replay.extend`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path

from core.events import Event
from core.state import SessionState
from core.state_parts import MOMENT_KINDS, Moment
from sessions.log import EventLog

GROUPS: dict[str, frozenset[str]] = {
    "attempt": frozenset({"attempt"}),
    "run": frozenset({"attempt", "run"}),
    "intervention": frozenset({"intervention"}),
    "level": frozenset({"level"}),
    "claim": frozenset({"claim"}),
    "refuted": frozenset({"refuted"}),
    "finding": frozenset({"finding"}),
    "marker": frozenset({"marker"}),
    "ask": frozenset({"ask"}),
    "any": frozenset(MOMENT_KINDS),
}
"""What one can jump to, and the kinds of moments that each stands for."""


class Replay:
    """All events of a session, and its state at any of them."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.events: list[Event] = []
        self._seqs: list[int] = []
        self._state = SessionState()
        self._whole = SessionState()
        self.extend(events)

    @classmethod
    def open(cls, path: Path) -> Replay:
        """The replay of a session file as it is now; the file is closed again."""
        with EventLog.read(path) as log:
            return cls(log.events())

    def extend(self, events: Iterable[Event]) -> None:
        """Take in what a live session has added. Events that are here already are skipped."""
        for event in events:
            if event.seq <= self.last_seq:
                continue
            self.events.append(event)
            self._seqs.append(event.seq)
            self._whole.apply(event)

    @property
    def first_seq(self) -> int:
        """Number of the first event; 0 where there is none."""
        return self._seqs[0] if self._seqs else 0

    @property
    def last_seq(self) -> int:
        """Number of the last event; 0 where there is none."""
        return self._seqs[-1] if self._seqs else 0

    @property
    def whole(self) -> SessionState:
        """The state after all events. It is the fold's own: read it, never change it."""
        return self._whole

    def state_at(self, seq: int) -> SessionState:
        """The state after every event up to ``seq``.

        Forwards only the events between are folded, backwards it is folded anew. The same
        object is given out and moved on: it is valid until the next call.
        """
        if seq < self._state.seq:
            self._state = SessionState()
        start = bisect_right(self._seqs, self._state.seq)
        for event in self.events[start : bisect_right(self._seqs, seq)]:
            self._state.apply(event)
        return self._state

    def moments(self) -> list[Moment]:
        """Every moment of the whole history, in order."""
        return self._whole.moments

    def next(self, group: str, seq: int, direction: int = 1) -> Moment | None:
        """The nearest moment of a group of ``GROUPS`` after ``seq`` (before it: ``direction`` -1).

        None where there is none that way. Raises :class:`KeyError` for an unknown group.
        """
        kinds = GROUPS[group]
        if direction > 0:
            return next((m for m in self.moments() if m.seq > seq and m.kind in kinds), None)
        return next((m for m in reversed(self.moments()) if m.seq < seq and m.kind in kinds), None)

    def step(self, seq: int, count: int = 1) -> int:
        """The position ``count`` events on (back, where negative), held within the history."""
        if not self._seqs:
            return 0
        if count >= 0:
            at = bisect_right(self._seqs, seq) - 1 + count
        else:
            at = bisect_left(self._seqs, seq) + count
        return self._seqs[min(max(at, 0), len(self._seqs) - 1)]

    def seq_at(self, ts_us: int) -> int:
        """The last event stored at or before a time (UTC microseconds); the first if none was.

        Wall clocks may jump back: the first event later than the time ends the search.
        """
        last = self.first_seq
        for event in self.events:
            if event.ts_us > ts_us:
                break
            last = event.seq
        return last


class Playback:
    """The clock of a replay: turns real seconds into a position in the log.

    The axis is *played* seconds: the time between two events as it was, but never more than
    ``idle_cap_s``, so that a night of waiting takes no night to watch. ``speed`` 2 plays two
    of those seconds in one. The clock reads no clock: :meth:`advance` is told what passed.
    """

    def __init__(
        self, events: Sequence[Event] = (), speed: float = 1.0, idle_cap_s: float = 2.0
    ) -> None:
        if speed <= 0 or idle_cap_s <= 0:
            raise ValueError("speed and idle_cap_s must be greater than 0")
        self.speed = speed
        self.idle_cap_s = idle_cap_s
        self.playing = True
        self.position_s = 0.0
        self._at: list[float] = []
        self._seqs: list[int] = []
        self._last: Event | None = None
        self.extend(events)

    def extend(self, events: Iterable[Event]) -> None:
        """Lengthen the axis by what a live session has added."""
        for event in events:
            if self._last is None:
                self._at.append(0.0)
            elif event.seq <= self._last.seq:
                continue
            else:
                gap = min(gap_s(self._last, event), self.idle_cap_s)
                self._at.append(self._at[-1] + gap)
            self._seqs.append(event.seq)
            self._last = event

    @property
    def duration_s(self) -> float:
        """Length of the axis in played seconds."""
        return self._at[-1] if self._at else 0.0

    @property
    def at_end(self) -> bool:
        """Whether the last event is reached."""
        return self.position_s >= self.duration_s

    @property
    def seq(self) -> int:
        """The event the position stands at; 0 in an empty log."""
        at = bisect_right(self._at, self.position_s) - 1
        return self._seqs[at] if at >= 0 else 0

    def advance(self, elapsed_s: float) -> int:
        """Let ``elapsed_s`` real seconds pass, unless paused; returns the event then reached."""
        if self.playing and elapsed_s > 0:
            self.position_s = min(self.position_s + elapsed_s * self.speed, self.duration_s)
        return self.seq

    def seek(self, seq: int) -> None:
        """Put the position to an event, or to the last one before it."""
        at = bisect_right(self._seqs, seq) - 1
        self.position_s = self._at[max(at, 0)] if self._at else 0.0


def gap_s(before: Event, after: Event) -> float:
    """Seconds between two events, never negative.

    By the monotonic clock where both are of the same boot; an importer writes yesterday's
    events today, so there (and between boots) the time of day must do.
    """
    imported = "importer" in (before.source, after.source)
    if before.boot_id == after.boot_id and not imported:
        return max(0, after.mono_us - before.mono_us) / 1e6
    return max(0, after.ts_us - before.ts_us) / 1e6
