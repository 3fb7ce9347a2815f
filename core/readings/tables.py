"""Rows of printed tables: ``│ val_acc │ 0.91 │``, ``| accuracy | 0.91 |``."""

from __future__ import annotations

import re

from core.readings import words
from core.readings.prefixes import Line, put_label
from core.readings.reading import VALUE, Reading, tidy_name, to_number

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
