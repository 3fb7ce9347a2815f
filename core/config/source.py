"""Where in the text of a TOML file each key stands, so that a mistake is named with its line.

``tomllib`` keeps no positions. The scanner here is only asked about a text that it has accepted,
so it follows strings, comments and brackets and judges nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from core.config.sections import ConfigError
from core.text import clean

Path = tuple[str, ...]

_LONGEST = 600
"""Characters of a mistake that quotes a value."""

_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BLANK = re.compile(r"[ \t]*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_LINE = re.compile(r"[^\n]*")
_ATOM = re.compile(r"[^,\]}\n#]*")
_STRING = re.compile(
    r'"""(?:[^\\"]|\\.|"(?!""))*"{3,5}'
    r"|'''(?:[^']|'(?!''))*'{3,5}"
    r'|"(?:[^\\"\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)


@dataclass(frozen=True)
class Source:
    """A configuration's name (mostly its file) and text, to say where a mistake is."""

    name: str
    text: str

    def error(self, section: str, key: str, what: str) -> ConfigError:
        """The mistake ``what`` in ``key`` of ``[section]`` (``a.b`` is a table in a table)."""
        line = self.line(section, key)
        where = f"{self.name}, line {line}" if line else self.name
        what = clean(what)  # it may quote the file
        if len(what) > _LONGEST:
            what = f"{what[: _LONGEST // 2]} ... {what[-_LONGEST // 2 :]}"
        return ConfigError(f"{where}: {what}")

    def line(self, section: str, key: str = "") -> int:
        """The line of ``key`` in ``section``, else of the section; 0 where neither is found."""
        path = (*section.split("."), key) if key else tuple(section.split("."))
        while path:
            if line := self.lines.get(path):
                return line
            path = path[:-1]
        return self.lines.get((section,), 0)

    @cached_property
    def lines(self) -> Mapping[Path, int]:
        """The line, from 1, at which each key or table is first named, by its full path."""
        try:
            return _Scanner(self.text).scan()
        except (_Lost, RecursionError):
            return {}  # then a mistake is named without its line


class _Lost(Exception):
    """The text is not TOML."""


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text.removeprefix("\ufeff").replace("\r\n", "\n")
        self._at = 0
        self._line = 1  # of ``_counted``
        self._counted = 0
        self._lines: dict[Path, int] = {}

    def scan(self) -> dict[Path, int]:
        table: Path = ()
        while True:
            self._skip(_SPACE)
            if self._at >= len(self._text):
                return self._lines
            if self._peek() == "[":
                line = self._here()
                self._at += 2 if self._text.startswith("[[", self._at) else 1
                table = self._key()
                self._note(table, line)
                self._skip(_LINE)
            else:
                self._pair(table)

    def _pair(self, table: Path) -> None:
        line = self._here()
        path = table + self._key()
        self._note(path, line)
        if self._peek() != "=":
            raise _Lost
        self._at += 1
        self._value(path)

    def _value(self, path: Path) -> None:
        self._skip(_BLANK)
        sign = self._peek()
        if sign in ("[", "{"):
            self._at += 1
            self._items(path, "]" if sign == "[" else "}")
        elif sign in ("'", '"'):
            self._string()
        else:
            self._skip(_ATOM)

    def _items(self, path: Path, end: str) -> None:
        """The inside of an array or an inline table, up to its end."""
        while True:
            self._skip(_SPACE)
            sign = self._peek()
            if sign == end:
                self._at += 1
                return
            if sign == ",":
                self._at += 1
            elif not sign:
                raise _Lost
            elif end == "}":
                self._pair(path)
            else:
                before = self._at
                self._value(path)
                if self._at == before:
                    raise _Lost

    def _key(self) -> Path:
        """A key, dotted or not; ends before what follows it."""
        parts: list[str] = []
        while True:
            self._skip(_BLANK)
            if self._peek() in ("'", '"'):
                parts.append(_unquoted(self._string()))
            else:
                match = _BARE.match(self._text, self._at)
                if match is None:
                    raise _Lost
                self._at = match.end()
                parts.append(match[0])
            self._skip(_BLANK)
            if self._peek() != ".":
                return tuple(parts)
            self._at += 1

    def _string(self) -> str:
        match = _STRING.match(self._text, self._at)
        if match is None:
            raise _Lost
        self._at = match.end()
        return match[0]

    def _note(self, path: Path, line: int) -> None:
        for end in range(1, len(path) + 1):
            self._lines.setdefault(path[:end], line)

    def _here(self) -> int:
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self._text, self._at)
        if match is not None:
            self._at = match.end()


def _unquoted(text: str) -> str:
    if text.startswith("'"):
        return text[1:-1]
    long = re.sub(r"\\U([0-9A-Fa-f]{8})", lambda m: chr(int(m[1], 16)), text)
    try:
        return str(json.loads(long, strict=False))
    except ValueError:
        return text[1:-1]
