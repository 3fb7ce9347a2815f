"""Follow the files that the probes of one run write, process by process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from core.runs.records import MAX_LINE, Malformed, Record, parse

MAX_FILES = 512  # a run that starts more Python processes than this is not followed into all
CHUNK = 1 << 20  # bytes taken from one file at one look


@dataclass(slots=True)
class _File:
    offset: int = 0
    rest: bytes = b""
    skipping: bool = False  # inside a line that is too long


class RecordTail:
    """``read`` returns what was written since the last call; files may appear at any time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[str, _File] = {}

    def read(self) -> list[Record | Malformed]:
        """Complete lines only, in the order of each file."""
        found: list[Record | Malformed] = []
        try:
            names = sorted(p.name for p in self._directory.glob("*.jsonl"))
        except OSError:
            return found
        for name in names:
            if name not in self._files and len(self._files) >= MAX_FILES:
                continue
            self._read(name, self._files.setdefault(name, _File()), found)
        return found

    def finish(self) -> list[Record | Malformed]:
        """All that is left, and lines that were cut off in mid-write as ``Malformed``."""
        found: list[Record | Malformed] = []
        before, reached = -1, 0
        while reached != before:  # a look may take in data and complete no line
            found += self.read()
            before, reached = reached, sum(file.offset for file in self._files.values())
        for file in self._files.values():
            if file.rest:
                found.append(parse(file.rest))
                file.rest = b""
        return found

    def _read(self, name: str, file: _File, found: list[Record | Malformed]) -> None:
        try:
            path = self._directory / name
            if not path.is_file():  # a device, say, which a read might never come back from
                return
            with path.open("rb") as stream:
                stream.seek(file.offset)
                data = stream.read(CHUNK)
        except OSError:
            return
        file.offset += len(data)
        *whole, file.rest = (file.rest + data).split(b"\n")
        for line in whole:
            if file.skipping:
                file.skipping = False  # its end; it was reported when it became too long
            else:
                found.append(parse(line))
        if len(file.rest) > MAX_LINE:
            if not file.skipping:
                found.append(parse(file.rest))
            file.rest, file.skipping = b"", True
