"""A finished (or any) session played back: the position moves with a clock, or with a key."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import PilotageError
from core.state import SessionState
from core.state_parts import Moment
from tui.wording import clock, span

if TYPE_CHECKING:
    from sessions.replay import Playback, Replay

SPEEDS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


class ReplayFeed:
    """The state at a position that moves. Loading happens in a thread, everything else here."""

    replay = True

    def __init__(
        self,
        path: Path,
        *,
        speed: float = 4.0,
        playing: bool = True,
        position: int | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path
        self.state = SessionState()
        self.error = ""
        self._speed, self._playing, self._position = speed, playing, position
        self._monotonic = monotonic
        self._last: float | None = None
        self._ready: tuple[Replay, Playback] | None = None
        self._replay: Replay | None = None
        self._clock: Playback | None = None
        self._thread: threading.Thread | None = None
        self._moved = False

    # --- the feed ----------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to read, in a thread."""
        self._thread = threading.Thread(target=self._load, name="replay feed", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Wait for the thread, if it still reads."""
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _load(self) -> None:
        from sessions.replay import Playback, Replay

        try:
            replay = Replay.open(self.path)
        except (PilotageError, OSError) as err:
            self.error = str(err)
            return
        playback = Playback(replay.events, self._speed)
        playback.playing = self._playing
        if self._position is not None:
            playback.seek(self._position)
            playback.playing = False
        self._ready = (replay, playback)

    def pump(self) -> bool:
        """Let the time since the last call pass; whether the state has changed."""
        now = self._monotonic()
        elapsed, self._last = (0.0 if self._last is None else now - self._last), now
        if self._ready is not None:
            self._replay, self._clock = self._ready
            self._ready, elapsed, self._moved = None, 0.0, True
        if self._replay is None or self._clock is None:
            return False
        seq = self._clock.advance(elapsed)
        if self._clock.at_end:
            self._clock.playing = False
        changed = seq != self.state.seq
        if changed:
            self.state = self._replay.state_at(seq)
        moved, self._moved = self._moved, False
        return changed or moved

    def loading(self) -> str:
        """A sentence while the session is read."""
        return "" if self._replay is not None or self.error else "reading the session"

    def now_us(self) -> int:
        """The time of the event at the position."""
        return self.state.last_ts_us

    def recorder(self) -> bool | None:
        """A replay has none."""
        return None

    # --- the operator's hand on the clock ----------------------------------------------------

    @property
    def whole(self) -> SessionState | None:
        """The state at the end, for a timeline that shows all there is to jump to."""
        return self._replay.whole if self._replay is not None else None

    @property
    def playing(self) -> bool:
        """Whether time runs."""
        return self._clock is not None and self._clock.playing

    @property
    def speed(self) -> float:
        """Played seconds per real second."""
        return self._clock.speed if self._clock is not None else self._speed

    def toggle(self) -> None:
        """Play or pause; play at the end begins again."""
        if self._clock is None or self._replay is None:
            return
        if not self._clock.playing and self._clock.at_end:
            self._clock.seek(self._replay.first_seq)
        self._clock.playing = not self._clock.playing

    def change_speed(self, steps: int) -> None:
        """The next speed of ``SPEEDS`` up or down."""
        if self._clock is not None:
            at = min(range(len(SPEEDS)), key=lambda i: abs(SPEEDS[i] - self.speed))
            self._clock.speed = SPEEDS[max(0, min(at + steps, len(SPEEDS) - 1))]

    def seek(self, seq: int) -> None:
        """Go to an event and hold the clock there."""
        if self._clock is not None:
            self._clock.playing = False
            self._clock.seek(seq)

    def step(self, count: int) -> None:
        """Go ``count`` events on or back."""
        if self._replay is not None:
            self.seek(self._replay.step(self.state.seq, count))

    def edge(self, direction: int) -> None:
        """The first event (-1) or the last (1)."""
        if self._replay is not None:
            self.seek(self._replay.first_seq if direction < 0 else self._replay.last_seq)

    def next(self, group: str, direction: int) -> Moment | None:
        """Go to the next moment of a group of ``sessions.replay.GROUPS``; null: there is none."""
        if self._replay is None:
            return None
        moment = self._replay.next(group, self.state.seq, direction)
        if moment is not None:
            self.seek(moment.seq)
        return moment

    def badge(self) -> str:
        """``REPLAY ▶ 4x  0:42 of 3:10  12:03:04  event 120 of 900``."""
        if self._replay is None or self._clock is None:
            return "REPLAY"
        sign = "▶" if self._clock.playing else ("■" if self._clock.at_end else "‖")
        word = (
            "playing" if self._clock.playing else ("at the end" if self._clock.at_end else "held")
        )
        at, whole = span(self._clock.position_s), span(self._clock.duration_s)
        when = clock(self.state.last_ts_us) if self.state.last_ts_us else "--:--:--"
        return f"REPLAY {sign} {word} {self._clock.speed:g}x  {at} of {whole}  {when}"
