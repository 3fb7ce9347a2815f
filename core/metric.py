"""Finding the project's own metric in what a run printed.

``[metric]`` says where: ``pattern`` is a regular expression for lines of output and wins over
everything else; ``file`` is a result file (:mod:`core.result_file`); ``reader`` and ``key`` name a
known form of output and the value in it. With a ``name`` alone all readers are tried, and the
value of that name in the last reading that has one counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from core.errors import PilotageError
from core.readings.reading import Reading, tidy_name
from core.readings.training import READERS, LineReader, read_line
from core.run_lines import GAP, LogLine, RunLines
from core.text import clean

#: A metric is printed near the end; a pattern is tried on so many lines at most, newest first.
MAX_LINES = 100_000
#: Readers take longer than a pattern: lines they are tried on at most, newest first.
MAX_READ_LINES = 20_000
#: And characters of them: on the worst text a reader needs some 7 us for each.
MAX_READ_CHARS = 2_000_000
#: Longer lines are cut before the pattern sees them: a regular expression may be slow on them.
MAX_CHARS = 2_000
#: What matched is kept up to so many characters.
MAX_TEXT = 300
#: Names of values that are listed where the wanted one is missing.
_SHOWN_NAMES = 12


@dataclass(frozen=True, slots=True)
class MetricReading:
    """A value of the metric and where it comes from.

    ``source`` is the line of output, counted from 1, or the result file with the place in it;
    ``how`` is the pattern, reader or key that matched; ``text`` is what it matched in.
    """

    value: float
    source: str
    how: str
    text: str


def metric_pattern(text: str) -> re.Pattern[str]:
    """Compile ``[metric] pattern``; raises :class:`PilotageError` if it is no pattern."""
    try:
        return re.compile(text)
    except re.error as error:
        raise PilotageError(
            f"The metric pattern {text!r} is no regular expression ({error}). "
            "Write one whose first group is the number, such as 'accuracy: ([0-9.]+)'."
        ) from error


def setting(config: Mapping[str, Any], key: str) -> str:
    """A text of the ``[metric]`` table, empty where it is not set."""
    value = config.get(key)
    return value if isinstance(value, str) else ""


def is_configured(config: Mapping[str, Any]) -> bool:
    """Whether the ``[metric]`` table says anything to look for."""
    return any(setting(config, key) for key in ("name", "pattern", "file", "reader", "key"))


def reads_file(config: Mapping[str, Any]) -> bool:
    """Whether the metric is in a result file, not in the output."""
    return bool(setting(config, "file")) and not setting(config, "pattern")


def check_settings(config: Mapping[str, Any]) -> None:
    """Raises :class:`PilotageError` where pattern or reader of the ``[metric]`` table are none."""
    if pattern := setting(config, "pattern"):
        metric_pattern(pattern)
    reader = setting(config, "reader")
    if reader and reader not in READERS:
        raise PilotageError(
            f"The [metric] reader {reader!r} is not known. Write one of: {', '.join(READERS)}."
        )


def find_metric(lines: Iterable[LogLine | str], config: Mapping[str, Any]) -> MetricReading | None:
    """The last value of the metric in the output, in the unit it was printed in, or ``None``.

    ``config`` is the ``[metric]`` table. ``pattern`` is searched in each line; its group named
    ``value``, else its first group, else the whole match, is the number. A match that is no number
    (``nan`` is one) does not count. Where the metric is in a file, output says nothing: ``None``.
    Raises :class:`PilotageError` on a bad pattern and on an unknown reader.
    """
    check_settings(config)
    if pattern := setting(config, "pattern"):
        return _by_pattern(lines, metric_pattern(pattern))
    if reads_file(config):
        return None
    reader, key, name = (setting(config, k) for k in ("reader", "key", "name"))
    if not (key or name):
        return None
    return _by_reader(lines, reader, key, name)


def read_metric(lines: Iterable[LogLine | str], config: Mapping[str, Any]) -> float | None:
    """The value alone: see :func:`find_metric`."""
    found = find_metric(lines, config)
    return None if found is None else found.value


def printed_names(lines: Iterable[LogLine | str], config: Mapping[str, Any]) -> list[str]:
    """Names of values in the newest readings of a run, for a message that the wanted one is not
    there."""
    reader, names = setting(config, "reader"), dict[str, None]()
    for _, line in islice(_newest(lines), MAX_READ_LINES // 10):
        reading = read_line(_text(line))
        if reading is not None and (not reader or reading.reader == reader):
            names |= dict.fromkeys(reading.values)
        if len(names) >= _SHOWN_NAMES:
            break
    return list(names)[:_SHOWN_NAMES]


def higher_is_better(config: Mapping[str, Any]) -> bool:
    """The metric's direction; higher is better unless ``higher_is_better = false``."""
    return config.get("higher_is_better") is not False


# --- inside --------------------------------------------------------------------------------------


def _newest(lines: Iterable[LogLine | str]) -> Iterator[tuple[int, LogLine | str]]:
    """Lines from the last to the first, with their numbers from 1."""
    if isinstance(lines, RunLines):
        for number, line in reversed(list(lines.numbered())):
            yield number + 1, line
        return
    kept = lines if isinstance(lines, Sequence) else list(lines)
    for number in range(len(kept), 0, -1):
        yield number, kept[number - 1]


def _text(line: LogLine | str) -> str:
    if isinstance(line, LogLine):
        return "" if line.stream == GAP else line.text
    return line


def _source(number: int, line: LogLine | str) -> str:
    return f"line {number:,} of {line.stream}" if isinstance(line, LogLine) else f"line {number:,}"


def _shown(text: str) -> str:
    return clean(text.strip())[:MAX_TEXT]


def _by_pattern(lines: Iterable[LogLine | str], pattern: re.Pattern[str]) -> MetricReading | None:
    group: str | int = 0
    if "value" in pattern.groupindex:
        group = "value"
    elif pattern.groups:
        group = 1
    for number, line in islice(_newest(lines), MAX_LINES):
        shown = _text(line)
        for match in reversed(list(pattern.finditer(shown[:MAX_CHARS]))):
            value = to_value(match.group(group))
            if value is not None:
                how = f"pattern {pattern.pattern}"
                return MetricReading(value, _source(number, line), how, _shown(shown))
    return None


def to_value(text: str | None) -> float | None:
    """A printed number, ``%`` and a full stop behind it apart; null for what is none."""
    try:
        return float((text or "").strip().rstrip("%").rstrip("."))
    except ValueError:
        return None


def _by_reader(
    lines: Iterable[LogLine | str], reader: str, key: str, name: str
) -> MetricReading | None:
    def of(reading: Reading | None, number: int, line: LogLine | str) -> MetricReading | None:
        if reading is None or (reader and reading.reader != reader):
            return None
        found = _exact(reading, key) if key else named(reading, name)
        if found is None:
            return None
        how = f"reader {reading.reader}, value {found}"
        return MetricReading(reading.values[found], _source(number, line), how, _shown(_text(line)))

    kept, chars = [], 0
    for number, line in islice(_newest(lines), MAX_READ_LINES):
        kept.append((number, line))
        chars += min(len(_text(line)), MAX_CHARS)
        if chars > MAX_READ_CHARS:
            break
    for number, line in kept:
        if found := of(read_line(_text(line)), number, line):
            return found
    # Rows of numbers are read by the names above them: in order.
    last, columns = None, LineReader()
    for number, line in reversed(kept):
        last = of(columns.read(_text(line)), number, line) or last
    return last


def _exact(reading: Reading, key: str) -> str | None:
    wanted = tidy_name(key)
    return wanted if wanted in reading.values else None


def named(reading: Reading, name: str) -> str | None:
    """Which value of a reading a metric's name means, or null.

    ``test accuracy`` means ``test_accuracy``, ``test_acc``, and ``accuracy`` on a line whose phase
    is ``test``; it does not mean ``accuracy`` or ``val_accuracy``.
    """
    if exact := _exact(reading, name):
        return exact
    wanted = _meaning(name)
    if not wanted:
        return None
    phase = reading.where.get("phase", "")
    for value in reading.values:
        meaning = _meaning(value)
        if meaning == wanted or (phase and meaning | _meaning(phase) == wanted):
            return value
    return None


_SAME = {
    "accuracy": "acc",
    "accuracies": "acc",
    "perplexity": "ppl",
    "validation": "val",
    "valid": "val",
    "validate": "val",
    "dev": "val",
    "evaluation": "eval",
    "training": "train",
    "testing": "test",
    "average": "avg",
    "mean": "avg",
    "losses": "loss",
    "acc@1": "acc1",
    "top1": "acc1",
    "top@1": "acc1",
    "acc@5": "acc5",
    "top5": "acc5",
    "top@5": "acc5",
}


def _meaning(name: str) -> frozenset[str]:
    """The words of a name in one spelling, whatever their order."""
    words = {_SAME.get(w, w) for w in tidy_name(name).split("_") if w}
    if words & {"acc1", "acc5"}:
        words.discard("acc")
    if "f1" in words:
        words.discard("score")
    words.discard("set")
    return frozenset(words)
