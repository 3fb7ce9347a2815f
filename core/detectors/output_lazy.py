"""Lazy execution as the output shows it: reads by the host, operators on the host, slow graphs.

Thresholds are those of PyTorch/XLA's own metrics analysis and troubleshooting guide.
"""

from __future__ import annotations

import re
from collections import Counter

from core.detectors.base import MIN_STEPS, OutputDetector, Sighting, detector
from core.detectors.lazy import MAX_RATE
from core.detectors.output_fields import durations
from core.detectors.output_look import Line, LogLook, quote
from core.detectors.output_rates import Found, evidence_of, frequent, rate_of
from core.detectors.output_series import series

_EACH_STEP = re.compile(r"(?:_local_scalar_dense|transfers?\b|\.item\(\)|host reads?|host syncs?|device[- ]to[- ]host\w*).{0,40}?(\d{1,6}(?:\.\d+)?) ?(?:times |x |transfers )?(?:per|each|every|/|a) ?(?:train\w* )?step", re.I)  # fmt: skip
_READS_OVER = re.compile(r"(?:_local_scalar_dense|Transfer(?:From|To)\w+)\D{1,24}(\d{1,9})\W{1,4}(?:(?:in|over|after|at|during) )?(?:step )?(\d{1,9})(?: steps)?\b", re.I)  # fmt: skip
_READ = re.compile(r"\b(?:transfers? (?:from|to) (?:device|host|server)|device[- ]to[- ]host|d2h|host reads?|host syncs?|local scalar dense|item calls)\b")  # fmt: skip


@detector
class ReadsEachStep(OutputDetector):
    """The host reads tensors in about every step."""

    NAME, CATEGORY = "transfer_per_step", "C4"
    SOURCE = "PyTorch/XLA metrics analysis: transfers to the host > 0.5 a step after 10 steps"
    SAME_FAULT = ("transfer_per_step", "aten_fallback")
    MEASURED = ("transfers",)

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        found = frequent(log, "TransferFromDeviceTime") or self._counted(log) or self._reports(log)
        if not found:
            return None
        evidence, at = evidence_of(found)
        return Sighting(
            "the host reads tensors in every step",
            evidence,
            "Find .item(), print(tensor), float(loss) or a branch on a tensor in the loop; read "
            "every few steps instead, or add a step closure.",
            threshold=f"> {MAX_RATE:g} a step after {MIN_STEPS} steps",
            at=at,
        )

    @staticmethod
    def _counted(log: LogLook) -> Found:
        xla = log.xla
        rate = rate_of(log, xla.samples("TransferFromDeviceTime"), xla.steps)
        if rate is not None and rate > MAX_RATE:
            no, metric = xla.metrics["TransferFromDeviceTime"]
            return [(no, f"{metric.text} (in {xla.steps} steps)")]
        reads = xla.counters.get("aten::_local_scalar_dense")
        rate = rate_of(log, reads[1].value if reads else None, xla.steps)
        if reads and rate is not None and rate > MAX_RATE:
            return [(reads[0], f"{reads[1].text} (in {xla.steps} steps)")]
        marks = xla.counters.get("MarkStep")
        calls = (marks[1].value or 0) if marks else 0
        if reads and not xla.steps and calls >= MIN_STEPS:
            if (reads[1].value or 0) > MAX_RATE * calls:
                return [(reads[0], f"{reads[1].text} (in {calls} mark_step calls)")]
        dynamic = [c for _, c in xla.counters.values() if c.fallback and c.value]
        if reads and dynamic and all(DYNAMIC.match(c.name) for c in dynamic):
            calls = sum(c.value or 0 for c in dynamic)
            if (reads[1].value or 0) >= max(calls, MANY_READS):  # each call reads its result's size
                return [(reads[0], reads[1].text)]
        for line in log.having("step"):
            over = _READS_OVER.search(line.text)
            if over and int(over[2]) >= MIN_STEPS and int(over[1]) > MAX_RATE * int(over[2]):
                return [(line.no, line.text)]
            m = _EACH_STEP.search(line.text)
            if m and float(m[1]) > MAX_RATE:
                return [(line.no, line.text)]
        for found in series(log, lambda key: bool(_READ.search(key))):
            if (
                found.span >= MIN_STEPS
                and found.values[-1] - found.values[0] > MAX_RATE * found.span
            ):
                return [(r.row.line.no, r.row.text) for r in found.readings[-3:]]
        return []

    @staticmethod
    def _reports(log: LogLook) -> Found:
        counts: Counter[str] = Counter()
        found: dict[str, Found] = {}
        for no, report in log.xla.reports:
            if report.kind != "compilation" and report.cause_kind == "value read":
                where = str(report.user_frame or "")
                counts[where] += 1
                found.setdefault(where, []).append(
                    (no, f"{report.kind} at {where}: {report.cause}")
                )
        where, n = counts.most_common(1)[0] if counts else ("", 0)
        return found[where] if n >= MIN_STEPS else []


_FALLS = re.compile(
    r"(aten::\w[\w.]*)\S{0,3} .{0,80}(?:f(?:all(?:s|ing)?|ell) ?back|not (?:currently )?(?:supported|lowered|implemented)|executed|runs?|running|computed).{0,80}(?:CPU|cpu|host)"
    r"|(?:f(?:all(?:s|ing)?|ell) ?back|fallback(?: ops?)?|not lowered|unlowered)\b.{0,80}?(aten::\w[\w.]*)"
    r"|['\"](aten::\w[\w.]*)['\"]\s?:\s?[1-9]\d*|\b(aten::\w[\w.]*)(?:\s*[:=]\s*|\s+)[1-9]\d*\b",
    re.IGNORECASE,
)
_SCALAR = "aten::_local_scalar_dense"
#: Operators whose result's shape depends on the values: they can't be in a graph at all, and each
#: call has the host read the result's size.
DYNAMIC = re.compile(r"aten::(?:nonzero|_?unique\w*|masked_select|bincount|argwhere|where$|index$|_unique2|repeat_interleave)")  # fmt: skip


@detector
class RunsOnHost(OutputDetector):
    """An operator has no lowering and runs on the host."""

    NAME, CATEGORY = "aten_fallback", "C5"
    SOURCE = (
        "PyTorch/XLA troubleshooting guide: any aten:: counter but aten::_local_scalar_dense "
        "is an operator that is not lowered"
    )
    SAME_FAULT = ("aten_fallback",)
    MEASURED = ()

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        found = [(no, c.text) for no, c in log.xla.counters.values() if c.fallback and c.value]
        for no, w in log.xla.warnings:
            if w.kind in ("not lowered", "unlowered use") and any(op != _SCALAR for op in w.ops):
                found.append((no, w.text))
        if not found:
            for line in log.having("aten::"):
                if "Could not run" not in line.text:
                    ops = [op for m in _FALLS.finditer(line.text) for op in m.groups() if op]
                    if any(op != _SCALAR for op in ops):
                        found.append((line.no, line.text))
        if not found:
            return None
        evidence, at = evidence_of(found)
        return Sighting(
            "an operator runs on the host instead of the device",
            evidence,
            "Replace the operator by ones that XLA lowers, or move it out of the training step.",
            threshold="any aten::* counter but aten::_local_scalar_dense",
            at=at,
        )


def fallback_ops(log: LogLook) -> set[str]:
    """The operators that ran on the host, by the output."""
    ops = {c.name for _, c in log.xla.counters.values() if c.fallback and c.value}
    for _, warning in log.xla.warnings:
        ops |= {op for op in warning.ops if op != _SCALAR}
    return ops


def reads_explained(log: LogLook) -> bool:
    """Whether operators on the host explain the reads: each brings its inputs over, a few a step.

    Not where their output's shape depends on values (then it is the program that reads: a mask,
    a ``nonzero``), and not where there are more reads a step than operators in a model.
    """
    ops = fallback_ops(log)
    if not ops or any(DYNAMIC.match(op) for op in ops):
        return False
    rates = [w.per_step or 0.0 for _, w in log.xla.warnings if w.metric == "TransferFromDeviceTime"]
    return max(rates, default=0.0) <= MAX_READS_EXPLAINED


#: Reads that are none of a warm-up, where no number of steps is said. Ours.
MANY_READS = 1000
#: Reads a step that operators on the host explain. Ours, between the public cases: 3.9 a step
#: with one such operator (pytorch/xla#3080), 211 where batches are read (#6015).
MAX_READS_EXPLAINED = 100.0


#: A line that says of one step how long it took, and nothing else of it.
_STEP_TOOK = re.compile(r"^\W{0,4}(?:step|iter(?:ation)?|batch)\W{1,3}(\d{1,6})\W{1,4}(?:(?:step )?(?:took|takes|time)\W{1,3})?(\d[\d.]* ?(?:s|sec|secs|seconds|min|minutes|m))\W*$", re.I)  # fmt: skip
MAX_EXECUTE_S = 30.0


@detector
class ExecutesSlowly(OutputDetector):
    """One execution takes very long."""

    NAME, CATEGORY = "execution_too_slow", "C4"
    SOURCE = "PyTorch/XLA metrics analysis: one execution > 30 s; three steps of that, from the first on, are ours"
    SAME_FAULT = ("recompile", "no_step_boundary")

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        slow = [(no, w.text) for no, w in log.xla.warnings if w.kind == "too slow" and w.metric == "ExecuteTime"]  # fmt: skip
        metric = log.xla.metrics.get("ExecuteTime")
        if metric and metric[1].unit == "s" and not slow:
            by = dict(metric[1].percentiles)  # the median: a first execution may wait for much
            mean = (metric[1].accumulator or 0.0) / max(metric[1].total_samples or 1, 1)
            if by.get(50, 0.0) > MAX_EXECUTE_S or mean > MAX_EXECUTE_S:
                slow = [(metric[0], metric[1].text)]
        if not slow:
            return self._each_step(log)
        evidence, at = evidence_of(slow)
        return Sighting(
            "one execution takes very long",
            evidence,
            "Call torch_xla.sync() once a step, so that the graph of one execution holds one step.",
            threshold="> 30 s",
            at=at,
        )

    @staticmethod
    def _each_step(log: LogLook) -> Sighting | None:
        """Steps from the first on that all take very long: nothing is compiled once and reused."""
        times: list[tuple[float, float, Line]] = []
        for line in log.having("step", "iter", "batch"):
            if m := _STEP_TOOK.match(line.text):
                seconds = durations(m[2])
                if not seconds:
                    return None
                times.append((float(m[1]), seconds[0], line))
        values = [seconds for _, seconds, _ in times]
        first = times[0][0] if times else 2.0
        if len(times) < 3 or first > 1 or min(values) <= MAX_EXECUTE_S:
            return None
        if max(values) > 1.5 * min(values):
            return None  # it gets faster or slower, which says something else
        evidence, at = quote(line for _, _, line in times)
        return Sighting(
            "every step takes as long as the first, which compiles (suspected: each one does)",
            evidence,
            "Run ten steps with PT_XLA_DEBUG_LEVEL=1, and compare compilations and transfers with "
            "the number of steps.",
            threshold=f"each of 3 steps or more > {MAX_EXECUTE_S:g} s, the first no longer",
            at=at,
        )
