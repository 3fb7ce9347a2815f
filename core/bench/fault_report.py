"""The result of the fault bench as one JSON object and as a table."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from core.bench.fault_judging import (
    ALARM,
    ERROR,
    LATE,
    METHODS,
    MISSED,
    UNPROVEN,
    Judged,
    Rate,
    of_method,
    ours,
)
from core.bench.faults import Report
from core.text import clean

WIDTH = 100
OURS = "the ladder"
_SHORT = (MISSED, LATE, ALARM, ERROR)


def as_json(report: Report) -> dict[str, Any]:
    """``holds``, ``methods`` with their rates, ``short`` and ``unproven`` by name, ``variants``."""
    rows = report.rows
    return {
        "holds": report.holds,
        "methods": {name: _rate(rate) for name, rate in rates(rows).items()},
        "short": [
            {"name": r.variant.id, "verdict": r.verdict, "why": why(r)} for r in _short(rows)
        ],
        "unproven": [
            {"name": r.variant.id, "why": list(r.notes)} for r in rows if r.verdict == UNPROVEN
        ],
        "variants": [_row(r) for r in rows],
        "references": {name: round(s, 1) for name, s in report.references.items()},
        "seconds": round(report.seconds, 1),
        "seconds_per_variant": _per_variant(report),
        "jobs": report.jobs,
        "cpus": report.cpus,
    }


def rates(rows: Sequence[Judged]) -> dict[str, Rate]:
    """Ours first, then the simpler methods, judged on the same runs."""
    return {OURS: ours(rows), **{name: of_method(rows, name) for name in METHODS}}


def _rate(rate: Rate) -> dict[str, int]:
    return {
        "detected": rate.detected,
        "faults": rate.faults,
        "false_alarms": rate.alarms,
        "faithful": rate.faithful,
    }


def _row(row: Judged) -> dict[str, Any]:
    variant = row.variant
    return {
        "project": variant.project,
        "name": variant.name,
        "faithful": variant.faithful,
        "kind": variant.kind,
        "base": variant.base,
        "about": variant.about,
        "expected_level": variant.level,
        "expected_category": variant.category,
        "verdict": row.verdict,
        "level": row.at,
        "category": row.category,
        "check": row.check,
        "said": row.said,
        "notes": list(row.notes),
        "noticed": dict(row.noticed),
        "seconds": round(row.seconds, 1),
    }


def _per_variant(report: Report) -> float | None:
    return round(report.seconds / len(report.rows), 1) if report.rows else None


def _short(rows: Sequence[Judged]) -> list[Judged]:
    return [row for row in rows if row.verdict in _SHORT]


def why(row: Judged) -> str:
    """Why a variant counts against the bench, in a sentence."""
    if row.verdict == ERROR:
        return row.said
    if row.verdict == MISSED:
        lacking = f" ({row.notes[0]})" if row.notes else ""
        return f"expected at L{row.variant.level}, and no check failed{lacking}"
    if row.verdict == LATE:
        return f"expected at L{row.variant.level}, refused only by {row.check}: {row.said}"
    return f"{row.check} failed on a faithful migration: {row.said}"


# --- text ----------------------------------------------------------------------------------------


def describe(report: Report) -> str:
    """A row for each variant with what was said, the rates, what fell short, and the answer."""
    rows = report.rows
    lines = [_line("variant", "kind", "expected", "refused at", "verdict", "s", "w m f")]
    project = ""
    for row in rows:
        if row.variant.project != project:
            project = row.variant.project
            seconds = report.references.get(project)
            took = "no reference" if seconds is None else f"reference recorded in {seconds:.0f} s"
            lines += ["", f"{project}: {took}"]
        lines += _rows(row)
    lines += ["", f"{'method':<22}{'faults detected':>18}{'false alarms':>22}"]
    for name, rate in rates(rows).items():
        lines.append(
            f"{name:<22}{_share(rate.detected, rate.faults):>18}{_share(rate.alarms, rate.faithful):>22}"
        )
    lines.append("")
    for row in _short(rows):
        lines += _wrap(f"{row.variant.id} ({row.verdict}): {why(row)}", "  ")
    for row in rows:
        if row.verdict == UNPROVEN:
            lines += _wrap(f"{row.variant.id} (unproven): {'; '.join(row.notes)}", "  ")
    lines += _wrap(
        "Refused at: the level and category of the first check that failed. w m f: whether the "
        "agent's word (exit 0 and a metric), the final metric alone, and a comparison of the "
        "forward pass alone noticed anything in the same runs: + it did, - it did not, ? it had "
        "nothing to go by."
    )
    per = _per_variant(report)
    lines += _wrap(
        f"{len(rows)} variants in {report.seconds / 60:.1f} min, {per or 0:g} s each, {report.jobs} at "
        f"a time, {report.cpus} CPUs."
    )
    lines.append("It holds." if report.holds else "It does not hold.")
    return "\n".join(lines)


def _line(*cells: str) -> str:
    widths = zip(cells, ("<28", "<24", "<10", "<11", "<12", ">5", ">7"), strict=True)
    return "".join(f"{cell:{width}}" for cell, width in widths)


def _rows(row: Judged) -> list[str]:
    variant = row.variant
    expected = "none" if variant.faithful else f"L{variant.level} {variant.category}".strip()
    at = "-" if row.at is None else f"L{row.at} {row.category}".strip()
    marks = " ".join({True: "+", False: "-"}.get(row.noticed.get(m), "?") for m in METHODS)  # type: ignore[arg-type]
    kind = variant.kind or ("faithful" if variant.faithful else "")
    found = [
        _line(
            f"  {variant.name}"[:27],
            kind[:23],
            expected,
            at,
            row.verdict,
            f"{row.seconds:.0f}",
            marks,
        )
    ]
    if row.said:
        said = f"{row.check}: {row.said}" if row.check else row.said
        found += _wrap(clean(said), "      ")
    if row.at is not None and not variant.faithful:
        found += [line for note in row.notes for line in _wrap(clean(note), "      ")]
    return found


def _share(count: int, of: int) -> str:
    return f"{count} of {of}" + (f" ({100 * count / of:.0f} %)" if of else "")


def _wrap(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)
