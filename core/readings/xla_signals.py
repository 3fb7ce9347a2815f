"""XLA's own signals as data, in one vocabulary for the old and the new dialect of torch_xla."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

#: Names of torch_xla before 2.2, and what the same thing is called since.
RENAMED = {
    "TransferFromServerTime": "TransferFromDeviceTime",
    "TransferToServerTime": "TransferToDeviceTime",
    "TransferToServerTransformTime": "TransferToDeviceTransformTime",
    "SyncTensorsGraphSize": "TensorsGraphSize",
}
#: Counts a read of a tensor's value (``.item()``), not an operator that fell back to the CPU.
LOCAL_SCALAR = "aten::_local_scalar_dense"

_PARTS = ("d", "h", "m", "s", "ms", "us")
_SCALE = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}
_DURATION = re.compile(
    r"(?:(?P<d>\d{1,9})d)?(?:(?P<h>\d{1,9})h)?(?:(?P<m>\d{1,9})m(?!s))?(?:(?P<s>\d{1,12})s)?"
    r"(?:(?P<ms>\d{1,9})ms)?(?:(?P<us>\d{1,9}(?:\.\d{1,9})?)us)?(?![\w.])"
)
_BYTES = re.compile(r"(\d{1,20}(?:\.\d{1,9})?)(B|KB|MB|GB|TB|PB)(?!\w)")
_PLAIN = re.compile(r"-?\d{1,20}(?:\.\d{1,9})?(?:e[+-]?\d{1,3})?(?![\w.])")
_SUFFIXES = {"B": 0, "KB": 1, "MB": 2, "GB": 3, "TB": 4, "PB": 5}


def modern_name(name: str) -> str:
    """The present name of a metric or counter."""
    return RENAMED.get(name, name)


def seconds_of(text: str) -> float | None:
    """Seconds of a duration as the metrics report prints it, such as ``02m41s307ms512.250us``.

    The report rounds every part of a duration to the nearest whole before it subtracts the whole
    part below it, so a part can be printed one too high: 149,967,211 ns is printed as
    ``150ms967.211us`` (measured with torch_xla 2.9.0; ``MetricFnTime`` in its source). The true
    value follows from the parts below: where they make half a part or more, it was rounded up.
    """
    found = _DURATION.match(text.strip())
    if found is None or not found[0]:
        return None
    below = 0.0
    for part in reversed(_PARTS):
        if found[part] is None:
            continue
        count = float(found[part])
        if part != "us" and below >= _SCALE[part] / 2 and count >= 1:
            count -= 1
        below += count * _SCALE[part]
    return below


def quantity_of(text: str) -> tuple[float, str] | None:
    """Value and unit of a printed quantity: seconds (``s``), bytes (``B``) or a plain number."""
    text = text.strip()
    if found := _BYTES.match(text):
        return float(found[1]) * 1024.0 ** _SUFFIXES[found[2]], "B"
    seconds = seconds_of(text)
    if seconds is not None:
        return seconds, "s"
    if found := _PLAIN.match(text):
        value = float(found[0])
        return (value, "") if math.isfinite(value) else None
    return None


@dataclass(frozen=True, slots=True)
class Frame:
    """One Python frame of a report."""

    function: str
    file: str
    line: int

    @property
    def installed(self) -> bool:
        """Whether it lies in an installed package or in Python itself, not in the project."""
        return any(p in self.file for p in ("site-packages", "dist-packages", "/lib/python", "<"))

    def __str__(self) -> str:
        """Such as ``step (train.py:13)``."""
        return f"{self.function} ({self.file}:{self.line})"


@dataclass(frozen=True, slots=True)
class MetricSignal:
    """One metric of a report, cumulative since the process began.

    ``name`` is the present name, ``printed`` the one that was printed. ``accumulator`` and
    ``percentiles`` (by per cent) are in ``unit``: ``s``, ``B`` or nothing. What was cut off is null
    or empty. ``source`` is what stood before each line, such as ``[default0]:``.
    """

    name: str
    printed: str
    total_samples: int | None = None
    accumulator: float | None = None
    unit: str = ""
    rate: float | None = None
    percentiles: tuple[tuple[int, float], ...] = ()
    source: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class CounterSignal:
    """One counter of a report, cumulative; ``value`` is null where the report was cut before it."""

    name: str
    printed: str
    value: int | None = None
    source: str = ""
    text: str = ""

    @property
    def fallback(self) -> bool:
        """Whether an operator ran on the CPU for want of a lowering."""
        return self.name.startswith("aten::") and self.name != LOCAL_SCALAR


@dataclass(frozen=True, slots=True)
class ProfilerWarning:
    """A line of ``pt-xla-profiler``.

    ``kind``: ``too frequent`` (``metric``, ``count``, ``steps``), ``too slow`` (``metric``,
    ``seconds`` of the longest instance), ``not lowered`` (``ops``), ``unlowered use`` (an entry of
    the summary at exit: ``count``, ``ops`` and ``frames``, innermost first), ``other``.
    """

    kind: str
    text: str
    metric: str = ""
    count: float | None = None
    steps: int | None = None
    seconds: float | None = None
    ops: tuple[str, ...] = ()
    frames: tuple[Frame, ...] = ()
    source: str = ""

    @property
    def per_step(self) -> float | None:
        """Counts per step."""
        return self.count / self.steps if self.count is not None and self.steps else None


#: How a cause printed by ``PT_XLA_DEBUG_LEVEL`` begins or what it holds, and what it is. The
#: sentences are those in the binary of torch_xla 2.9.0; before 2.7 they said ``mark_step``.
_CAUSES = (
    ("access tensor value", "value read"),
    ("access tensor", "value read"),
    ("parallel loader", "loader"),
    ("dynamo", "dynamo"),
    ("torch_xla.compile", "compile"),
    ("profiler StepTrace", "step trace"),
    ("user torch_xla.sync", "sync"),
    ("user mark_step", "sync"),
)


@dataclass(frozen=True, slots=True)
class CompileReport:
    """A block of ``PT_XLA_DEBUG_LEVEL``: why a graph was compiled or executed, and from where.

    ``kind``: ``compilation``, ``execution`` or ``unexpected execution``. ``frames`` are innermost
    first. ``complete`` is false for a block that was cut off.
    """

    kind: str
    cause: str = ""
    graph_hash: str = ""
    inputs: int | None = None
    outputs: int | None = None
    frames: tuple[Frame, ...] = ()
    complete: bool = True
    source: str = ""

    @property
    def cause_kind(self) -> str:
        """``sync``, ``value read``, ``loader``, ``dynamo``, ``compile``, ``step trace`` or ``other``."""
        return next((kind for words, kind in _CAUSES if words in self.cause), "other")

    @property
    def user_frame(self) -> Frame | None:
        """The innermost frame of the project's own code; null where there is none."""
        return next((f for f in self.frames if not f.installed), None)


@dataclass(frozen=True, slots=True)
class CompileMemory:
    """``Post Compilation Analysis``: sizes in GB as printed, by tidy name (``graph_input``).

    ``computation_hash`` is the line printed before it, another hash than the graph's.
    """

    sizes_gb: tuple[tuple[str, float], ...]
    computation_hash: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class StepMetrics:
    """One ``[MetricsData; step=N]`` block of ``XLA_METRICS_FILE``: the report at that step."""

    step: int
    metrics: tuple[MetricSignal, ...] = ()
    counters: tuple[CounterSignal, ...] = ()
    source: str = ""

    def metric(self, name: str) -> MetricSignal | None:
        """The metric of that present name."""
        return next((m for m in self.metrics if m.name == name), None)

    def counter(self, name: str) -> int | None:
        """The value of the counter of that present name."""
        return next((c.value for c in self.counters if c.name == name), None)


Signal = (
    MetricSignal | CounterSignal | ProfilerWarning | CompileReport | CompileMemory | StepMetrics
)
