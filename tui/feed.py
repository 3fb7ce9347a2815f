"""Where the cockpit's state comes from: the log of a live session, or a replay of a finished one.

A feed owns the one :class:`SessionState` that is drawn. Reading, decoding and the first fold of
a long log happen in a thread; what the thread has read is taken in on the UI's loop by
:meth:`pump`, at the redraw rate, so the state never changes while it is being drawn.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from core.errors import PilotageError
from core.events import Event
from core.state import SessionState

if TYPE_CHECKING:
    from sessions.log import EventLog

POLL_S = 0.1
"""Seconds between two looks at the log's ``data_version``."""

LOCK_S = 1.0
"""Seconds between two looks at the recorder's lock."""

PUMP_EVENTS = 4000
"""Events taken in per redraw at most: about 10 ms at the measured 400,000 events/s."""

Clock = Callable[[], int]
"""UTC microseconds."""


def system_clock() -> int:
    """UTC microseconds, now."""
    return time.time_ns() // 1000


class Feed(Protocol):
    """A source of state for the cockpit."""

    replay: bool
    state: SessionState
    error: str
    """A sentence where the session can't be read (any more), else empty."""

    def start(self) -> None:
        """Begin to read."""

    def stop(self) -> None:
        """End the reading thread, if there is one."""

    def pump(self) -> bool:
        """Take in what is new; whether ``state`` has changed."""

    def loading(self) -> str:
        """A sentence while the first state is not there yet, else empty."""

    def now_us(self) -> int:
        """The moment that counts as *now*, for durations."""

    def recorder(self) -> bool | None:
        """Whether a recorder is alive; null where that is not known or has no meaning."""


def lock_of(path: Path) -> Callable[[], bool]:
    """Asks whether the recorder of the session file ``path`` holds its lock."""

    def alive() -> bool:
        from core.process import recorder_alive

        return recorder_alive(path.parent)

    return alive


class LiveFeed:
    """Follows the log of a session that may go on."""

    replay = False

    def __init__(
        self, path: Path, *, alive: Callable[[], bool] | None = None, clock: Clock = system_clock
    ) -> None:
        self.path = path
        self.state = SessionState()
        self.error = ""
        self._clock = clock
        self._alive = alive or lock_of(path)
        self._recorder: bool | None = None
        self._ready: SessionState | None = None
        self._loaded = False
        self._progress = (0, 0)
        self._new: deque[Event] = deque()
        self._wake = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None

    # --- the cockpit's side ------------------------------------------------------------------

    def start(self) -> None:
        """Begin to read, in a thread."""
        self._thread = threading.Thread(target=self._work, name="session feed", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; waits for the page it is reading."""
        self._stopped = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def poke(self) -> None:
        """Look at the log at once: this console has just written to it."""
        self._wake.set()

    def pump(self) -> bool:
        """Take in what the thread has read since the last time."""
        changed = False
        if self._ready is not None:
            self.state, self._ready = self._ready, None
            self._loaded = changed = True
        if not self._loaded:
            return changed
        for _ in range(min(len(self._new), PUMP_EVENTS)):
            self.state.apply(self._new.popleft())
            changed = True
        return changed

    def loading(self) -> str:
        """A sentence while the log is read for the first time."""
        if self._loaded or self.error:
            return ""
        done, total = self._progress
        return f"reading the session: {done:,} of {total:,} events" if total else "opening"

    def now_us(self) -> int:
        """The wall clock."""
        return self._clock()

    def recorder(self) -> bool | None:
        """Whether the recorder held its lock at the last look."""
        return self._recorder

    # --- the thread's side -------------------------------------------------------------------

    def _work(self) -> None:
        from sessions.log import EventLog

        try:
            self._look_at_lock()
            log = EventLog.read(self.path)
        except (PilotageError, OSError) as err:
            self.error = str(err)
            return
        try:
            after = self._load(log)
            self._follow(log, after)
        except PilotageError as err:
            self.error = str(err)
        finally:
            log.close()

    def _load(self, log: EventLog) -> int:
        state = SessionState()
        total = log.last_seq()
        while not self._stopped:
            page = log.page(state.seq, total)
            for event in page:
                state.apply(event)
            self._progress = (state.seq, total)
            if not page or state.seq >= total:
                break
        seq = state.seq
        self._ready = state  # from here on it belongs to the UI's loop
        return seq

    def _follow(self, log: EventLog, after: int) -> None:
        seen = -1
        looked = time.monotonic()
        while not self._stopped:
            version = log.data_version()
            if version != seen:
                page = log.page(after)
                while page and not self._stopped:
                    after = page[-1].seq
                    self._new.extend(page)
                    page = log.page(after)
                seen = version
            if time.monotonic() - looked >= LOCK_S:
                self._look_at_lock()
                looked = time.monotonic()
            self._wake.wait(POLL_S)
            self._wake.clear()

    def _look_at_lock(self) -> None:
        self._recorder = self._alive()
