"""The lines of several ranks in one log: which there are, and the rows of the one looked at."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from rich.cells import cell_len

from tui.widgets.cells import printable

MAX_NAME = 12
"""Characters of a rank's name that are shown."""

MAX_RANKS = 512
"""More are not told apart: nobody steps through them with a key."""


class LogRanks:
    """Maps rows of the view to lines. Without a chosen rank every line is a row.

    Only for the sake of a chosen rank are lines looked at, each once.
    """

    def __init__(self) -> None:
        self.chosen: str | None = None
        self.width = 0
        """Cells of the widest rank's name; 0 while no line has a rank."""
        self._known: tuple[str, ...] = ()
        self._rows: list[int] = []
        self._count = 0  # lines
        self._seen = 0  # of them looked at for the chosen rank

    def know(self, names: Iterable[str]) -> None:
        """Take over which ranks there are."""
        known = tuple(islice(names, MAX_RANKS))
        if known != self._known:
            self._known = known
            self.width = max((cell_len(_shown(name)) for name in known), default=0)

    def follow(self, lines: Sequence[Any], count: int, anew: bool = False) -> None:
        """There are ``count`` lines now; fewer than before begins ``anew``."""
        if anew or count < self._count:
            self._rows, self._seen = [], 0
        self._count = count
        if self.chosen is None:
            return
        for index in range(self._seen, count):
            if getattr(lines[index], "rank", "") == self.chosen:
                self._rows.append(index)
        self._seen = count

    def label(self, line: Any) -> str:
        """What stands before a line: its rank, safe to draw, as wide as any."""
        name = _shown(getattr(line, "rank", ""))
        return " " * (self.width - cell_len(name)) + name

    @property
    def names(self) -> list[str]:
        """The ranks there are, numbers first and in their order."""
        return sorted(self._known, key=lambda n: (not n.isdigit(), int(n) if n.isdigit() else 0, n))

    def count(self) -> int:
        """How many rows there are."""
        return self._count if self.chosen is None else len(self._rows)

    def line(self, row: int) -> int:
        """The line of a row."""
        return row if self.chosen is None else self._rows[row]

    def row(self, line: int) -> int:
        """The row of a line, or of the next one below it that is shown."""
        return line if self.chosen is None else bisect_left(self._rows, line)

    def choose(self, rank: str | None, lines: Sequence[Any]) -> None:
        """Show one rank's lines, or with ``None`` those of all."""
        self.chosen = rank
        self._rows, self._seen = [], 0
        self.follow(lines, self._count)

    def next(self) -> str | None:
        """What comes after the present choice: all, then one rank after another."""
        order: list[str | None] = [None, *self.names]
        at = order.index(self.chosen) if self.chosen in order else 0
        return order[(at + 1) % len(order)]


def _shown(name: str) -> str:
    return printable(name[:MAX_NAME]) if name else ""
