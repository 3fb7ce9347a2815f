"""Rows of printed tables: ``│ val_acc │ 0.91 │``, and columns of numbers under their names."""

from __future__ import annotations

import re

from core.readings import words
from core.readings.prefixes import Line, put_label
from core.readings.reading import MAX_VALUES, VALUE, Reading, tidy_name, to_count, to_number

_BARS = re.compile(r"\s*[│┃║|]")
_SPLIT = re.compile(r"[│┃║|]")
_NUMBER = re.compile(rf"({VALUE})\s?(%?)(?:\s?±\s?.{{1,20}})?$")
_ARROWS = frozenset(("↑", "↓", ""))


def read_row(line: Line) -> Reading | None:
    """The reading of one table row: a name, then one number or several; or null."""
    if not _BARS.match(line.text):
        return None
    cells = [c.strip() for c in _SPLIT.split(line.text.strip())]
    if len(cells) < 4 or cells[0] or cells[-1]:  # bars at both ends
        return None
    cells = cells[1:-1]
    return _named_row(cells, line) or _harness_row(cells, line)


def _numbers(cells: list[str]) -> list[float]:
    found = [_NUMBER.match(c) for c in cells]
    values = [to_number(f[1]) if f else None for f in found]
    return [v for v in values if v is not None] if all(v is not None for v in values) else []


def _named_row(cells: list[str], line: Line) -> Reading | None:
    """Lightning's tables of ``validate`` and ``test``; a column for each data loader."""
    name, numbers = tidy_name(cells[0]), _numbers(cells[1:])
    if not numbers or len(numbers) > 16 or not words.is_result(name):
        return None
    if len(numbers) == 1:
        values = {name: numbers[0]}
    else:
        values = {f"{name}_{i}": v for i, v in enumerate(numbers)}
    return Reading("table row", values, rank=line.rank, where=dict(line.where))


def _harness_row(cells: list[str], line: Line) -> Reading | None:
    """Task tables of evaluation harnesses: a metric's name, an arrow, its value, its error."""
    for i, cell in enumerate(cells[1:], 1):
        name = tidy_name(cell)
        if not name or not words.is_result(name) or _NUMBER.match(cell):
            continue
        after = [c for c in cells[i + 1 :] if c not in _ARROWS]
        number = _NUMBER.match(after[0]) if after else None
        value = to_number(number[1]) if number else None
        if value is None:
            return None
        where = dict(line.where)
        if cells[0]:
            put_label(where, "task", cells[0])
        return Reading("table row", {name: value}, rank=line.rank, where=where)
    return None


_RULE = re.compile(r"[\s\-─━=+|│┼╇╪]*$")
_GAP = re.compile(r"\s{2,}|\t")
_NAME = re.compile(r"[A-Za-z_][\w ./@%()-]{0,40}$")
_MIN_COLUMNS = 3


class Columns:
    """Reads rows of numbers under a row of names, as skorch, fastai and many scripts print them.

    The names hold for the lines right below, rules and blank lines apart.
    """

    def __init__(self) -> None:
        self._names: list[str] = []

    def read(self, line: Line) -> Reading | None:
        """The reading of a row under known names, or null; other lines end the table."""
        text = line.text
        if _RULE.match(text):
            return None
        cells = self._cells(text)
        if self._names and len(cells) == len(self._names):
            numbers = [to_number(c.rstrip("%")) for c in cells]
            if numbers[0] is not None and sum(n is not None for n in numbers) * 2 > len(cells):
                return self._row(numbers, line)
        self._names = self._header(text)
        return None

    def _cells(self, text: str) -> list[str]:
        for split in (self._bars, self._commas, str.split):
            cells = split(text)
            if len(cells) == len(self._names):
                return cells
        return []

    @staticmethod
    def _bars(text: str) -> list[str]:
        return [c.strip() for c in _SPLIT.split(text.strip().strip("│┃║|"))]

    @staticmethod
    def _commas(text: str) -> list[str]:
        return [c.strip() for c in text.split(",")]

    def _header(self, text: str) -> list[str]:
        """The tidy names of a row of names that has a result and a counter in it, or nothing."""
        gaps = [c for c in _GAP.split(text.strip()) if c]
        for cells in (self._bars(text), self._commas(text), gaps, text.split()):
            if not _MIN_COLUMNS <= len(cells) <= MAX_VALUES:
                continue
            if not all(_NAME.match(c) for c in cells):
                continue
            names = [tidy_name(c) for c in cells]
            counted = any(n in words.EPOCH_KEYS or n in words.STEP_KEYS for n in names)
            if counted and len(set(names)) == len(names) and any(map(words.is_result, names)):
                return names
        return []

    def _row(self, numbers: list[float | None], line: Line) -> Reading:
        row = {n: v for n, v in zip(self._names, numbers, strict=True) if v is not None}
        counters = {*words.EPOCH_KEYS, *words.STEP_KEYS, *words.RANK_KEYS}
        return Reading(
            "table row",
            {n: v for n, v in row.items() if n not in counters},
            to_count(words.first_of(row, words.STEP_KEYS)),
            None,
            words.first_of(row, words.EPOCH_KEYS),
            line.rank,
            dict(line.where),
        )
