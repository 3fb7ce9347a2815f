"""What a diff looks like as rows: headers, hunks, lines; syntax and word changes worked out on sight."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from core.text import clean
from core.unified_diff import DiffFile, DiffLine, Hunk
from tui.widgets.cells import printable
from tui.widgets.syntax import TokenSpan, colour

CHUNK = 64
"""Lines lexed together: the colours of a long hunk appear in a few ms per screen."""

_WORD = re.compile(r"\w+|\s+|.", re.DOTALL)
_MAX_PAIR = 400  # characters of a line that is compared word by word with its partner


class DiffTag(NamedTuple):
    """A note on a place: ``guard``, ``C2``. ``line`` None tags the whole file.

    ``line`` counts in the new text, or for ``side`` ``old`` in the old one. ``note`` is a sentence
    for who goes to the tag.
    """

    path: str
    line: int | None
    text: str
    side: str = "new"
    note: str = ""


class Row(NamedTuple):
    """One row; ``hunk`` and ``line`` are positions in the file, -1 where there is none."""

    kind: str  # file, note, hunk, line, newline, gap
    file: int
    hunk: int = -1
    line: int = -1
    text: str = ""


@dataclass
class DiffRows:
    """The rows of a parsed diff."""

    files: Sequence[DiffFile]
    tags: Iterable[DiffTag] = ()
    rows: list[Row] = field(init=False)
    file_rows: list[int] = field(init=False)
    hunk_rows: list[int] = field(init=False)
    number_width: int = field(init=False)

    def __post_init__(self) -> None:
        self.rows, self.file_rows, self.hunk_rows = [], [], []
        self._colours: dict[tuple[int, int, int], dict[int, list[TokenSpan]]] = {}
        self._changes: dict[tuple[int, int], dict[int, list[tuple[int, int]]]] = {}
        self._file_tags: dict[int, list[str]] = {}
        self._hunk_tags: dict[tuple[int, int], list[str]] = {}
        self._line_tags: dict[tuple[int, str, int], list[str]] = {}
        self.placed: dict[int, list[DiffTag]] = {}
        top = 1
        rows = self.rows
        for number, file in enumerate(self.files):
            if number:
                rows.append(Row("gap", number - 1))
            self.file_rows.append(len(rows))
            rows.append(Row("file", number))
            rows.extend(Row("note", number, text=text) for text in _notes(file))
            for at, hunk in enumerate(file.hunks):
                self.hunk_rows.append(len(rows))
                rows.append(Row("hunk", number, at))
                top = max(top, hunk.old_start + hunk.old_count, hunk.new_start + hunk.new_count)
                for index, line in enumerate(hunk.lines):
                    rows.append(Row("line", number, at, index))
                    if not line.newline:
                        rows.append(Row("newline", number, at, index))
        self.number_width = len(str(top))
        self.set_tags(self.tags)

    def set_tags(self, tags: Iterable[DiffTag]) -> None:
        """Put notes on files, hunks and lines; a line outside every hunk tags its file only.

        ``placed`` says afterwards which row each tag stands on.
        """
        self._file_tags, self._hunk_tags, self._line_tags = {}, {}, {}
        self.placed = {}
        tags = list(tags)
        places = self._places() if tags else {}
        by_path: dict[str, list[int]] = {}
        for number, file in enumerate(self.files):
            by_path.setdefault(clean(file.path), []).append(number)
        for tag in tags:
            for number in by_path.get(clean(tag.path), ()):
                _add(self._file_tags.setdefault(number, []), tag.text)
                row = self.file_rows[number]
                place = (number, tag.side, tag.line or 0)
                for at, hunk in enumerate(self.files[number].hunks if tag.line else ()):
                    if _holds(hunk, tag):
                        _add(self._hunk_tags.setdefault((number, at), []), tag.text)
                        _add(self._line_tags.setdefault(place, []), tag.text)
                        row = places.get(place, row)
                self.placed.setdefault(row, []).append(tag)

    def _places(self) -> dict[tuple[int, str, int], int]:
        """The row of each line, by file, side and number; a line that both sides have is new."""
        found = {}
        for index, row in enumerate(self.rows):
            if row.kind == "line":
                line = self.line(row)
                if line.new is not None:
                    found[row.file, "new", line.new] = index
                elif line.old is not None:
                    found[row.file, "old", line.old] = index
        return found

    def hunk(self, row: Row) -> Hunk:
        """The hunk a row stands in."""
        return self.files[row.file].hunks[row.hunk]

    def line(self, row: Row) -> DiffLine:
        """The line a row shows."""
        return self.hunk(row).lines[row.line]

    def row_tags(self, row: Row) -> list[str]:
        """The tags to write on a row."""
        if row.kind == "file":
            return self._file_tags.get(row.file, [])
        if row.kind == "hunk":
            return self._hunk_tags.get((row.file, row.hunk), [])
        if row.kind == "line":
            line = self.line(row)
            side, at = ("old", line.old) if line.new is None else ("new", line.new)
            return self._line_tags.get((row.file, side, at or 0), [])
        return []

    def colours(self, row: Row) -> list[TokenSpan]:
        """Token spans of a line row, in characters of its printable text."""
        chunk = row.line // CHUNK
        key = (row.file, row.hunk, chunk)
        found = self._colours.get(key)
        if found is None:
            if len(self._colours) > 800:
                self._colours.clear()  # enough for 51,200 lines; what is in sight is redone at once
            found = self._colours[key] = self._colour_chunk(row, chunk)
        return found.get(row.line, [])

    def _colour_chunk(self, row: Row, chunk: int) -> dict[int, list[TokenSpan]]:
        # Both texts are lexed apart: a string opened in a removed line must not colour added ones.
        lines = self.hunk(row).lines
        part = range(chunk * CHUNK, min(len(lines), (chunk + 1) * CHUNK))
        file = self.files[row.file]
        out: dict[int, list[TokenSpan]] = {}
        for skip, path in (("+", file.old_path), ("-", file.new_path)):
            side = [index for index in part if lines[index].sign != skip]
            if path is not None and side:
                texts = [printable(lines[index].text) for index in side]
                out.update(zip(side, colour(path, texts), strict=True))
        return out

    def changes(self, row: Row) -> list[tuple[int, int]]:
        """Where a changed line differs from its partner, in characters of its printable text."""
        key = (row.file, row.hunk)
        found = self._changes.setdefault(key, {})
        if row.line not in found:
            self._compare(self.hunk(row).lines, row.line, found)
        return found[row.line]

    @staticmethod
    def _compare(
        lines: list[DiffLine], index: int, found: dict[int, list[tuple[int, int]]]
    ) -> None:
        found[index] = []
        partner = _partner(lines, index)
        if partner is None:
            return
        texts = {at: printable(lines[at].text) for at in (index, partner)}
        if max(len(text) for text in texts.values()) > _MAX_PAIR:
            return
        before, after = (index, partner) if lines[index].sign == "-" else (partner, index)
        old, new = _WORD.findall(texts[before]), _WORD.findall(texts[after])
        matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
        found[before], found[after] = [], []
        if matcher.ratio() < 0.4:  # nothing in common worth pointing at: the whole line is new
            return
        for op, i1, i2, j1, j2 in matcher.get_opcodes():
            if op != "equal":
                for at, words, first, last in ((before, old, i1, i2), (after, new, j1, j2)):
                    start = sum(map(len, words[:first]))
                    if last > first:
                        found[at].append((start, start + sum(map(len, words[first:last]))))


def _partner(lines: list[DiffLine], index: int) -> int | None:
    """The line opposite in a block of removed lines followed by as many added ones."""
    sign = lines[index].sign
    if sign == " ":
        return None
    start = index
    while start and lines[start - 1].sign == sign and index - start < 50:
        start -= 1
    if sign == "-":
        middle = index
        while middle < len(lines) and lines[middle].sign == "-" and middle - start < 50:
            middle += 1
        first_old, first_new = start, middle
    else:
        first_new = start
        first_old = start
        while first_old and lines[first_old - 1].sign == "-" and start - first_old < 50:
            first_old -= 1
        middle = start
    removed = middle - first_old
    added = 0
    while first_new + added < len(lines) and lines[first_new + added].sign == "+" and added <= 50:
        added += 1
    if removed != added or not 0 < removed < 50:
        return None
    return first_new + index - start if sign == "-" else first_old + index - start


def _notes(file: DiffFile) -> list[str]:
    out = []
    if file.mode_changed:
        out.append(f"mode {file.old_mode} → {file.new_mode}")
    if file.binary:
        out.append("A binary file: its content is not shown.")
    if file.status in ("renamed", "copied") and not file.hunks and not file.binary:
        out.append(f"{file.status.capitalize()} without a change of its content.")
    if file.status == "added" and not file.hunks and not file.binary:
        out.append("An empty file.")
    return out + file.notes


def _holds(hunk: Hunk, tag: DiffTag) -> bool:
    """Whether a tag's line lies in a hunk."""
    start, count = hunk.new_start, hunk.new_count
    if tag.side == "old":
        start, count = hunk.old_start, hunk.old_count
    return tag.line is not None and start <= tag.line < start + max(1, count)


def _add(tags: list[str], text: str) -> None:
    if text not in tags:
        tags.append(text)
