"""How often a thing happens in a step, by XLA's own reports: shared by detectors."""

from __future__ import annotations

import re

from core.detectors.base import MIN_STEPS
from core.detectors.lazy import MAX_RATE
from core.detectors.output_look import LogLook

#: Lines found: number and text.
Found = list[tuple[int, str]]


def evidence_of(found: Found, limit: int = 5) -> tuple[list[str], tuple[int, ...]]:
    """Texts and numbers of the first lines found, each line once: for evidence."""
    shown: dict[int, str] = {}
    for no, text in found:
        shown.setdefault(no, text.strip()[:400])
    items = list(shown.items())[:limit]
    return [text for _, text in items], tuple(no for no, _ in items)


def frequent(log: LogLook, metric: str) -> Found:
    """The profiler's last complaint of a metric's rate, if it was not over soon after."""
    warned = [
        (no, w) for no, w in log.xla.warnings if w.kind == "too frequent" and w.metric == metric
    ]
    if not warned:
        return _retold(log, metric)
    no, last = max(warned, key=lambda item: item[1].steps or 0)
    if (last.per_step or 0) <= MAX_RATE:
        return []
    steps = [r.step for r in log.rows if r.step is not None and r.line.no > no]
    if steps and last.steps and max(steps) > 4 * last.steps and len(steps) >= MIN_STEPS:
        return []  # it was the warm-up: many steps passed since without a complaint
    return [(no, last.text)]


def rate_of(log: LogLook, count: int | None, steps: int | None) -> float | None:
    """Counts per step, where there are steps enough to speak of a rate."""
    if not count or not steps or steps < MIN_STEPS:
        return None
    return count / steps


#: The profiler's complaint as people retell it, its colon or its name left out.
_RETOLD = re.compile(
    r"\b(CompileTime|TransferFrom(?:Server|Device)Time)\b(?: too frequent\b|.{0,4}TotalSamples)\D{0,20}(\d{1,9})"
    r"(?: counts?| times)? (?:in|during|over|for|within|after) (\d{1,9}) steps"
)


def _retold(log: LogLook, metric: str) -> Found:
    for line in log.having("too frequent", "totalsamples"):
        m = _RETOLD.search(line.text)
        if (
            m
            and m[1].replace("Server", "Device") == metric
            and int(m[2]) > MAX_RATE * int(m[3])
            and int(m[3]) >= MIN_STEPS
        ):
            return [(line.no, line.text)]
    return []
