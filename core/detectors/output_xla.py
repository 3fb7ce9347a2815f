"""What XLA's own reports in the output say, gathered for the detectors."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from core.readings.xla import XlaReader
from core.readings.xla_signals import (
    CompileReport,
    CounterSignal,
    MetricSignal,
    ProfilerWarning,
    Signal,
    StepMetrics,
)

_OLD_SUM = re.compile(r"^(\s+)Counter: (?=[\d.]+(?:h|m|s|ms|us|ns|B|KB|MB|GB)\b|\d+[hms]\d)")
#: Reports and warnings kept, each kind: the first ones.
MAX_KEPT = 2_000


@dataclass(slots=True)
class XlaFacts:
    """Signals with the line they stand in. Metrics and counters: the latest of each name.

    Of several processes the one with the larger count stands for all.
    """

    warnings: list[tuple[int, ProfilerWarning]] = field(default_factory=list)
    reports: list[tuple[int, CompileReport]] = field(default_factory=list)
    metrics: dict[str, tuple[int, MetricSignal]] = field(default_factory=dict)
    counters: dict[str, tuple[int, CounterSignal]] = field(default_factory=dict)

    #: ``TotalSamples`` of CompileTime in each report, with its line: how it went on.
    compiles: list[tuple[int, int]] = field(default_factory=list)

    @property
    def speaks(self) -> bool:
        """Whether there is any such signal."""
        return bool(self.warnings or self.metrics or self.counters or self.reports)

    def samples(self, name: str) -> int | None:
        """``TotalSamples`` of a metric."""
        found = self.metrics.get(name)
        return found[1].total_samples if found else None

    def count(self, name: str) -> int | None:
        """The value of a counter."""
        found = self.counters.get(name)
        return found[1].value if found else None

    @property
    def steps(self) -> int | None:
        """Steps that the reports cover: step boundaries, else executions."""
        return self.count("MarkStep") or self.samples("ExecuteTime") or self.count("ExecuteComputation")  # fmt: skip

    @classmethod
    def read(cls, lines: Iterable[tuple[int, str]]) -> XlaFacts:
        """The facts of numbered lines, in order."""
        facts, reader, heads = cls(), XlaReader(), dict[str, int]()
        no = 0
        for no, text in lines:
            if "Metric: " in text or "Counter: " in text:
                heads[text.rpartition(": ")[2].strip()] = no
            # Until 2019 the sum of a metric was called its counter.
            for signal in reader.feed(_OLD_SUM.sub(r"\1Accumulator: ", text)):
                facts._take(no, signal, heads)
        for signal in reader.close():
            facts._take(no, signal, heads)
        return facts

    def _take(self, no: int, signal: Signal, heads: dict[str, int]) -> None:
        if isinstance(signal, ProfilerWarning) and len(self.warnings) < MAX_KEPT:
            self.warnings.append((no, signal))
        elif isinstance(signal, CompileReport) and len(self.reports) < MAX_KEPT:
            self.reports.append((no, signal))
        elif isinstance(signal, MetricSignal):
            self._metric(heads.get(signal.printed, no), signal)
        elif isinstance(signal, CounterSignal):
            self._counter(heads.get(signal.printed, no), signal)
        elif isinstance(signal, StepMetrics):
            for metric in signal.metrics:
                self._metric(heads.get(metric.printed, no), metric)
            for counter in signal.counters:
                self._counter(heads.get(counter.printed, no), counter)

    def _metric(self, no: int, metric: MetricSignal) -> None:
        if metric.name == "CompileTime" and metric.total_samples is not None:
            if len(self.compiles) < MAX_KEPT:
                self.compiles.append((no, metric.total_samples))
        known = self.metrics.get(metric.name)
        if known is None or (metric.total_samples or 0) >= (known[1].total_samples or 0):
            self.metrics[metric.name] = (no, metric)

    def _counter(self, no: int, counter: CounterSignal) -> None:
        known = self.counters.get(counter.name)
        if known is None or (counter.value or 0) >= (known[1].value or 0):
            self.counters[counter.name] = (no, counter)
