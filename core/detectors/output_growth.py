"""What grows, slows down or stops: graphs, step times, memory, output itself."""

from __future__ import annotations

import itertools
import math
import re
import statistics
from functools import lru_cache

from core.detectors.base import MIN_STEPS, OutputDetector, Sighting, detector
from core.detectors.output_fields import Field, number, sizes
from core.detectors.output_look import Line, LogLook, Row, in_order, quote
from core.detectors.output_series import series

_GRAPH = re.compile(r"\b(?:graph|ir|hlo)\b.{0,12}\b(?:size|nodes?|ops?|instructions?|length)\b|tensorsgraphsize|num nodes|pending (?:ir|ops)|live tensors")  # fmt: skip


@detector
class GraphGrows(OutputDetector):
    """The traced graph is larger in each step."""

    NAME, CATEGORY = "graph_growth", "C4"
    SOURCE = (
        "public case graph_growth (pytorch/xla#1155): sizes spread evenly from 812 to 18233. A graph of "
        "one step has one size; evenly spread ones, or 4 growing readings that double, are ours"
    )
    SAME_FAULT = ("no_step_boundary",)

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        found = self._spread(log)
        if found is None:
            for growing in series(log, lambda key: bool(_GRAPH.search(key)), 3):
                values = growing.values
                rising = all(b > a for a, b in itertools.pairwise(values))
                if rising and values[0] > 0 and values[-1] >= 2 * values[0]:
                    found = quote(growing.readings)
                    break
        if found is None:
            return None
        evidence, at = found
        return Sighting(
            "the graph grows from step to step",
            evidence,
            "Call torch_xla.sync() once a step, and detach what is kept across steps (hidden "
            "state, running sums).",
            threshold="sizes spread evenly over a factor of 3, or doubled while growing",
            at=at,
        )

    @staticmethod
    def _spread(log: LogLook) -> tuple[list[str], tuple[int, ...]] | None:
        found = log.xla.metrics.get("TensorsGraphSize")
        if found is None or (found[1].total_samples or 0) < 2 * MIN_STEPS:
            return None
        by = dict(found[1].percentiles)
        low, mid, high = by.get(1), by.get(50), by.get(99)
        if low is None or mid is None or high is None or high < 3 * max(low, 1):
            return None
        # Even: the middle and, where printed, the fifths lie where a steady growth puts them.
        for share, value in ((0.2, by.get(20)), (0.5, mid), (0.8, by.get(80))):
            if value is not None and abs(value - (low + share * (high - low))) > 0.15 * (
                high - low
            ):
                return None
        return [found[1].text], (found[0],)


_STEP_TIME = re.compile(
    r"\b(?:step|iter(?:ation)?|batch|update) ?(?:time|duration|latency)\b|\b(?:time|s|sec|seconds|ms) ?(?:/|per) ?(?:step|iter(?:ation)?|batch|it|update)\b"
    r"|\b(?:s|sec|secs|seconds) ?(?:/|per) ?epoch\b|\bepoch time\b|^(?:avg |mean )?dt$|\bstep dt\b"
)
_OF_A_STEP = re.compile(
    r"^(?:avg|mean|average|median|each|per|one|train\w*) (?:step|iter\w*|batch)(?: takes| took)?$"
)
#: Lines of XLA's metrics report, whose rates are of other things than steps.
_REPORT = re.compile(r"^\s*(?:Value)?Rate: ")
_SPEED = re.compile(r"\b(?:it|iter|steps?|samples?|tokens?|examples|images?|img|seq\w*|wps|ups|sentences)(?: ?/ ?| per )s(?:ec|econd)?\b|\bwps\b|\bups\b|\bthroughput\b|\brate\b(?<!learning rate)(?<!dropout rate)")  # fmt: skip
_LABEL = re.compile(r"\b(fresh|without|w/o|before|first run|new run|initial|baseline|gpu|cuda|cpu|v100|a100|h100|p100|t4|1080 ?ti)\b|\b(tpu|torch_xla|xla|with|after|resumed?|restored?|reload\w*|loaded|load_state_dict|continued|from checkpoint)\b", re.I)  # fmt: skip
_HOST = re.compile(r"gpu|cuda|v100|a100|h100|p100|t4|1080 ?ti|cpu", re.I)
_CHIP = re.compile(r"tpu|xla", re.IGNORECASE)
_LOADED = re.compile(r"\b(?:resum(?:ed|ing)|restor(?:ed|ing)|(?:re)?load(?:ed|ing) (?:the )?(?:optimizer|checkpoint|ckpt|state\w*|from)|load_state_dict)\b", re.I)  # fmt: skip
_REMARKED = re.compile(r"(?:\(([A-Za-z][^()]{2,80})\)|#\s*(\S.{2,80}))\s*$")
_PLACE_KEY = re.compile(r"(?:^|\s)(?:step|steps|iter|iteration|batch|epoch|update)$")
_UNITS = ("s", "sec", "secs", "seconds", "ms")
#: A step that takes so many times as long as before is another step. Ours.
SLOWER = 2.0
#: Of three to eight readings, that only rise.
MUCH_SLOWER = 3.0


@detector
class StepsSlowDown(OutputDetector):
    """Steps take longer than they did before."""

    NAME, CATEGORY = "step_time_regression", "C4"
    SOURCE = (
        "public case step_time_regression (pytorch/pytorch#74424): 3.1 times as long after loading the "
        "optimizer. Ours: twice as long, by a label or in the last third of 9 readings; three times over fewer that only rise"
    )
    SAME_FAULT = ("recompile", "transfer_per_step", "no_step_boundary", "compile_too_slow")
    MEASURED = ("dt",)

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        found = (
            self._labelled(log)
            or self._resumed(log)
            or self._drift(log)
            or self._remarked(log)
            or self._bare(log)
        )
        if found is None:
            return None
        shown, ratio = found
        evidence, at = quote(shown)
        return Sighting(
            f"steps take {ratio:.1f} times as long as before",
            evidence,
            "Compare transfers and compilations per step before and after: an optimizer's step "
            "counter that became a device tensor, or a graph that grows, does this.",
            threshold=f"{SLOWER:g} times as long",
            at=at,
        )

    @staticmethod
    def _labelled(log: LogLook) -> tuple[list[Line], float] | None:
        for line in log.having("before"):
            m = _BEFORE_AFTER.search(line.text)
            if m and number(m[2]) >= SLOWER * number(m[1]) > 0:
                return [line], number(m[2]) / number(m[1])
        before: tuple[float, Line] | None = None
        host: tuple[float, Line] | None = None
        chip: tuple[float, Line] | None = None
        for r in log.readings(lambda _: True, _is_step_time if not log.excerpt else _takes):
            spoken = list(_LABEL.finditer(r.row.text[: r.field.pos])) or list(
                _LABEL.finditer(r.row.text)
            )
            label = spoken[-1] if spoken else None
            value = _seconds(r.row, r.field) or _plain_seconds(r.field)
            if label is None or value is None:
                continue
            if any(_CHIP.search(m[0]) for m in spoken):
                chip = chip or (value, r.row.line)
            elif _HOST.fullmatch(label[0]):
                host = min(host or (value, r.row.line), (value, r.row.line), key=lambda x: x[0])
            if label[1] or (
                re.search(r"\bbefore (?:resum|load|restor)", r.row.text[: r.field.pos], re.I)
                and "after" not in r.row.text[: r.field.pos]
            ):
                before = before or (value, r.row.line)
            elif before and value >= SLOWER * before[0]:
                return [before[1], r.row.line], value / before[0]
        if host and chip and host[1].no != chip[1].no and chip[0] >= SLOWER * host[0]:
            return in_order([host[1], chip[1]]), chip[0] / host[0]
        return None

    @staticmethod
    def _resumed(log: LogLook) -> tuple[list[Line], float] | None:
        """Times of steps before and after a line that says that a state was loaded."""
        marks = log.matching(_LOADED, 3, "resum", "restor", "load")
        times = series(log, lambda _: True, 4, _is_step_time) if marks else []
        for mark, found in itertools.product(marks, times):
            sides: dict[bool, list[tuple[float, Line]]] = {True: [], False: []}
            for r in found.readings:
                if (v := _seconds(r.row, r.field)) is not None:
                    sides[r.row.line.no < mark.no].append((v, r.row.line))
            old, new = sides[True], sides[False]
            if min(len(old), len(new)) < 2:
                continue
            # Its first step compiles again: the quickest one after it counts.
            was, least = statistics.median(v for v, _ in old), min(v for v, _ in new)
            if was > 0 and least >= SLOWER * was:
                return [old[-1][1], mark, new[-1][1]], least / was
        return None

    @staticmethod
    def _remarked(log: LogLook) -> tuple[list[Line], float] | None:
        """Two readings and no more, each with another remark in brackets: they are compared."""
        for found in series(log, lambda _: True, 2, _is_step_time) if log.excerpt else ():
            a, b = found.readings[0], found.readings[-1]
            remarks = [m[0] for r in (a, b) if (m := _REMARKED.search(r.row.text))]
            old, new = _seconds(a.row, a.field), _seconds(b.row, b.field)
            if len(found.readings) == 2 and len(set(remarks)) == 2 and old and new:
                if new >= SLOWER * old:
                    return [a.row.line, b.row.line], new / old
        return None

    @staticmethod
    def _bare(log: LogLook) -> tuple[list[Line], float] | None:
        """Seconds behind a step's number, ``step 3 | 12.9 s``, that grow more with each step.

        Time since the start grows, too, but by as much each time.
        """
        times = []
        for row in log.rows:
            own = [f for f in row.fields if not _PLACE_KEY.search(f.key)]
            if (
                (row.step, row.epoch) != (None, None)
                and len(own) == 1
                and own[0].unit in _UNITS
                and not own[0].key
            ):
                times.append((own[0].value, row.line))
        values = [v for v, _ in times]
        if len(values) < 4 or len(values) < len(log.rows) - 2:
            return None
        more = [b - a for a, b in itertools.pairwise(values)]
        if min(more) > 0 and more[-1] >= 2 * more[0] and values[-1] >= MUCH_SLOWER * values[0]:
            return [line for _, line in times], values[-1] / values[0]
        return None

    @staticmethod
    def _bars(log: LogLook) -> tuple[list[Line], float] | None:
        """Rates of a progress bar, of an excerpt, that only get worse."""
        rates: list[tuple[float, Line]] = []
        for line in log.having("s/it]", "it/s]", "s/it,", "it/s,") if log.excerpt else ():
            if m := _BAR_RATE.search(line.text):
                rates.append(
                    (number(m[1]) if m[2] == "s/it" else 1 / max(number(m[1]), 1e-9), line)
                )
        values = [v for v, _ in rates]
        if len(values) < 3 or not all(b > a for a, b in itertools.pairwise(values)):
            return None
        ratio = values[-1] / max(values[0], 1e-9)
        return ([line for _, line in rates], ratio) if ratio >= MUCH_SLOWER else None

    @staticmethod
    def _drift(log: LogLook) -> tuple[list[Line], float] | None:
        if bars := StepsSlowDown._bars(log):
            return bars
        times = series(log, lambda _: True, 3, _is_step_time)
        for found in times:
            values = [v for r in found.readings if (v := _seconds(r.row, r.field)) is not None]
            if len(values) < 9:
                rising = all(b > a for a, b in itertools.pairwise(values))
                if rising and values[-1] >= MUCH_SLOWER * values[0]:
                    return [r.row.line for r in found.readings], values[-1] / values[0]
                continue
            third = len(values) // 3
            # The first steps compile and are slow: a healthy run gets faster, never slower.
            early, mid, late = (statistics.median(values[i * third : (i + 1) * third]) for i in range(3))  # fmt: skip
            if early > 0 and late >= SLOWER * early and late >= mid >= early and min(values[-third:]) > 1.5 * early:  # fmt: skip
                ends = [found.readings[0], found.readings[len(values) // 2], found.readings[-1]]
                return [r.row.line for r in ends], late / early
        return None


_PER_SECOND = re.compile(r" ?(?:it|iter|iters|iterations?|steps?|samples?|batch(?:es)?|images?|tokens?) ?(?:/|per) ?s(?:ec(?:ond)?)?\b")  # fmt: skip
_BAR_RATE = re.compile(r"(?<![\w.])(\d{1,7}(?:\.\d+)?)\s?(s/it|it/s)\b")
#: Both sides in one line: ``step time 0.31 s before the load, 1.44 s after``.
_BEFORE_AFTER = re.compile(
    r"\b(?:step|iter\w*|batch|epoch) (?:time|takes|took)\W{1,3}(\d+\.?\d*) ?(?:s|ms|sec|seconds)? before\b.{1,60}?(?<![\w.])(\d+\.?\d*) ?(?:s|ms|sec|seconds)? after\b",
    re.IGNORECASE,
)
#: Times that grow by right, or are of another thing than steps.
_OTHER_TIME = re.compile(r"total|elapsed|since|compil|load|start|wall|data|eta|remain|up ?time|import|init|warm")  # fmt: skip
_OF_WORK = re.compile(r"time|step|epoch|iter|batch|took|takes|per|inference|forward|infer|train|latency|item|image|sample|prompt|request")  # fmt: skip


def _takes(row: Row, field: Field) -> bool:
    """Whether a number says how long a step, an epoch or the like took, in any words."""
    if _is_step_time(row, field):
        return True
    timed = field.unit.lower() in _UNITS and math.isfinite(field.value) and field.value > 0
    return timed and bool(_OF_WORK.search(field.key)) and not _OTHER_TIME.search(row.text.lower())


def _plain_seconds(field: Field) -> float:
    return field.value * (1e-3 if field.unit.lower() == "ms" else 1.0)


def _is_step_time(row: Row, field: Field) -> bool:
    return _seconds(row, field) is not None


@lru_cache(maxsize=2048)
def _kind(key: str, unit: str) -> str:
    if _OF_A_STEP.search(key) and unit in ("s", "ms", "sec", "seconds"):
        return "time"
    if _STEP_TIME.search(key) or unit in (
        "s/it",
        "s/step",
        "s/iter",
        "ms/step",
        "ms/it",
        "s/batch",
        "s/epoch",
        "secs/epoch",
    ):
        return "time"
    if unit in ("it/s", "steps/s", "step/s", "samples/s", "tokens/s"):
        return "speed"
    if _SPEED.search(key) and "lr" not in key and "learning" not in key and "drop" not in key:
        return "speed"
    return ""


def _seconds(row: Row, field: Field) -> float | None:
    """Seconds (or another unit of time) per step that a number says; a speed is turned over."""
    if not math.isfinite(field.value) or field.value <= 0 or row.evaluation:
        return None
    if _REPORT.match(row.text):
        return None
    unit = field.unit.lower()
    if _PER_SECOND.match(row.text, field.pos + len(field.text)):
        return 1 / field.value
    kind = _kind(field.key, unit)
    if kind == "time":
        return field.value * (1e-3 if unit.startswith("ms") else 1.0)
    return 1 / field.value if kind == "speed" else None


_MEMORY = re.compile(r"\b(?:rss|memory|mem|ram|vmrss|maxrss|resident)\b")
_OTHER_MEMORY = re.compile(r"\b(?:gpu|hbm|cuda|device|vram|alloc\w*|reserved|peak|max|limit|total|available|avail|free|swap|shared|cached|buffers?|budget|saved|needed|required|per|bandwidth|cache)\b")  # fmt: skip
_OF_STEPS = re.compile(r"\b(?:step|epoch|iter\w*|batch)s?\b", re.IGNORECASE)
_FACTOR = {"b": 2.0**-20, "bytes": 2.0**-20, "k": 2.0**-10, "m": 1.0, "g": 2.0**10, "t": 2.0**20}


#: Of three readings in an excerpt: the last of them is so many times the first. Ours.
MUCH_MORE = 2.5


@detector
class MemoryGrows(OutputDetector):
    """The host's memory grows from step to step."""

    NAME, CATEGORY = "rss_slope", "C4"
    SOURCE = (
        "public case rss_slope (pytorch/xla#4863: 0.5 to 13.8 in two steps, then killed). Ours: at least "
        "doubled and 256 MiB more, growing in both halves, over 6 readings (4 with a unit, 3 if it was killed)"
    )
    SAME_FAULT = ("rss_slope", "no_step_boundary")
    MEASURED = ("rss_mb",)

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        if listed := self._listed(log):
            return self._say(listed, "")
        killed = bool(log.having(*_KILL_WORDS)) and log.ending.kind == "killed"
        for found in series(log, _is_memory, 3 if killed or log.excerpt else 4, None if log.excerpt else _has_size):  # fmt: skip
            shares = all(r.field.unit == "%" for r in found.readings)
            if not found.finite or (shares and len(found.readings) < 4):
                continue
            units = all(r.field.unit for r in found.readings)
            few = len(found.readings) < 4 and not killed
            if few and found.values[-1] < MUCH_MORE * found.values[0]:
                continue
            if len(found.readings) < 6 and not (killed or units):
                continue
            values = [r.value * _FACTOR.get(r.field.unit.lower()[:1], 1.0) for r in found.readings]
            if not self._grows(values, any(r.field.unit not in ("", "%") for r in found.readings)):
                continue
            shown = [found.readings[0], found.readings[len(values) // 2], found.readings[-1]]
            lines = [r.row.line for r in shown]
            if killed:
                lines += [log.lines[i] for i in log.ending.lines]
            return self._say(lines, " until the kernel kills the run" if killed else "")
        return None

    @staticmethod
    def _say(lines: list[Line], more: str) -> Sighting:
        evidence, at = quote(lines)
        return Sighting(
            "host memory grows from step to step" + more,
            evidence,
            "Call torch_xla.sync() once a step, and keep no lazy tensors across steps (sum "
            "losses as floats read every few steps).",
            threshold="doubled, and growing in both halves",
            at=at,
        )

    @staticmethod
    def _listed(log: LogLook) -> list[Line]:
        """Of an excerpt: sizes of steps or epochs, in one line or in several, that only rise."""
        found: list[tuple[float, Line]] = []
        for line in log.having("rss", "ram", "mem") if log.excerpt else ():
            if _MEMORY.search(line.text.lower()) and not _OTHER_MEMORY.search(line.text.lower()):
                got = sizes(line.text)
                if len(got) >= 3 or (got and _OF_STEPS.search(line.text)):
                    found += [(size, line) for size, _, _ in got]
            if len(found) >= 3 and len({x.no for _, x in found}) == 1:
                break  # of several lists the first one that grows
        values = [v for v, _ in found]
        rises = all(b > a for a, b in itertools.pairwise(values))
        if len(values) < 3 or not rises or values[-1] < 1.35 * values[0] or values[-1] < 4e9:
            return []
        if values[-1] - values[-2] < 0.3 * (values[1] - values[0]):
            return []  # it settles
        return list(dict.fromkeys(x for _, x in found))

    @staticmethod
    def _grows(values: list[float], known_unit: bool) -> bool:
        first, last = values[0], values[-1]
        middle = values[len(values) // 2]
        rises = sum(b > a for a, b in itertools.pairwise(values))
        grown = last - first
        return (
            first > 0
            and last >= 2 * first
            and (not known_unit or grown >= 256)
            and last - middle >= 0.2 * grown
            and rises >= 0.75 * (len(values) - 1)
        )


def _is_memory(key: str) -> bool:
    return bool(_MEMORY.search(key) and not _OTHER_MEMORY.search(key))


def _has_size(_: Row, field: Field) -> bool:
    return field.unit != "%" and math.isfinite(field.value)


_KILL_WORDS = ("kill", "137", "signal 9", "oom", "more memory than", "available ram")


@detector
class KilledByKernel(OutputDetector):
    """The kernel ended the run without a word of the program: the host ran out of memory."""

    NAME, CATEGORY = "host_killed", "C6"
    SOURCE = "the shell's and the kernel's words for SIGKILL; the OOM killer raises no error"
    SAME_FAULT = ("rss_slope", "no_step_boundary", "error")

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        if not log.having(*_KILL_WORDS) or log.ending.kind != "killed":
            return None
        evidence, at = quote(log.lines[i] for i in log.ending.lines)
        return Sighting(
            "the process was killed: most likely the host ran out of memory",
            evidence,
            "Look at the kernel's log (dmesg) for the OOM killer, and at memory per step: fewer "
            "processes and workers, or load the weights once and share them.",
            threshold="any SIGKILL",
            at=at,
        )
