"""A bound on what one run's output adds to the log, and a word on what it leaves out.

Up to the limit everything is stored. After it a line is stored only if it tells something (an
error, a warning, the metric, a report of PyTorch/XLA's own), and the last lines are; for all
others ``run.elided`` counts them where they were.
"""

from __future__ import annotations

from collections import deque
from itertools import groupby
from typing import NamedTuple

from core import events as ev
from core.run_lines import Sieve
from core.runs.items import Output

LAST_LINES, LAST_BYTES = 2_000, 1_000_000
"""What is kept from the end of an output beyond the limit."""

SAY_S = 10.0
"""Seconds between two statements on what was left out."""

TELLING_GROUPS = 50
"""Groups of telling lines that are kept between two statements, so that a program which prints
nothing but warnings is bounded too."""

TELLING_SHARE = 8
"""What tells something may add one part in so many of the limit to it."""


class _Line(NamedTuple):
    stream: str
    rank: str
    text: str
    size: int


class OutputLimit:
    """One run's output on its way to the log; ``max_bytes`` 0 lets everything pass."""

    def __init__(self, max_bytes: int, metric_pattern: str = "") -> None:
        self._max_bytes = max_bytes
        self._sieve = Sieve(metric_pattern)
        self._stored = 0
        self._telling_left = max(100_000, max_bytes // TELLING_SHARE)
        self._groups = 0  # of telling lines since the last statement
        self._last: deque[_Line] = deque()
        self._last_bytes = 0
        self._ready: list[ev.Body] = []
        self._skipped = self._skipped_bytes = 0
        self._say_at = 0.0
        self._over = False

    def take(self, output: Output, now: float) -> list[ev.Body]:
        """The events for some lines; ``now`` is in seconds of a monotonic clock."""
        sizes = [_size(text) for text in output.lines]
        if not self._over:
            self._stored += sum(sizes)
            if not self._max_bytes or self._stored <= self._max_bytes:
                return [ev.RunOutput(output.stream, output.lines, output.rank)]
            self._over, self._say_at = True, now  # and this batch is the first beyond it
        for text, size in zip(output.lines, sizes, strict=True):
            self._last.append(_Line(output.stream, output.rank, text, size))
            self._last_bytes += size
        self._leave_out()
        if now < self._say_at or not (self._skipped or self._ready):
            return []
        self._say_at = now + SAY_S
        return self._state()

    def finish(self) -> list[ev.Body]:
        """The events for the last lines, once the run has ended."""
        found = self._state() if self._skipped or self._ready else []
        for (stream, rank), lines in groupby(self._last, key=lambda x: (x.stream, x.rank)):
            found.append(ev.RunOutput(stream, [x.text for x in lines], rank))
        self._last.clear()
        self._last_bytes = 0
        return found

    def _leave_out(self) -> None:
        """Take what is too much for the last lines, and keep of it what tells something."""
        old: list[_Line] = []
        while len(self._last) > LAST_LINES or self._last_bytes > LAST_BYTES:
            line = self._last.popleft()
            self._last_bytes -= line.size
            old.append(line)
        keeps = self._sieve.keeps([line.text for line in old])
        telling: list[_Line] = []
        for line, keep in zip(old, keeps, strict=True):
            room = self._telling_left >= line.size and self._groups < TELLING_GROUPS
            if keep and room:
                if not telling and self._skipped:
                    self._ready.append(self._elided())
                self._telling_left -= line.size
                telling.append(line)
                continue
            self._flush(telling)
            self._skipped += 1
            self._skipped_bytes += line.size
        self._flush(telling)

    def _flush(self, telling: list[_Line]) -> None:
        if telling:
            self._groups += 1
        for (stream, rank), lines in groupby(telling, key=lambda x: (x.stream, x.rank)):
            self._ready.append(ev.RunOutput(stream, [x.text for x in lines], rank))
        telling.clear()

    def _state(self) -> list[ev.Body]:
        if self._skipped:
            self._ready.append(self._elided())
        found, self._ready, self._groups = self._ready, [], 0
        return found

    def _elided(self) -> ev.RunElided:
        lines, size = self._skipped, self._skipped_bytes
        self._skipped = self._skipped_bytes = 0
        last = self._last[-1].text[:300] if self._last else ""
        return ev.RunElided(
            lines,
            size,
            "limit",
            f"{lines:,} lines ({size / 1e6:.1f} MB) are not stored here: the output is beyond "
            f"{self._max_bytes / 1e6:g} MB ([recorder] max_output_mb). Errors, warnings, the "
            "metric and XLA's own reports are kept, and the last lines.",
            last_line=last,
        )


def _size(text: str) -> int:
    return (len(text) if text.isascii() else len(text.encode("utf-8", "replace"))) + 1
