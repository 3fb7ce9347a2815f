"""The output of a run in memory: its first and its last lines, and what tells something between.

A run may print a gigabyte. The log keeps it, up to a stated size; the state keeps at most about
20 MB of it, whatever the run prints. Line numbers stay those of what the run printed, so a line
that is not there any more is a gap with a number and never a line that moved.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import overload

FIRST, FIRST_CHARS = 10_000, 2_000_000
"""Lines and characters that are kept from the beginning."""

LAST, LAST_CHARS = 50_000, 8_000_000
"""Lines and characters that are kept from the end."""

NOTABLE, NOTABLE_CHARS = 5_000, 2_000_000
"""Telling lines, and their characters, that are kept from between; the earliest ones."""

GAP = "gap"
"""The ``stream`` of what stands for a line that is not kept."""

MAX_CHARS = 2_000
"""Longer lines are cut before a pattern sees them."""

#: What a person, a detector or a check looks for in a log: errors, warnings, numbers that are
#: none, memory, and what PyTorch/XLA says of itself. One look a line, without backtracking.
_TELLING = re.compile(
    r"[Ee]rror|ERROR|[Ee]xception|[Ww]arning|WARNING|FATAL|[Ff]atal|[Ff]ailed|FAILED|Traceback"
    r"|Segmentation fault|core dumped|Killed|[Oo]ut of memory|OOM|RESOURCE_EXHAUSTED"
    r"|\b(?:nan|NaN|NAN|-?inf)\b|pt-xla-profiler|Compilation Analysis|Op\(s\) not lowered"
    r"|PJRT_DEVICE|Compil"
)
#: One of these is in every line that ``_TELLING`` finds, in lower case.
_NEEDLES = (
    "error", "exception", "warning", "fatal", "failed", "traceback", "fault", "core dumped",
    "killed", "out of memory", "oom", "resource_exhausted", "nan", "inf", "pt-xla-profiler",
    "compil", "not lowered", "pjrt_device",
)  # fmt: skip
_BLOCK = 200  # lines looked at together
_TRACEBACK = "Traceback (most recent call last)"
_FRAMES = 30  # lines behind a traceback's head that belong to it


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of run output; ``stream`` is ``stdout`` or ``stderr``.

    ``rank`` is the rank of the process that printed it, ``pid N`` where that is not known, and
    empty where processes share the stream.
    """

    seq: int
    stream: str
    text: str
    rank: str = ""


class Sieve:
    """Tells lines worth keeping from the rest; ``metric_pattern`` is the project's own."""

    def __init__(self, metric_pattern: object = "") -> None:
        self._metric: re.Pattern[str] | None = None
        self._frames = 0
        if isinstance(metric_pattern, str) and metric_pattern:
            try:
                self._metric = re.compile(metric_pattern)
            except re.error:
                self._metric = None

    def keeps(self, texts: Sequence[str]) -> list[bool]:
        """Which lines tell something. Asked in order: a traceback's frames follow its head."""
        found: list[bool] = []
        for start in range(0, len(texts), _BLOCK):
            block = [text[:MAX_CHARS] for text in texts[start : start + _BLOCK]]
            low = "\n".join(block).lower()
            if self._frames or any(needle in low for needle in _NEEDLES):
                found += map(self._tells, block)
            elif self._metric is not None:
                # Line by line: somebody's pattern may take the square of the length of a text.
                found += [self._metric.search(text) is not None for text in block]
            else:
                found += [False] * len(block)
        return found

    def _tells(self, text: str) -> bool:
        if _TELLING.search(text):
            if _TRACEBACK in text:
                self._frames = _FRAMES
            return True
        if self._frames:
            self._frames -= 1
            return True
        return self._metric is not None and self._metric.search(text) is not None


class RunLines(Sequence[LogLine]):
    """The lines of one run, by line number from 0; ``len`` counts all that were printed.

    An index of a line that is not kept answers with a line of the stream ``gap`` that says so.
    Iteration, in either direction, and slices give the kept lines only; ``numbered`` gives them
    with their numbers.
    """

    def __init__(self, lines: Iterable[LogLine] = (), sieve: Sieve | None = None) -> None:
        self._kept: list[LogLine] = []
        self._numbers = array("q")
        self._count = 0
        self._first = 0  # kept lines of the beginning
        self._first_chars = 0
        self._first_open = True
        self._middle = 0  # kept lines between beginning and end
        self._middle_chars = 0
        self._last_chars = 0
        self._sieve = sieve or Sieve()
        self.ranks: dict[str, None] = {}
        """The ranks that printed something, in the order of their first line."""
        self.extend(lines)

    def append(self, line: LogLine) -> None:
        """Add one line."""
        self.extend((line,))

    def extend(self, lines: Iterable[LogLine]) -> None:
        """Add lines at the end."""
        lines = list(lines)
        self.ranks.update((line.rank, None) for line in lines if line.rank)
        if not self._first_open:
            self._kept += lines
            self._numbers.extend(range(self._count, self._count + len(lines)))
            self._count += len(lines)
            self._last_chars += sum(len(line.text) for line in lines)
            lines = []
        for line in lines:
            self._kept.append(line)
            self._numbers.append(self._count)
            self._count += 1
            size = len(line.text)
            if self._first_open:
                self._first += 1
                self._first_chars += size
                self._first_open = self._first < FIRST and self._first_chars < FIRST_CHARS
            else:
                self._last_chars += size
        last = len(self._kept) - self._first - self._middle
        if last > LAST + LAST // 4 or self._last_chars > LAST_CHARS + LAST_CHARS // 4:
            self._compact()

    def elide(self, lines: int) -> None:
        """Count lines that were printed and are not in the log."""
        if lines > 0:
            self._count += lines
            self._first_open = False

    def _compact(self) -> None:
        start, end = self._first + self._middle, len(self._kept)
        cut, chars = end, 0
        while cut > start and end - cut < LAST:
            chars += len(self._kept[cut - 1].text)
            if chars > LAST_CHARS:
                break
            cut -= 1
        lines: list[LogLine] = []
        numbers = array("q")
        keeps = self._sieve.keeps([line.text for line in self._kept[start:cut]])
        for at, tells in enumerate(keeps, start):
            line = self._kept[at]
            self._last_chars -= len(line.text)
            if not tells:
                continue
            size = self._middle_chars + len(line.text)
            if self._middle < NOTABLE and size <= NOTABLE_CHARS:
                self._middle, self._middle_chars = self._middle + 1, size
                lines.append(line)
                numbers.append(self._numbers[at])
        self._kept[start:cut] = lines
        self._numbers[start:cut] = numbers

    # --- reading ---------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._count

    @property
    def missing(self) -> int:
        """How many of the printed lines are not kept here."""
        return self._count - len(self._kept)

    @overload
    def __getitem__(self, index: int) -> LogLine: ...
    @overload
    def __getitem__(self, index: slice) -> list[LogLine]: ...
    def __getitem__(self, index: int | slice) -> LogLine | list[LogLine]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._count)
            if step == 1:
                return self._kept[self._place(start) : self._place(max(start, stop))]
            return [self[i] for i in range(start, stop, step) if self._has(i)]
        number = index + self._count if index < 0 else index
        if not 0 <= number < self._count:
            raise IndexError(f"there is no line {index} of {self._count}")
        place = self._place(number)
        if place < len(self._kept) and self._numbers[place] == number:
            return self._kept[place]
        return self._gap_line(place)

    def __iter__(self) -> Iterator[LogLine]:
        return iter(self._kept)

    def __reversed__(self) -> Iterator[LogLine]:
        return reversed(self._kept)

    def numbered(self) -> Iterator[tuple[int, LogLine]]:
        """The kept lines with their numbers."""
        return zip(self._numbers, self._kept, strict=True)

    def gaps(self) -> Iterator[tuple[int, int]]:
        """The first and the last number of each stretch of lines that is not kept."""
        if not self.missing:
            return
        expected = 0
        for number in self._numbers:
            if number > expected:
                yield expected, number - 1
            expected = number + 1
        if expected < self._count:
            yield expected, self._count - 1

    def __eq__(self, other: object) -> bool:
        if isinstance(other, RunLines):
            same = self._count == other._count and self._numbers == other._numbers
            return same and self._kept == other._kept
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = list(islice(self._kept, 3))
        return f"<RunLines {self._count}, {self.missing} of them not kept: {shown!r} …>"

    def _place(self, number: int) -> int:
        """Where the kept line of this number is, or the next one after it."""
        if not self.missing:
            return min(number, self._count)
        return bisect_left(self._numbers, number)

    def _has(self, number: int) -> bool:
        place = self._place(number)
        return place < len(self._kept) and self._numbers[place] == number

    def _gap_line(self, place: int) -> LogLine:
        """What stands for every line of the gap before the kept line at ``place``."""
        first = self._numbers[place - 1] + 1 if place else 0
        ends = place == len(self._kept)
        last = self._count - 1 if ends else self._numbers[place] - 1
        near = self._kept[min(place, len(self._kept) - 1)].seq if self._kept else 0
        return LogLine(near, GAP, f"… lines {first + 1:,} to {last + 1:,} are not kept here")
