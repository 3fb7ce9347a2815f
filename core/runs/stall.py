"""When a run has stalled: no output, and no step or other progress that the probe reports.

Pure: times are passed in, in seconds of one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable

from core.runs.items import Resumed, Stalled
from core.runs.records import BeatRecord, Malformed, Record, StepRecord

BEAT_FRESH_S = 120.0
"""A compile counts as going on for so long after the probe last said so (it says so often)."""


class StallWatch:
    """Fed with a run's signs of life; ``look`` says when there were none for ``limit_s`` seconds.

    A beat of the probe is a sign of life if one of its counts has changed since the beat before
    of that process. A beat from within a compile keeps the run from counting as stuck; the run is
    still reported, as ``alive``.
    """

    def __init__(self, limit_s: float, now: float) -> None:
        self._limit_s = limit_s
        self._since = now
        self._last_line = ""
        self._last_step: int | None = None
        self._doing = ""
        self._doing_at = now
        self._at = ""
        self._beats: dict[int | None, tuple[float | None, ...]] = {}
        self._told: Stalled | None = None
        self._resumed: float | None = None

    def output(self, now: float, last_line: str = "") -> None:
        """Bytes came; ``last_line`` if they finished a line."""
        self._last_line = last_line or self._last_line
        self._alive(now)

    def records(self, records: Iterable[Record | Malformed], now: float) -> None:
        """Records of the probe came."""
        for record in records:
            if isinstance(record, Malformed):
                continue
            if isinstance(record, BeatRecord):
                self._beat(record, now)
                continue
            if isinstance(record, StepRecord) and record.n is not None:
                self._last_step = max(self._last_step or 0, record.n)
            self._alive(now)

    def look(self, now: float) -> Stalled | Resumed | None:
        """What there is to say now, each thing once."""
        if self._resumed is not None:
            seconds, self._resumed = self._resumed, None
            return Resumed(round(seconds, 1))
        silent = now - self._since
        if self._limit_s <= 0 or silent < self._limit_s:
            return None
        compiling = self._doing == "compile" and now - self._doing_at < BEAT_FRESH_S
        if self._told is not None and self._told.alive == compiling:
            return None
        self._told = Stalled(
            round(silent, 1),
            self._limit_s,
            self._last_line[:300],
            self._last_step,
            self._doing,
            compiling,
            self._at,
        )
        return self._told

    def _beat(self, beat: BeatRecord, now: float) -> None:
        self._doing = "compile" if beat.compiling else beat.doing or ""
        self._at, self._doing_at = beat.at or "", now
        counts = (beat.steps, beat.compiles, beat.compile_s)
        before = self._beats.get(beat.pid)
        self._beats[beat.pid] = counts
        if beat.steps:
            self._last_step = max(self._last_step or 0, beat.steps)
        if before is not None and counts != before:
            self._alive(now)

    def _alive(self, now: float) -> None:
        if self._told is not None:
            self._resumed, self._told = now - self._since, None
        self._since = now
