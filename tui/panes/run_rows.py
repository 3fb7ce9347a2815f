"""The lines of a run as rows of the log: each kept line one, and each gap between them one."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import overload

from core.run_lines import LogLine, RunLines


class RunRows(Sequence[LogLine]):
    """Rows over ``lines``, which may grow and may lose lines; call :meth:`follow` to catch up.

    A run of a million lines of which a million are gone is a few thousand rows and not a million
    that say the same.
    """

    def __init__(self, lines: RunLines) -> None:
        self.lines = lines
        self._numbers = array("q")  # line numbers of the rows; a gap has that of its first line
        self._missing = 0
        self._printed = 0
        self.epoch = 0
        """Counts how often rows that were there have become others."""

    def follow(self) -> RunRows:
        """Take over what has changed since the last call."""
        lines = self.lines
        printed, missing = len(lines), lines.missing
        if not missing:
            if self._missing:
                self.epoch += 1
            self._numbers = array("q")
        elif missing != self._missing or printed < self._printed or not self._numbers:
            self._rebuild()
        else:
            self._numbers.extend(range(self._printed, printed))
        self._missing, self._printed = missing, printed
        return self

    def _rebuild(self) -> None:
        self.epoch += 1
        numbers, expected = array("q"), 0
        for number, _ in self.lines.numbered():
            if number > expected:
                numbers.append(expected)
            numbers.append(number)
            expected = number + 1
        if expected < len(self.lines):
            numbers.append(expected)
        self._numbers = numbers

    def number(self, row: int) -> int:
        """The number of a row's line, as the run printed it, from 0."""
        return self._numbers[row] if self._missing else row

    def __len__(self) -> int:
        return len(self._numbers) if self._missing else self._printed

    @overload
    def __getitem__(self, index: int) -> LogLine: ...
    @overload
    def __getitem__(self, index: slice) -> list[LogLine]: ...
    def __getitem__(self, index: int | slice) -> LogLine | list[LogLine]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not self._missing:
            return self.lines[index]
        return self.lines[self._numbers[index]]
