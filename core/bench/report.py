"""The result of the measurement as one JSON object and as a table of 80 columns."""

from __future__ import annotations

import textwrap
from typing import Any

from core.bench.compare import LIMIT, LONG_STEP_S
from core.bench.probe import Case, Report

WIDTH = 80


def as_json(report: Report) -> dict[str, Any]:
    """One object: ``holds``, ``limit``, circumstances, and a list of ``cases``."""
    return {
        "holds": report.holds,
        "limit": LIMIT,
        "judged_from_ms": LONG_STEP_S * 1e3,
        "python": report.python,
        "torch": report.versions.get("torch"),
        "torch_xla": report.versions.get("torch_xla"),
        "cpus": report.cpus,
        "load": report.load,
        "own_ms": {device: round(value, 4) for device, value in report.own_ms.items()},
        "cases": [_case(case) for case in report.cases],
    }


def _case(case: Case) -> dict[str, Any]:
    found = case.compared
    return {
        "device": case.device,
        "model": case.model,
        "state": case.verdict.state,
        "reasons": list(case.verdict.reasons),
        "judged": case.judged,
        "batch": case.batch,
        "tensors": case.tensors,
        "steps": None if found is None else found.steps,
        "off_ms": None if found is None else round(found.off_s * 1e3, 4),
        "on_ms": None if found is None else round(found.on_s * 1e3, 4),
        "ratio": None if found is None else round(found.ratio, 5),
        "interval": None if found is None else [round(found.low, 5), round(found.high, 5)],
        "processor_ratio": None if found is None else round(found.processor, 5),
        "paired_ratio": None if found is None else round(found.paired, 5),
        "added": case.added,
    }


def describe(report: Report) -> str:
    """The table, the reasons of what does not pass, and the answer."""
    lines = [_line("device", "model", "off ms", "on ms", "ratio", "95 % interval", "CPU", "added")]
    lines[0] += "state"
    lines += [_row(case) for case in report.cases]
    lines.append("")
    where: dict[tuple[str, str], list[str]] = {}
    for case in report.cases:
        for reason in case.verdict.reasons:
            where.setdefault((case.device, reason), []).append(case.model)
    for (device, reason), models in where.items():
        lines += _wrap(f"{device} {', '.join(models)}: {reason}", "  ")
    lines += _wrap(
        f"Median step time with the probe and without, in turns; {LIMIT:g} times as long at most, "
        f"for steps of {LONG_STEP_S * 1e3:.0f} ms or more. CPU: the ratio of processor time, which "
        "neighbours hardly change; it is not judged. Added: compilations, executions, transfers, "
        "scalar reads and fallbacks by XLA's own counters."
    )
    if any(_unclear(case) for case in report.cases):
        lines += _wrap(
            f"An interval reaches over {LIMIT:g} on one side only: measure with more --steps, or "
            "on an idle machine."
        )
    for device, value in report.own_ms.items():
        lines += _wrap(f"By its own account the probe took {value:.3f} ms of a step on {device}.")
    versions = [f"{name} {version}" for name, version in report.versions.items() if version]
    load = " to ".join(f"{value:.2f}" for value in report.load)
    lines += _wrap(f"{', '.join([*versions, f'{report.cpus} CPUs'])}, load average {load}.")
    lines.append("It holds." if report.holds else "It does not hold.")
    return "\n".join(lines)


def _line(*cells: str) -> str:
    widths = zip(cells, ("<7", "<12", ">8", ">8", ">7", ">16", ">7", ">6"), strict=True)
    return "".join(f"{cell:{width}}" for cell, width in widths) + "  "


def _row(case: Case) -> str:
    cells = ["-"] * 6
    found = case.compared
    if found is not None:
        count = "-" if case.added is None else str(sum(abs(n) for n in case.added.values()))
        cells = [
            f"{found.off_s * 1e3:.2f}",
            f"{found.on_s * 1e3:.2f}",
            f"{found.ratio:.3f}",
            f"{found.low:.3f} to {found.high:.3f}",
            f"{found.processor:.3f}",
            count,
        ]
    return _line(case.device, case.model, *cells) + case.verdict.state


def _unclear(case: Case) -> bool:
    found = case.compared
    return case.judged and found is not None and found.low <= LIMIT < found.high


def _wrap(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)
