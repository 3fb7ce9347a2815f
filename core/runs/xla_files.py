"""What PyTorch/XLA writes into files while a run goes on, read as it comes.

``PT_XLA_DEBUG_FILE`` holds a report of each compile: why it happened and from which line of the
program. ``XLA_METRICS_FILE`` holds a metrics report for each step, where the run's own environment
asks for it. Both become signal records: ``xla_compile``, ``xla_memory`` and ``xla_metrics``, and
at the end ``xla_compiles``, which counts what was too many to keep.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.readings.xla import CompileMemory, CompileReport, Signal, StepMetrics, XlaReader
from core.runs.probe_setup import Mode
from core.text import clean

MAX_REPORTS = 200
"""Records of one kind that are kept of one run, the first ones."""

MAX_LINES_COUNTED = 100
MAX_FRAMES = 16
MAX_NAMES = 200
CHUNK = 1 << 20
MAX_LINE = 1 << 16
TRUNCATE_AT = 32 << 20
"""Bytes of our own file from which what is read is taken off the disk."""

METRICS_EVERY_S = 30.0

_DEBUG = ("PT_XLA_DEBUG_LEVEL", "PT_XLA_DEBUG", "PT_XLA_DEBUG_FILE")
FILE = "xla-debug.txt"
_PROBES = ("/pilotage_probe/", "<pilotage probe", "pilotage probe>")  # files its frames name


def debug_env(directory: Path, env: Mapping[str, str], mode: Mode | None) -> dict[str, str]:
    """Variables that make PyTorch/XLA report its compiles into a file of the run's own.

    Nothing where the run's environment sets any of them itself, or for a parity run, whose probe
    compiles and syncs by itself.
    """
    if mode != "light" or any(env.get(name) for name in _DEBUG):
        return {}
    return {"PT_XLA_DEBUG_LEVEL": "1", "PT_XLA_DEBUG_FILE": str(directory / FILE)}


class _Tail:
    """Lines that are appended to one file; what was there before is left out unless it is ours."""

    def __init__(self, path: Path, ours: bool) -> None:
        self._path = path
        self._ours = ours
        self._offset = 0
        self._rest = b""
        if not ours:
            try:
                self._offset = path.stat().st_size
            except OSError:
                pass

    def lines(self) -> list[str]:
        """What was completed since the last call, of one chunk at most."""
        try:
            size = self._path.stat().st_size
            if size < self._offset:  # it was begun anew
                self._offset, self._rest = 0, b""
            if size == self._offset:
                return []
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(CHUNK)
            self._offset += len(data)
            if self._ours and self._offset >= TRUNCATE_AT and self._offset == size:
                with self._path.open("r+b") as file:
                    file.truncate(0)
                self._offset = 0
        except OSError:
            return []
        *whole, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[:MAX_LINE]
        return [line[:MAX_LINE].decode("utf-8", "replace") for line in whole]


class XlaFiles:
    """The files of one run, by its environment; ``ours`` is the debug file that we asked for."""

    def __init__(self, env: Mapping[str, str], cwd: Path, ours: str = "") -> None:
        self._tails: list[tuple[_Tail, XlaReader]] = []
        for name in ("PT_XLA_DEBUG_FILE", "XLA_METRICS_FILE"):
            if path := env.get(name):
                tail = _Tail(cwd / path, ours=path == ours)
                self._tails.append((tail, XlaReader()))
        self._kept: Counter[str] = Counter()
        self._compiles = 0
        self._by_line: Counter[str] = Counter()
        self._metrics: StepMetrics | None = None
        self._metrics_at = 0.0

    def read(self, now: float | None = None) -> list[dict[str, object]]:
        """The records of what has come since the last call."""
        found: list[dict[str, object]] = []
        for tail, reader in self._tails:
            for line in tail.lines():
                for signal in reader.feed(line):
                    found += self._record(signal)
        now = time.monotonic() if now is None else now
        if self._metrics is not None and now - self._metrics_at >= METRICS_EVERY_S:
            self._metrics_at = now
            found += self._metrics_record()
        return found

    def finish(self) -> list[dict[str, object]]:
        """The rest, and the counts of the whole run."""
        found: list[dict[str, object]] = []
        while some := self.read():
            found += some
        for _, reader in self._tails:
            for signal in reader.close():
                found += self._record(signal)
        found += self._metrics_record()
        if self._compiles:
            lines = dict(self._by_line.most_common(50))
            found.append({"k": "xla_compiles", "total": self._compiles, "by_line": lines})
        return found

    def _record(self, signal: Signal) -> list[dict[str, object]]:
        if isinstance(signal, StepMetrics):
            self._metrics = signal
            return []
        if isinstance(signal, CompileMemory):
            sizes = {clean(name)[:60]: gb for name, gb in signal.sizes_gb[:20]}
            return self._keep({"k": "xla_memory", "sizes_gb": sizes})
        if not isinstance(signal, CompileReport) or signal.kind == "execution":
            return []
        # Hooks of our probe stand between the program and the library: they are nobody's lines.
        frames = [f for f in signal.frames if not any(name in f.file for name in _PROBES)]
        at = next((str(frame) for frame in frames if not frame.installed), "")
        if signal.kind == "compilation":
            self._compiles += 1
            if at in self._by_line or len(self._by_line) < MAX_LINES_COUNTED:
                self._by_line[at] += 1
        record: dict[str, Any] = {
            "k": "xla_compile",
            "kind": signal.kind,
            "n": self._compiles,
            "cause": clean(signal.cause)[:300],
            "cause_kind": signal.cause_kind,
            "at": clean(at)[:500],
            "frames": [clean(str(frame))[:300] for frame in frames[:MAX_FRAMES]],
            "hash": signal.graph_hash,
        }
        if signal.inputs is not None:
            record["inputs"] = signal.inputs
        if signal.outputs is not None:
            record["outputs"] = signal.outputs
        return self._keep(record)

    def _metrics_record(self) -> list[dict[str, object]]:
        last, self._metrics = self._metrics, None
        if last is None:
            return []
        metrics = {
            m.name: {
                "samples": m.total_samples,
                "total": m.accumulator,
                "unit": m.unit,
            }
            for m in last.metrics[:MAX_NAMES]
        }
        counters = {c.name: c.value for c in last.counters[:MAX_NAMES]}
        return self._keep(
            {"k": "xla_metrics", "step": last.step, "metrics": metrics, "counters": counters}
        )

    def _keep(self, record: dict[str, object]) -> list[dict[str, object]]:
        kind = str(record["k"])
        self._kept[kind] += 1
        return [record] if self._kept[kind] <= MAX_REPORTS else []
