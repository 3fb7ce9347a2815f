"""Search over many rows that can't freeze the screen: in slices of time, a limit on each match."""

from __future__ import annotations

import re
import signal
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

MAX_REGEX_CHARS = 4_096
"""Characters of a row that a regular expression sees; plain text is looked for in the whole row."""

SLICE_ROWS = 200
SLICE_CPU_S = 0.2
"""Processor time for one slice of rows. An ordinary expression needs a hundredth of it, so that a
pause of the garbage collector does not end a search; one that runs into exponential backtracking uses it up on its first row."""


class SearchError(ValueError):
    """A pattern can't be used; the message is a sentence to show."""


class _OutOfTime(Exception):
    pass


@contextmanager
def _cpu_limit(seconds: float) -> Iterator[None]:
    """Interrupt a running match after so much processor time.

    The engine of `re` looks for signals while it backtracks, which nothing else can interrupt.
    Virtual time and its own signal leave the timers of others (ITIMER_REAL) alone.
    """
    if threading.current_thread() is not threading.main_thread():
        raise SearchError(
            "Regular expressions work only in the main thread; search for plain text."
        )
    armed = True

    def stop(signum: int, frame: FrameType | None) -> None:
        if armed:
            raise _OutOfTime

    before = signal.signal(signal.SIGVTALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
        try:
            yield
        finally:
            armed = False
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


class Query:
    """What is looked for. Capital letters in the pattern make it case-sensitive.

    Raises:
        SearchError: the regular expression is not one.
    """

    def __init__(self, pattern: str, regex: bool = False) -> None:
        self.pattern = pattern
        self.regex = regex
        self._fold = pattern == pattern.lower()
        self._needle = pattern.lower() if self._fold else pattern
        source = pattern if regex else re.escape(pattern)
        try:
            self._compiled = re.compile(source, re.IGNORECASE if self._fold else 0)
        except (re.error, RecursionError, OverflowError) as error:
            raise SearchError(f"Not a regular expression: {error}.") from None

    def _slow(self) -> SearchError:
        return SearchError("This expression takes too long; the search was stopped. Simplify it.")

    def hits(self, texts: list[str]) -> list[int]:
        """Positions in ``texts`` that match. Raises SearchError if it takes too long."""
        if not self.regex:
            needle = self._needle
            if self._fold:
                return [at for at, text in enumerate(texts) if needle in text.lower()]
            return [at for at, text in enumerate(texts) if needle in text]
        search = self._compiled.search
        try:
            with _cpu_limit(SLICE_CPU_S):
                return [at for at, text in enumerate(texts) if search(text[:MAX_REGEX_CHARS])]
        except _OutOfTime:
            raise self._slow() from None

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where a row that is drawn matches, at most 200 places."""
        out: list[tuple[int, int]] = []
        if not self.regex:
            for match in self._compiled.finditer(text):
                out.append(match.span())
                if len(out) == 200:
                    break
            return out
        try:
            with _cpu_limit(SLICE_CPU_S):
                for match in self._compiled.finditer(text[:MAX_REGEX_CHARS]):
                    if match.end() > match.start():
                        out.append(match.span())
                    if len(out) == 200:
                        break
        except _OutOfTime:
            raise self._slow() from None
        return out


class Scan:
    """The rows that match a query, found slice by slice: from ``origin`` down, then from the top.

    Rows may be added at the end at any time; call `step` again with the new count.
    """

    def __init__(self, query: Query, origin: int) -> None:
        self.query = query
        self._origin = origin
        self._below_to = origin  # rows origin:_below_to are scanned
        self._above_to = 0  # rows 0:_above_to are scanned
        self._below: list[int] = []
        self._above: list[int] = []

    @property
    def count(self) -> int:
        """Matching rows found so far."""
        return len(self._above) + len(self._below)

    def done(self, rows: int) -> bool:
        """Whether all of so many rows have been looked at."""
        return self._below_to >= rows and self._above_to >= min(self._origin, rows)

    def step(self, text_of: Callable[[int], str], rows: int, budget_s: float) -> bool:
        """Go on for about ``budget_s`` seconds; true when all ``rows`` are done.

        Raises:
            SearchError: the expression takes too long.
        """
        until = time.perf_counter() + budget_s
        while not self.done(rows):
            if self._below_to < rows:
                first, last = self._below_to, min(rows, self._below_to + SLICE_ROWS)
                found, self._below_to = self._below, last
            else:
                last = min(self._origin, rows, self._above_to + SLICE_ROWS)
                first, found, self._above_to = self._above_to, self._above, last
            hits = self.query.hits([text_of(index) for index in range(first, last)])
            found.extend(first + hit for hit in hits)
            if time.perf_counter() >= until:
                break
        return self.done(rows)

    def next_from(self, row: int, direction: int) -> int | None:
        """The nearest match found so far strictly beyond ``row``, going round at the ends."""
        if not self.count:
            return None
        above, below = self._above, self._below
        if direction > 0:
            for part in (above, below):
                at = bisect_right(part, row)
                if at < len(part):
                    return part[at]
            return above[0] if above else below[0]
        for part in (below, above):
            at = bisect_left(part, row)
            if at > 0:
                return part[at - 1]
        return below[-1] if below else above[-1]

    def rank(self, row: int) -> int | None:
        """Place of a matching row among those found, from 1; None if it is no match."""
        for part, offset in ((self._above, 0), (self._below, len(self._above))):
            at = bisect_left(part, row)
            if at < len(part) and part[at] == row:
                return offset + at + 1
        return None
