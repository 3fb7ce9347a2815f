"""Reading XLA's own signals from any text: reports, profiler lines, debug blocks, metrics files.

Written against what torch_xla 2.9.0 prints (recorded in ``tests/core/readings/recorded``) and the
lines of older releases. Lines of several processes may be mixed, as long as each begins with
its process's own prefix.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from core.readings.reading import MAX_CHARS, tidy_name
from core.readings.xla_signals import (
    CompileMemory as CompileMemory,
)
from core.readings.xla_signals import (
    CompileReport as CompileReport,
)
from core.readings.xla_signals import (
    CounterSignal as CounterSignal,
)
from core.readings.xla_signals import (
    Frame as Frame,
)
from core.readings.xla_signals import (
    MetricSignal as MetricSignal,
)
from core.readings.xla_signals import (
    ProfilerWarning as ProfilerWarning,
)
from core.readings.xla_signals import (
    Signal as Signal,
)
from core.readings.xla_signals import (
    StepMetrics as StepMetrics,
)
from core.readings.xla_signals import modern_name, quantity_of, seconds_of
from core.text import clean

#: Processes told apart by their prefix; lines of more are read as if they had none.
MAX_SOURCES = 64
MAX_FRAMES = 64
MAX_OPS = 256
#: Metrics and counters of one step, each.
MAX_PER_STEP = 1_024

_PREFIX = r"(?P<source>.{0,120}?)"
_STEP = re.compile(rf"{_PREFIX}\[MetricsData; step=(?P<step>\d{{1,15}})\]\s*$")
_HEAD = re.compile(rf"{_PREFIX}(?P<what>Metric|Counter): (?P<name>[\w:.\-]{{1,160}})\s*$")
_FIELD = re.compile(
    rf"{_PREFIX}\s*\b(?P<key>TotalSamples|Accumulator|ValueRate|Rate|Percentiles|Value): (?P<value>.*)$"
)
_ANALYSIS = re.compile(
    rf"{_PREFIX}(?P<kind>Post Compilation|Unexpected Execution|Compilation|Execution) Analysis: ?"
    r"(?P<rest>.*)$"
)
_HASH = re.compile(rf"{_PREFIX}Computation hash: (?P<hash>[0-9a-f]{{1,64}})\s*$")
_PROFILER = re.compile(rf"{_PREFIX}pt-xla-profiler: ?(?P<rest>.*)$")
_FREQUENT = re.compile(
    r"(?P<name>\w{1,80}) too frequent: (?P<count>\d{1,15}) counts during (?P<steps>\d{1,15}) steps"
)
_FREQUENT_XRT = re.compile(
    r"Following metrics too frequent: (?P<names>.{1,400}?)\s?during (?P<steps>\d{1,15}) steps"
)
_XRT_ITEM = re.compile(r"(\w{1,80}) \((\d{1,15}(?:\.\d{1,9})?) counts\)")
_SLOW = re.compile(r"(?P<name>\w{1,80}) too slow: longest instance took (?P<time>[\w.]{1,60})")
_NOT_LOWERED = re.compile(r"Op\(s\) not lowered: (?P<ops>.{1,1900})")
_OP = re.compile(r"[A-Za-z_]\w{0,40}::[\w.]{1,120}")
_FRAME = re.compile(r"\s*(?P<fn>\S.{0,200}?) \((?P<file>[^()]{1,400}):(?P<line>\d{1,7})\)\s*$")
_SIZE = re.compile(r"(?P<name>[A-Za-z ]{1,60}) size: (?P<gb>\d{1,12}(?:\.\d{1,9})?) GB")
_PERCENTILE = re.compile(r"(\d{1,3})%=([^;]{1,60})")
_UNLOWERED_HEAD = "Unlowered Op usage summary"
_COUNT = re.compile(r"FRAME \(count=(\d{1,15})\):")
_UNLOWERED_OP = re.compile(r"Unlowered Op: \"([^\"]{1,160})\"")
_ANY = re.compile(
    r"Metric|Counter|TotalSamples|Accumulator|Rate: |Percentiles|Value: |Analysis: |pt-xla-profiler"
    r"|Computation hash|FRAME \(count|Unlowered Op"
)


@dataclass(slots=True)
class _Metric:
    """A metric or counter whose lines are still coming."""

    what: str
    name: str
    lines: list[str]
    values: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Block:
    """An analysis block whose lines are still coming."""

    kind: str
    cause: str = ""
    graph_hash: str = ""
    inputs: int | None = None
    outputs: int | None = None
    frames: list[Frame] = field(default_factory=list)
    sizes: dict[str, float] = field(default_factory=dict)
    part: str = ""

    @property
    def empty(self) -> bool:
        return not (self.cause or self.graph_hash or self.frames or self.sizes)


@dataclass(slots=True)
class _Source:
    """What is open of one process."""

    metric: _Metric | None = None
    block: _Block | None = None
    computation: str = ""
    step: int | None = None
    metrics: list[MetricSignal] = field(default_factory=list)
    counters: list[CounterSignal] = field(default_factory=list)


@dataclass(slots=True)
class _Use:
    """An entry of the summary of operators that were not lowered."""

    count: int
    ops: list[str] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)


class XlaReader:
    """Reads line by line; each call gives what became complete with it.

    ``close`` gives what was still open: reports that were cut in the middle give what they have.
    Memory is bounded whatever is fed.
    """

    def __init__(self) -> None:
        self._sources: dict[str, _Source] = {}
        self._summary = False
        self._use: _Use | None = None

    def feed(self, line: str) -> list[Signal]:
        """The signals that this line completes, in order."""
        text = line[:MAX_CHARS].rstrip("\r\n")
        if not _ANY.search(text) and not (self._summary or self._sources):
            return []
        return self._feed(clean(text))

    def close(self) -> list[Signal]:
        """The signals that were open when the text ended."""
        out = self._end_use()
        for name in list(self._sources):
            out += self._end_source(name)
        self._sources.clear()
        self._summary = False
        return out

    # --- one line ------------------------------------------------------------------------------

    def _feed(self, text: str) -> list[Signal]:
        if found := _ANALYSIS.match(text):
            return self._analysis(found)
        if found := _PROFILER.match(text):
            return self._profiler(found["rest"], found["source"].strip(), text)
        if found := _STEP.match(text):
            name = found["source"].strip()
            out = self._end_source(name)
            self._source(name).step = int(found["step"])
            return out
        if found := _HEAD.match(text):
            return self._head(found, text)
        if found := _FIELD.match(text):
            source = self._sources.get(found["source"].strip())
            if source is not None and source.metric is not None:
                return self._field(found, source, text)
        if found := _HASH.match(text):
            self._source(found["source"].strip()).computation = found["hash"]
            return []
        if _UNLOWERED_HEAD in text:
            return self._profiler(text.strip(), "", text)
        return self._other(text)

    def _other(self, text: str) -> list[Signal]:
        """A line of something else ends what its process had open."""
        out: list[Signal] = []
        if self._summary:
            out += self._profiler(text, "", text)
        for name in list(self._sources):
            source = self._sources[name]
            if text.startswith(name) and (source.metric is not None or source.step is not None):
                out += self._end_metric(name, source)
                out += self._end_step(name, source)
                self._forget(name)
        return out

    def _source(self, name: str) -> _Source:
        if name not in self._sources and len(self._sources) >= MAX_SOURCES:
            name = ""
        return self._sources.setdefault(name, _Source())

    def _forget(self, name: str) -> None:
        source = self._sources.get(name)
        if source is not None and source == _Source():
            del self._sources[name]

    # --- reports -------------------------------------------------------------------------------

    def _head(self, found: re.Match[str], text: str) -> list[Signal]:
        name = found["source"].strip()
        source = self._source(name)
        out = self._end_metric(name, source)
        source.metric = _Metric(found["what"], found["name"], [text.strip()])
        return out

    def _field(self, found: re.Match[str], source: _Source, text: str) -> list[Signal]:
        metric = source.metric
        assert metric is not None
        metric.values.setdefault(found["key"], found["value"])
        if len(metric.lines) < 4:
            metric.lines.append(text.strip()[:400])
        if found["key"] in ("Percentiles", "Value"):  # the last line of a metric, of a counter
            name = found["source"].strip()
            out = self._end_metric(name, source)
            self._forget(name)
            return out
        return []

    def _end_metric(self, name: str, source: _Source) -> list[Signal]:
        metric, source.metric = source.metric, None
        if metric is None:
            return []
        signal = _counter(metric, name) if metric.what == "Counter" else _metric(metric, name)
        if signal is None:
            return []
        if source.step is None:
            return [signal]
        if isinstance(signal, MetricSignal) and len(source.metrics) < MAX_PER_STEP:
            source.metrics.append(signal)
        elif isinstance(signal, CounterSignal) and len(source.counters) < MAX_PER_STEP:
            source.counters.append(signal)
        return []

    def _end_step(self, name: str, source: _Source) -> list[Signal]:
        if source.step is None:
            return []
        signal = StepMetrics(source.step, tuple(source.metrics), tuple(source.counters), name)
        source.step, source.metrics, source.counters = None, [], []
        return [signal]

    def _end_source(self, name: str) -> list[Signal]:
        source = self._sources.get(name)
        if source is None:
            return []
        out = self._end_metric(name, source) + self._end_step(name, source)
        return out + self._end_block(name, source, complete=False)

    # --- PT_XLA_DEBUG_LEVEL --------------------------------------------------------------------

    def _analysis(self, found: re.Match[str]) -> list[Signal]:
        name, kind, rest = found["source"].strip(), found["kind"].lower(), found["rest"]
        source = self._source(name)
        out = self._end_metric(name, source) + self._end_step(name, source)
        words = rest.strip()
        if source.block is not None and source.block.kind != kind:
            out += self._end_block(name, source, complete=False)
        if words.startswith("===="):
            out += self._end_block(name, source, complete=False)
            source.block = _Block(kind)
        elif words.startswith("----"):
            out += self._end_block(name, source, complete=True)
        else:
            if words.endswith(" Cause") and source.block is not None and source.block.cause:
                out += self._end_block(name, source, complete=False)
            if source.block is None:
                source.block = _Block(kind)
            _into_block(source.block, words)
        self._forget_block(name, source)
        return out

    def _forget_block(self, name: str, source: _Source) -> None:
        if source.block is not None and source.block.kind != "post compilation":
            return
        self._forget(name)

    def _end_block(self, name: str, source: _Source, *, complete: bool) -> list[Signal]:
        block, source.block = source.block, None
        if block is None or block.empty:
            return []
        if block.kind == "post compilation":
            computation, source.computation = source.computation, ""
            return [CompileMemory(tuple(block.sizes.items()), computation, name)]
        report = CompileReport(
            block.kind,
            block.cause,
            block.graph_hash,
            block.inputs,
            block.outputs,
            tuple(block.frames),
            complete,
            name,
        )
        return [report]

    # --- pt-xla-profiler -----------------------------------------------------------------------

    def _profiler(self, rest: str, source: str, text: str) -> list[Signal]:
        rest = rest.strip()
        if _UNLOWERED_HEAD in rest:
            out = self._end_use()
            self._summary = True
            return out
        if self._summary:
            return self._in_summary(rest)
        return _warnings(rest, source, text.strip())

    def _in_summary(self, rest: str) -> list[Signal]:
        out: list[Signal] = []
        if found := _COUNT.match(rest):
            out = self._end_use()
            self._use = _Use(int(found[1]))
        elif rest.startswith("===="):
            out = self._end_use()
            self._summary = False
        elif not rest or rest.startswith(("----", "Note:", "Python Frames")):
            pass
        elif self._use is None:
            self._summary = False
        elif found := _UNLOWERED_OP.match(rest):
            if len(self._use.ops) < MAX_OPS:
                self._use.ops.append(found[1])
        elif frame := _frame(rest):
            if len(self._use.frames) < MAX_FRAMES:
                self._use.frames.append(frame)
        else:
            out = self._end_use()
            self._summary = False
        return out

    def _end_use(self) -> list[Signal]:
        use, self._use = self._use, None
        if use is None or not (use.ops or use.frames):
            return []
        what = ", ".join(use.ops) or str(use.frames[0])
        text = f"Unlowered Op usage summary: {what} (count={use.count})"
        return [
            ProfilerWarning(
                "unlowered use",
                text,
                count=float(use.count),
                ops=tuple(use.ops),
                frames=tuple(use.frames),
            )
        ]


def read_xla(lines: Iterable[str]) -> list[Signal]:
    """All signals of a text."""
    reader = XlaReader()
    out: list[Signal] = []
    for line in lines:
        out += reader.feed(line)
    return out + reader.close()


def _metric(metric: _Metric, source: str) -> MetricSignal | None:
    values = metric.values
    if not any(k in values for k in ("TotalSamples", "Accumulator", "Percentiles")):
        return None
    samples, rate = quantity_of(values.get("TotalSamples", "")), quantity_of(values.get("Rate", ""))
    total = quantity_of(values.get("Accumulator", ""))
    percentiles, unit = [], total[1] if total else ""
    for per_cent, printed in _PERCENTILE.findall(values.get("Percentiles", "")):
        if (quantity := quantity_of(printed)) is not None:
            percentiles.append((int(per_cent), quantity[0]))
            unit = unit or quantity[1]
    return MetricSignal(
        modern_name(metric.name),
        metric.name,
        int(samples[0]) if samples else None,
        total[0] if total else None,
        unit,
        rate[0] if rate else None,
        tuple(percentiles[:32]),
        source,
        "; ".join(metric.lines),
    )


def _counter(metric: _Metric, source: str) -> CounterSignal | None:
    value = quantity_of(metric.values.get("Value", ""))
    if value is None and "::" not in metric.name:
        return None
    return CounterSignal(
        modern_name(metric.name),
        metric.name,
        int(value[0]) if value else None,
        source,
        "; ".join(metric.lines),
    )


def _frame(text: str) -> Frame | None:
    found = _FRAME.match(text)
    return Frame(found["fn"], found["file"], int(found["line"])) if found else None


def _into_block(block: _Block, words: str) -> None:
    if words.endswith(" Cause"):
        block.part = "cause"
    elif words.startswith("Graph Info"):
        block.part = "graph"
    elif words.startswith("Python Frame"):
        block.part = "frames"
    elif words.startswith("Graph Hash:"):
        block.graph_hash = words.partition(":")[2].strip()[:64]
    elif words.startswith("Number of Graph "):
        number = quantity_of(words.partition(":")[2])
        if "Inputs" in words:
            block.inputs = int(number[0]) if number else None
        elif "Outputs" in words:
            block.outputs = int(number[0]) if number else None
    elif found := _SIZE.match(words):
        if len(block.sizes) < 16:
            block.sizes.setdefault(tidy_name(found["name"]), float(found["gb"]))
    elif block.part == "cause" and not block.cause:
        block.cause = words[:400]
    elif block.part == "frames" and len(block.frames) < MAX_FRAMES and (frame := _frame(words)):
        block.frames.append(frame)


def _warnings(rest: str, source: str, text: str) -> list[Signal]:
    if found := _FREQUENT.search(rest):
        return [
            ProfilerWarning(
                "too frequent",
                text,
                modern_name(found["name"]),
                float(found["count"]),
                int(found["steps"]),
                source=source,
            )
        ]
    if found := _FREQUENT_XRT.search(rest):
        steps = int(found["steps"])
        return [
            ProfilerWarning("too frequent", text, name, float(count), steps, source=source)
            for name, count in _XRT_ITEM.findall(found["names"])
        ]
    if found := _SLOW.search(rest):
        seconds = seconds_of(found["time"].rstrip("."))
        metric = modern_name(found["name"])
        return [ProfilerWarning("too slow", text, metric, seconds=seconds, source=source)]
    if found := _NOT_LOWERED.search(rest):
        ops = tuple(dict.fromkeys(_OP.findall(found["ops"])))[:MAX_OPS]
        return [ProfilerWarning("not lowered", text, ops=ops, source=source)] if ops else []
    if not rest.strip("=- "):
        return []
    return [ProfilerWarning("other", text, source=source)]
