"""Reading the metric from a result file that a run wrote: JSON, JSON Lines or CSV.

The file is a stranger's. It is read only if it is a regular file inside the project, reached by
no link to the outside, of bounded size, and written during the run.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from core.errors import PilotageError
from core.metric import MAX_TEXT, MetricReading, setting, to_value
from core.readings.reading import tidy_name
from core.text import clean

MAX_MB = 64
#: A JSON document is taken apart in memory at some twenty times its size; lines are not.
MAX_JSON_MB = 16
MAX_LINE = 1_000_000
MAX_COLUMNS = 10_000

#: What tells one state of a file from another: device and inode, size, time in nanoseconds.
Stamp = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class ResultFile:
    """A file at ``name`` below ``root``, the project's directory in the worktree."""

    root: Path
    name: str

    def stamp(self) -> Stamp | None:
        """The file as it is; null where there is none. Taken before a run, to tell its own file."""
        try:
            return _stamp((self.root / self.name).stat())
        except (OSError, ValueError):
            return None

    def read(self, config: Mapping[str, Any], before: Stamp | None) -> MetricReading:
        """The metric's value; ``before`` is the stamp from before the run.

        Raises :class:`PilotageError` that says why there is none.
        """
        try:
            descriptor = self._open()
        except FileNotFoundError:
            raise PilotageError(f"The run wrote no result file {self._shown}.") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise PilotageError(
                f"The result file {self._shown} can't be read: {reason}."
            ) from error
        found = os.fstat(descriptor)
        problem = self._problem(found, before)
        if problem:
            os.close(descriptor)
            raise PilotageError(f"The result file {self._shown} {problem}.")
        with os.fdopen(descriptor, "rb") as file:
            return self._parse(file, setting(config, "key") or setting(config, "name"))

    def _problem(self, found: os.stat_result, before: Stamp | None) -> str:
        """Why the file is not read, though it could be opened; empty where it is."""
        if not stat.S_ISREG(found.st_mode):
            return "is no regular file"
        if before is not None and _stamp(found) == before:
            return "was there before the run, which did not write it"
        limit = MAX_MB if self._kind() != "json" else MAX_JSON_MB
        if found.st_size > limit * 1_000_000:
            return f"has {found.st_size / 1e6:.0f} MB; at most {limit} MB are read"
        return ""

    @property
    def _shown(self) -> str:
        return clean(self.name)[:MAX_TEXT]

    def _kind(self) -> str:
        name = self.name.lower()
        if name.endswith((".jsonl", ".ndjson", ".jsonlines")):
            return "json lines"
        return (
            "json" if name.endswith(".json") else "csv" if name.endswith((".csv", ".tsv")) else ""
        )

    def _open(self) -> int:
        root = os.path.realpath(self.root)
        path = os.path.realpath(self.root / self.name)
        if os.path.commonpath((root, path)) != root:
            raise PilotageError(
                f"The result file {self._shown} lies outside the project ({clean(path)}), "
                "so it is not read."
            )
        # A named pipe must not hold the recorder up, and the last step must be no link by now.
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)

    def _parse(self, file: IO[bytes], key: str) -> MetricReading:
        kind = self._kind()
        if not kind:
            raise PilotageError(
                f"The result file {self._shown} is of no known kind. [metric] file ends in .json, "
                ".jsonl, .csv or .tsv."
            )
        if not key:
            raise PilotageError(
                "Nothing says which value of the result file is the metric: set [metric] key."
            )
        if kind == "json":
            return self._json(file.read(MAX_JSON_MB * 1_000_000 + 1), key)
        if kind == "json lines":
            return self._json_lines(file, key)
        return self._csv(file, key)

    # --- the three kinds -----------------------------------------------------------------------

    def _json(self, data: bytes, key: str) -> MetricReading:
        try:
            document = json.loads(data)
        except (ValueError, RecursionError) as error:
            # A log of JSON objects is often named .json.
            if b"\n" in data.strip():
                try:
                    return self._json_lines(io.BytesIO(data), key)
                except PilotageError:
                    pass
            text = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
            raise PilotageError(f"The result file {self._shown} is no JSON: {text}.") from error
        found = at_path(document, key)
        if found is None:
            raise PilotageError(
                f"The result file {self._shown} has no number at {key!r}. It has: "
                f"{_offer(document)}."
            )
        value, place = found
        return self._found(value, place, f"key {key}", f"{place}: {value:g}")

    def _json_lines(self, file: IO[bytes], key: str) -> MetricReading:
        last: tuple[int, float, str] | None = None
        number, offered = 0, ""
        while line := file.readline(MAX_LINE):
            number += 1
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue  # the last line may be half written; other lines are no results
            offered = offered or _offer(record)
            found = at_path(record, key)
            if found is not None:
                last = number, found[0], found[1]
        if last is None:
            raise PilotageError(
                f"The result file {self._shown} has no line with a number at {key!r}."
                + (f" Its first has: {offered}." if offered else "")
            )
        number, value, place = last
        return self._found(value, f"line {number:,}", f"key {key}", f"{place}: {value:g}")

    def _csv(self, file: IO[bytes], key: str) -> MetricReading:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")
        head = text.readline(MAX_LINE)
        delimiter = max("\t;,", key=head.count) if head.strip() else ","
        lines = itertools.chain([head], iter(lambda: text.readline(MAX_LINE), ""))
        rows = csv.reader(lines, delimiter=delimiter)
        try:
            names = [n.strip() for n in next(rows, [])[:MAX_COLUMNS]]
            column = _column(names, key)
            if column is None:
                raise PilotageError(
                    f"The result file {self._shown} has no column {key!r}. It has: "
                    f"{_listed(names)}."
                )
            last: tuple[int, float, str] | None = None
            for row in rows:
                value = to_value(row[column]) if column < len(row) else None
                if value is not None:
                    last = rows.line_num, value, row[column]
        except csv.Error as error:
            raise PilotageError(f"The result file {self._shown} is no CSV: {error}.") from error
        if last is None:
            raise PilotageError(
                f"The result file {self._shown} has no number in its column {names[column]!r}."
            )
        number, value, cell = last
        place = f"line {number:,}"
        return self._found(value, place, f"column {names[column]}", f"{names[column]}: {cell}")

    def _found(self, value: float, place: str, how: str, text: str) -> MetricReading:
        source = f"{self._shown}, {clean(place)[:MAX_TEXT]}"
        return MetricReading(value, source, clean(how)[:MAX_TEXT], clean(text)[:MAX_TEXT])


def at_path(data: Any, path: str) -> tuple[float, str] | None:
    """The number at a dotted path and the path as it was followed; null where there is none.

    A key that has dots itself is found too. In a list a part may be an index (``-1`` is the
    last); else the last element that has the rest of the path counts.
    """
    return _at(data, path.split("."), "", 0)


def _at(data: Any, parts: list[str], so_far: str, depth: int) -> tuple[float, str] | None:
    if not parts:
        if isinstance(data, list) and data and depth < 64:
            return _at(data[-1], parts, f"{so_far}.{len(data) - 1}", depth + 1)
        value = _number(data)
        return None if value is None else (value, so_far)
    if depth >= 64:
        return None
    if isinstance(data, list):
        return _in_list(data, parts, so_far, depth)
    if not isinstance(data, dict):
        return None
    for size in range(len(parts), 0, -1):  # the longest key first: "eval.accuracy" may be one key
        key = ".".join(parts[:size])
        if key in data:
            found = _at(data[key], parts[size:], _joined(so_far, key), depth + 1)
            if found is not None:
                return found
    if len(parts) == 1:  # as a person writes it: test accuracy for test_accuracy
        same = [
            k for k in itertools.islice(data, MAX_COLUMNS) if tidy_name(k) == tidy_name(parts[0])
        ]
        if len(same) == 1 and same[0] != parts[0]:
            return _at(data[same[0]], [], _joined(so_far, same[0]), depth + 1)
    return None


def _in_list(
    data: list[Any], parts: list[str], so_far: str, depth: int
) -> tuple[float, str] | None:
    if parts[0].lstrip("-").isdecimal() and len(parts[0]) < 10:
        index = int(parts[0])
        if -len(data) <= index < len(data):
            place = _joined(so_far, str(index % len(data)))
            return _at(data[index], parts[1:], place, depth + 1)
        return None
    for index in range(len(data) - 1, -1, -1):
        found = _at(data[index], parts, _joined(so_far, str(index)), depth + 1)
        if found is not None:
            return found
    return None


def _joined(so_far: str, key: str) -> str:
    return f"{so_far}.{key}" if so_far else key


def _number(data: Any) -> float | None:
    if isinstance(data, bool):
        return None
    if isinstance(data, int | float):
        try:
            return float(data)
        except OverflowError:
            return None
    return to_value(data) if isinstance(data, str) else None


def _column(names: list[str], key: str) -> int | None:
    if key in names:
        return names.index(key)
    wanted = tidy_name(key)
    same = [i for i, n in enumerate(names) if tidy_name(n) == wanted]
    return same[0] if len(same) == 1 else None


def _listed(names: list[str]) -> str:
    return clean(", ".join(n[:60] for n in names[:12]))[:MAX_TEXT] or "nothing"


def _offer(data: Any) -> str:
    """Names of what a document holds at its top, for a message."""
    if isinstance(data, dict):
        return _listed([str(k) for k in itertools.islice(data, 12)])
    if isinstance(data, list):
        return f"a list of {len(data)}"
    return f"a single {type(data).__name__}"


def _stamp(found: os.stat_result) -> Stamp:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
