"""The metric's result of a run: looked for right after it has ended, and put on record."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

from core import events as ev
from core.config import Metric
from core.errors import PilotageError
from core.metric import (
    MAX_LINES,
    MAX_READ_CHARS,
    MAX_READ_LINES,
    MetricReading,
    find_metric,
    is_configured,
    printed_names,
    reads_file,
)
from core.result_file import ResultFile
from core.state_parts import Run


class ResultWatch:
    """Made before a run begins, asked when it has ended.

    A parity run trains for a few steps only, so its metric says nothing and is not looked for.
    """

    def __init__(self, metric: Metric, purpose: str, cwd: Path) -> None:
        self._config = dataclasses.asdict(metric)
        self._wanted = purpose in ("reference", "attempt") and is_configured(self._config)
        self._file = ResultFile(cwd, metric.file) if reads_file(self._config) else None
        self._before = self._file.stamp() if self._wanted and self._file else None

    async def read(self, run: Run) -> list[ev.RunResult]:
        """What to put on record of the run: one result, or nothing where no metric is set."""
        return [await asyncio.to_thread(self._read, run)] if self._wanted else []

    def _read(self, run: Run) -> ev.RunResult:
        name = self._config["name"] or self._config["key"] or "metric"
        found: MetricReading | None
        try:
            if self._file is not None:
                found = self._file.read(self._config, self._before)
            else:
                found = find_metric(run.lines, self._config)
        except PilotageError as error:
            return ev.RunResult(name, problem=str(error))
        if found is None:
            return ev.RunResult(name, problem=self._missing(run, name))
        return ev.RunResult(name, found.value, found.source, found.how, found.text)

    def _missing(self, run: Run, name: str) -> str:
        config = self._config
        if config["pattern"]:
            text = f"Run #{run.number} printed no {name} that matches the pattern."
            return text + _at_its_end(run, MAX_LINES)
        text = f"Run #{run.number} printed no value named {config['key'] or config['name'] or name}"
        text += f" that the reader {config['reader']} knows." if config["reader"] else "."
        names = printed_names(run.lines, config)
        if names:
            text += f" It printed: {', '.join(names)}."
        text += _at_its_end(run, MAX_READ_LINES, MAX_READ_CHARS)
        return f"{text} Set [metric] key, or a pattern."


def _at_its_end(run: Run, lines: int, chars: int = 0) -> str:
    """What has to be said where a run printed more than is looked through; else nothing."""
    count = len(run.lines)
    if not run.lines.missing and count <= lines:
        if not chars or sum(len(line.text) for line in run.lines) <= chars:
            return ""
    return (
        f" Only the end of its {count:,} lines is looked through: let it print the metric last, or "
        "name a result file in [metric]."
    )
