"""Compilations as the output shows them: again and again, or very long.

Thresholds are those of PyTorch/XLA's own metrics analysis and troubleshooting guide.
"""

from __future__ import annotations

import itertools
import re

from core.detectors.base import MIN_STEPS, OutputDetector, Sighting, detector
from core.detectors.lazy import MAX_COMPILE_S, MAX_RATE
from core.detectors.output_fields import clock, durations
from core.detectors.output_look import LogLook
from core.detectors.output_rates import Found, evidence_of, frequent, rate_of
from core.detectors.output_series import series
from core.readings.xla_signals import ProfilerWarning

_LIMIT = re.compile(r"(?:recompile_limit|cache_size_limit|accumulated_recompile_limit)\b.{0,20}(?:reach|hit|\(\d+\))|hit (?:config\.)?(?:recompile_limit|cache_size_limit)")  # fmt: skip
_AGAIN = re.compile(
    r"\b(?:recompil(?:ing|ed|ation|es)|re-compil\w+|new graph (?:hash|compiled)|graph (?:hash )?changed|uncached compile)\b",
    re.IGNORECASE,
)
_STEP_COMPILES = re.compile(r"^\W{0,4}(?:step|iter\w*|batch)\W{1,3}\d{1,8}\W{1,4}(?:re-?)?compil(?:e|es|ed|ing|ation)\W*$", re.I)  # fmt: skip
_AT_EACH = re.compile(
    r"\b(?:re-?compil(?:es|ing|ed|ation)|compil(?:es|ing|ed) again|new graph|graph (?:hash )?(?:changes|differs|is new|is different))\b.{0,20}\b(?:every|each)\b (?:train\w* )?(?:step|iteration|batch)",
    re.IGNORECASE,
)
_AGAIN_NOT = re.compile(r"\b(?:no|0|without|avoid\w*|prevent\w*|never|not|if|may|would|to reduce|warn)\b.{0,30}(?:re-?compil|graph)|recompil\w* ?[:=] ?0\b", re.I)  # fmt: skip
_FINISHED = re.compile(r"Finished XLA compilation of (\S+) in|\bCompiling (?!module)(\w\S*) (?:for|with|\()|Compiling IR graph hash \S+ on device .{1,20}done")  # fmt: skip
_COMPILES = re.compile(r"\b(?:uncached ?compiles?|(?:re)?compiles?|(?:re)?compilations?|(?:re)?compile count|graphs compiled|new graphs|compile ?time total ?samples)$")  # fmt: skip
_IN_STEPS = re.compile(r"\b(\d{1,9}) (?:new )?(?:graphs? |programs? |times )?(?:were |are )?(?:re)?compil\w* (?:in|during|over|for|after) (\d{1,9}) (?:steps|iterations|batches)", re.I)  # fmt: skip
#: Compilations that somebody quotes without a number of steps. Ours: a program has a few graphs.
MANY_ALONE = 30
_EACH_COMPILE = re.compile(r"\bcompil(?:ed|ing|ation|e)\b", re.IGNORECASE)
_MISS = re.compile(r"\bcache miss\b", re.IGNORECASE)
_HITS = re.compile(r"\bhits?\W{1,3}(\d{1,9})\W.{0,20}\bmiss(?:es)?\W{1,3}(\d{1,9})", re.IGNORECASE)
_OF_STEPS = re.compile(r"\bcompil\w* (\d{1,9}) (?:times |graphs |programs )?(?:in|during|over|for|after) (\d{1,9}) (?:steps|iterations|batches)", re.I)  # fmt: skip
#: Compilations of one function that are more than its shapes at start and end explain. Ours.
MANY_COMPILES = 5


_NOTICED = re.compile(r"XLA compilation detected")
_CALLED = re.compile(
    r"Call compiler with cmd.{0,400}?MODULE_(\w+)|Compiling (?:IR )?graph hash (\w+)"
)
#: Steps after which a compilation is none of the warm-up: shapes of a first batch, of a last
#: one and of an evaluation are known by then. Ours.
WARM_UP = 50.0


@detector
class CompilesAgain(OutputDetector):
    """The graph is compiled in about every step."""

    NAME, CATEGORY = "recompile", "C4"
    SOURCE = (
        "PyTorch/XLA metrics analysis: CompileTime too frequent, > 0.5 a step after 10 steps; JAX's and "
        "torch.compile's own complaints; 5 compilations of one function after another (ours)"
    )
    SAME_FAULT = ("recompile",)
    MEASURED = ("compiles",)

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        found = frequent(log, "CompileTime") or self._counted(log) or self._said(log)
        if not found:
            return None
        evidence, at = evidence_of(found)
        return Sighting(
            "the graph is compiled again and again",
            evidence,
            "Give every batch the same shapes (pad to a fixed length, weight instead of "
            "indexing with a mask) and keep changing Python numbers out of the graph.",
            threshold=f"> {MAX_RATE:g} a step after {MIN_STEPS} steps",
            at=at,
        )

    @staticmethod
    def _counted(log: LogLook) -> Found:
        xla = log.xla
        for name in ("CompileTime", "UncachedCompile"):
            count = xla.samples(name) if name == "CompileTime" else xla.count(name)
            rate = rate_of(log, count, xla.steps)
            if rate is not None and rate > MAX_RATE:
                metric, counter = xla.metrics.get(name), xla.counters.get(name)
                if metric:
                    return [(metric[0], f"{metric[1].text} (in {xla.steps} steps)")]
                if counter:
                    return [(counter[0], f"{counter[1].text} (in {xla.steps} steps)")]
        if reports := CompilesAgain._reports(log):
            return reports
        fresh, cached = xla.count("UncachedCompile") or 0, xla.count("CachedCompile")
        if xla.steps is None and cached is not None and fresh >= 2 * MIN_STEPS and fresh > cached:
            pair = (xla.counters["UncachedCompile"], xla.counters["CachedCompile"])
            return [(no, signal.text) for no, signal in pair]
        counts = [
            log.by_key[k][-1] for k in ("uncachedcompile", "cachedcompile") if k in log.by_key
        ]
        if len(counts) == 2 and counts[0].value >= max(2 * MIN_STEPS, counts[1].value + 1):
            return [(r.row.line.no, r.row.text) for r in counts]
        compiled = [x for x in log.having("compil") if _STEP_COMPILES.match(x.text)]
        if len({x.text for x in compiled}) >= 4:  # the first two compile in a healthy run
            return [(x.no, x.text) for x in compiled]
        for line in log.having("compil"):
            m = _IN_STEPS.search(line.text)
            if m and int(m[2]) >= MIN_STEPS and int(m[1]) > MAX_RATE * int(m[2]):
                return [(line.no, line.text)]
        for r in log.readings(lambda key: bool(_COMPILES.search(key))):
            if (r.row.step or 0) >= MIN_STEPS and r.value > MAX_RATE * (r.row.step or 0):
                return [(r.row.line.no, r.row.text)]
        for found in series(log, lambda key: bool(_COMPILES.search(key))):
            steps, values = found.span, found.values
            rising = values[-1] - values[0] > MAX_RATE * steps and steps >= MIN_STEPS
            # Counts of each step, since a total never falls.
            falls = any(b < a for a, b in itertools.pairwise(values))
            if log.excerpt and falls and len(values) >= 3 and all(v > 0 for v in values):
                return [(r.row.line.no, r.row.text) for r in found.readings[-3:]]
            # More with each of a few steps that were quoted, whatever the number.
            steady = log.excerpt and len(values) >= 3 and all(b > a for a, b in itertools.pairwise(values))  # fmt: skip
            rising = rising or (steady and steps <= MIN_STEPS)
            rest = values[2:]  # the first two steps compile in a healthy run
            each = len(rest) >= 3 and all(0 < v <= 20 and v == int(v) for v in rest) and found.same
            if rising or each:
                return [(r.row.line.no, r.row.text) for r in found.readings[-3:]]
        return []

    @staticmethod
    def _reports(log: LogLook) -> Found:
        """Reports of one run, one after another, with more compilations in each."""
        xla = log.xla
        later = [c for c in xla.compiles if c[1] >= MANY_COMPILES]  # after the warm-up
        # A whole report has ExecuteTime, too; of two that are quoted in part more can't be asked.
        least = 3 if xla.metrics.get("ExecuteTime") else 2
        if len(later) >= least and all(b[1] > a[1] for a, b in itertools.pairwise(later)):
            return [(no, f"CompileTime: {count} compilations so far") for no, count in later[-3:]]
        return []

    @staticmethod
    def _unlike(log: LogLook) -> Found:
        """Compilations of one cause, each of another graph, where nothing else is printed."""
        reports = [(no, r) for no, r in log.xla.reports if r.kind == "compilation"]
        others = [x for x in log.lines if x.text.strip() and " Analysis: " not in x.text]
        hashes = {r.graph_hash for _, r in reports if r.graph_hash}
        causes = {r.cause for _, r in reports}
        if len(hashes) < 3 or len(hashes) < len(reports) or len(causes) != 1 or len(others) > 2:
            return []
        return [(no, f"compiled, graph {r.graph_hash}: {r.cause}") for no, r in reports]

    @staticmethod
    def _noticed(log: LogLook) -> Found:
        """fairseq notices compilations, and says of the first ones that they are to be expected."""
        found: Found = []
        step = 0.0
        rows = {row.line.no: row.step for row in log.rows}
        for line in log.lines if log.having("xla compilation detected") else ():
            if _NOTICED.search(line.text):
                if step >= WARM_UP:
                    found.append((line.no, line.text))
                continue
            bar = _BAR_DONE.search(line.text)
            step = max(step, rows.get(line.no) or 0.0, float(bar[1]) if bar else 0.0)
        return found if len(found) >= (1 if log.excerpt else 2) else []

    @staticmethod
    def _between(log: LogLook) -> Found:
        """A compiler that is called between the steps, each time for another graph."""
        found: dict[str, tuple[int, str]] = {}
        steps = 0
        stepped = {row.line.no for row in log.rows if row.step is not None}
        calls = [x for x in log.having("call compiler", "graph hash") if _CALLED.search(x.text)]
        for line in log.lines if len(calls) >= 3 else ():
            m = _CALLED.search(line.text)
            if m and steps:  # what is compiled before the first step is no sign
                found.setdefault(m[1] or m[2], (line.no, line.text))
            elif line.no in stepped:
                steps += 1
        many = 2 if log.excerpt else MANY_COMPILES
        rest = list(found.values())
        return rest if len(rest) >= many and len(rest) > MAX_RATE * steps and steps >= 2 else []

    @staticmethod
    def _quoted(log: LogLook) -> Found:
        """Of an excerpt: lines that each say that something was compiled, or counts of a cache."""
        times = [
            x
            for x in log.having("compil")
            if durations(x.text) and _EACH_COMPILE.search(x.text) and "MODULE_0" not in x.text
        ]
        alike = {re.sub(r"\d+", "", x.text) for x in times}
        if len(times) >= 3 and len(alike) == 1:
            return [(x.no, x.text) for x in times]
        total, runs = log.xla.samples("CompileTime"), log.xla.samples("ExecuteTime")
        if total is not None and total >= MANY_ALONE and (runs or 0) < 10 * total:
            metric = log.xla.metrics.get("CompileTime")
            return [(metric[0], metric[1].text)] if metric and not log.xla.steps else []
        misses = log.matching(_MISS, 5, "miss")
        if len(misses) >= 4:
            return [(x.no, x.text) for x in misses]
        for line in log.having("miss"):
            m = _HITS.search(line.text)
            if m and int(m[2]) >= 2 * MIN_STEPS and int(m[2]) > int(m[1]):
                return [(line.no, line.text)]
        for line in log.having("compil"):
            m = _OF_STEPS.search(line.text)
            if m and int(m[2]) >= MIN_STEPS and int(m[1]) > MAX_RATE * int(m[2]):
                return [(line.no, line.text)]
        return []

    @staticmethod
    def _said(log: LogLook) -> Found:
        if log.excerpt and (quoted := CompilesAgain._quoted(log)):
            return quoted
        if between := CompilesAgain._between(log):
            return between
        if noticed := CompilesAgain._noticed(log):
            return noticed
        each = log.matching(_AT_EACH, 2, "every", "each")
        if each := [x for x in each if not _AGAIN_NOT.search(x.text)]:
            return [(line.no, line.text) for line in each]
        limit = log.matching(_LIMIT, 2, "_limit")
        if limit:
            return [(line.no, line.text) for line in limit]
        by_frame: dict[str, list[tuple[int, str, str]]] = {}
        for no, report in log.xla.reports:
            if report.kind == "compilation" and report.user_frame:
                text = f"compiled at {report.user_frame}: {report.cause}"
                by_frame.setdefault(str(report.user_frame), []).append(
                    (no, text, report.graph_hash)
                )
        if alone := CompilesAgain._unlike(log):
            return alone
        for items in by_frame.values():
            if len({h for _, _, h in items}) >= MANY_COMPILES:
                return [(no, text) for no, text, _ in items]
        named: dict[str, Found] = {}
        again: Found = []
        for line in log.having("compil", "new graph", "graph changed", "graph hash"):
            m = _FINISHED.search(line.text)
            if m and (m[1] or m[2]):
                named.setdefault(m[1] or m[2], []).append((line.no, line.text))
            if _AGAIN.search(line.text) and not _AGAIN_NOT.search(line.text):
                again.append((line.no, line.text))
        most = max(named.values(), key=len, default=[])
        if len(most) >= MANY_COMPILES:
            return most
        return again if len(again) >= 3 else []


_COMPILE_WORD = re.compile(r"\b(?:re)?compil(?:e|ed|es|ing|ation|ations)\b|\bcompile_time\b|\bcompile time\b", re.I)  # fmt: skip
_COMPILE_NOT = re.compile(r"\b(?:expected|estimate|timeout|limit|up to|may take|can take|cache|total|budget|flags?|kernel|extension|ninja|cuda|g\+\+|gcc|build)\b|\bETA\b|\belapsed\b", re.I)  # fmt: skip
_ALARM = re.compile(r"slow_operation_alarm|Very slow compile")
_BAR_DONE = re.compile(r"(\d+)/(\d+) \[([\d:]+)<")


@detector
class CompilesSlowly(OutputDetector):
    """A compilation takes very long, or most of the time."""

    NAME, CATEGORY = "compile_too_slow", "C4"
    SOURCE = (
        "PyTorch/XLA metrics analysis: one compilation > 300 s (pytorch/xla#4203); XLA's own alarm; and, "
        "ours, compilations of > 300 s together that are more than half of the run (#6614)"
    )
    SAME_FAULT = ("recompile",)
    MEASURED = ("compile_s",)

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        found = self._warned(log) or self._share(log) or self._said(log)
        if not found:
            return None
        evidence, at = evidence_of(found)
        return Sighting(
            "compiling takes very long",
            evidence,
            "Look for a loop that is traced into one graph; end the graph inside it with "
            "torch_xla.sync(), and keep shapes fixed.",
            threshold=f"one > {MAX_COMPILE_S:g} s, or more than half of the run",
            at=at,
        )

    @staticmethod
    def _warned(log: LogLook) -> Found:
        slow: list[tuple[int, ProfilerWarning]] = [
            (no, w)
            for no, w in log.xla.warnings
            if w.kind == "too slow" and w.metric == "CompileTime"
        ]
        found = [(no, w.text) for no, w in slow]
        alarms = [
            (x.no, x.text)
            for x in log.matching(_ALARM, 3, "slow_operation_alarm", "very slow compile")
        ]
        for line in log.having("compiletime too slow"):
            if any(x > MAX_COMPILE_S for x in durations(line.text)) and not found:
                found.append((line.no, line.text))
        return found or (alarms if any("Very slow compile" in t for _, t in alarms) else [])

    @staticmethod
    def _share(log: LogLook) -> Found:
        found = log.xla.metrics.get("CompileTime")
        if found is None or found[1].unit != "s":
            return []
        if max((v for _, v in found[1].percentiles), default=0.0) > MAX_COMPILE_S:
            return [(found[0], found[1].text)]
        if not found[1].accumulator:
            return []
        total, metric = found[1].accumulator, found[1]
        text = metric.text
        longest = max((v for _, v in metric.percentiles), default=0.0)
        if longest > MAX_COMPILE_S or total / max(metric.total_samples or 1, 1) > MAX_COMPILE_S:
            return [(found[0], text)]
        if total <= MAX_COMPILE_S:
            return []
        executed = log.xla.metrics.get("ExecuteTime")
        whole = (
            total + (executed[1].accumulator or 0.0)
            if executed and executed[1].unit == "s"
            else 0.0
        )
        shown = [(found[0], text)]
        for line in log.having("it]", "it/s"):
            if m := _BAR_DONE.search(line.text):
                if clock(m[3]) >= total:
                    whole = clock(m[3])
                    shown = [(found[0], text), (line.no, line.text)]
        return shown if whole and total > 0.5 * whole else []

    @staticmethod
    def _said(log: LogLook) -> Found:
        found = []
        for line in log.having("compil"):
            text = line.text
            if (
                not _COMPILE_WORD.search(text)
                or _COMPILE_NOT.search(text)
                or "pt-xla-profiler" in text
            ):
                continue
            where = _COMPILE_WORD.search(text)
            assert where is not None
            near = text[max(0, where.start() - 60) : where.end() + 80]
            if "<" in near and "it" in near:
                continue
            if any(MAX_COMPILE_S < s < 7 * 86400 for s in _plain(near)):
                found.append((line.no, text))
        return found


def _plain(text: str) -> list[float]:
    """Durations with a unit; a bare clock such as 12:40 may be the time of day."""
    return durations(
        re.sub(r"\d{1,4}[-/]\d{1,2}[-/]\d{1,4}|\d{1,2}:\d{2}:\d{2}(?:[.,]\d+)?", " ", text)
    )
