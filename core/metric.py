"""Reading the project's own metric from what it prints."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from core.errors import PilotageError
from core.state_parts import LogLine

#: A metric is printed near the end; a pattern is tried on so many lines at most, newest first.
MAX_LINES = 100_000
#: Longer lines are cut before the pattern sees them: a regular expression may be slow on them.
MAX_CHARS = 2_000


def metric_pattern(text: str) -> re.Pattern[str]:
    """Compile ``[metric] pattern``; raises :class:`PilotageError` if it is no pattern."""
    try:
        return re.compile(text)
    except re.error as error:
        raise PilotageError(
            f"The metric pattern {text!r} is no regular expression ({error}). "
            "Write one whose first group is the number, such as 'accuracy: ([0-9.]+)'."
        ) from error


def read_metric(lines: Iterable[LogLine | str], config: Mapping[str, Any]) -> float | None:
    """The last value the run printed, in the unit it printed it in, or ``None``.

    ``config`` is the ``[metric]`` table: ``pattern`` is searched in each line; its group named
    ``value``, else its first group, else the whole match, is the number. A match that is no
    number (``nan`` is one) does not count. Raises :class:`PilotageError` on a bad pattern.
    """
    text = config.get("pattern")
    if not isinstance(text, str) or not text:
        return None
    pattern = metric_pattern(text)
    group: str | int = 0
    if "value" in pattern.groupindex:
        group = "value"
    elif pattern.groups:
        group = 1
    newest = reversed(lines if isinstance(lines, Sequence) else list(lines))
    for line in islice(newest, MAX_LINES):
        shown = line.text if isinstance(line, LogLine) else line
        for match in reversed(list(pattern.finditer(shown[:MAX_CHARS]))):
            value = _number(match.group(group))
            if value is not None:
                return value
    return None


def _number(text: str | None) -> float | None:
    try:
        return float((text or "").strip().rstrip("%").rstrip("."))
    except ValueError:
        return None


def higher_is_better(config: Mapping[str, Any]) -> bool:
    """The metric's direction; higher is better unless ``higher_is_better = false``."""
    return config.get("higher_is_better") is not False
