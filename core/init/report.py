"""What ``pilotage init`` says it found, for a terminal of 80 columns and as one JSON object."""

from __future__ import annotations

import shlex
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import Any

from core.init.entries import text_of
from core.init.facts import Project
from core.init.render import Draft, describe_python, how
from core.risk.describe import summary
from core.risk.scan import Scan
from core.text import clean

WIDTH = 80
_INDENT = 13


def describe(draft: Draft, scan: Scan, at: Path, written: bool, command: str) -> str:
    """The findings in the order of the file; ``command`` is how Pilotage was called."""
    project, lines = draft.project, []
    lines.append(f"Wrote {clean(str(at))}" if written else f"Would write {clean(str(at))}")
    lines.append("")
    lines += _project(project)
    lines += _row("reference", draft.reference.text)
    if project.entry is not None:
        others = len(project.entries) - 1
        more = f"; {others} other command{'s' * (others > 1)} found" if others else ""
        lines += _row("", f"from {project.entry.source}{more}")
        for note in draft.reference.notes:
            lines += _row("", note)
    lines += _row("target", draft.target.text)
    for note in draft.target.notes:
        lines += _row("", note)
    lines += _metric(project)
    lines += _row("agent", "manual: you make the edits, Pilotage runs and measures")
    for note in project.notes:
        lines += _row("note", note)
    lines.append("")
    if draft.edits:
        lines.append("To edit before the first run:")
        for edit in draft.edits:
            lines += _wrap(edit, "  - ", "    ")
        lines.append("")
    where = shlex.quote(clean(str(project.root)))
    lines.append(summary(scan, f"`{command} init {where} --scan-only`"))
    lines += ["", "Next:" if written else "Then:", f"  {command} run {shlex.quote(clean(str(at)))}"]
    return "\n".join(lines)


def _project(project: Project) -> list[str]:
    python = project.python
    if python is None or python.problem:
        return _row("Python", "none could be asked: name one with --python")
    rows = _row("Python", f"{python.path} ({describe_python(python)})")
    if python.torch is None:
        rows += _row("", "has no torch, so no run will work: name another with --python")
    if project.copy is not None and project.copy.value:
        rows += _row("files", f"a private copy of the directory: {project.copy.source}")
    if project.link:
        rows += _row("", f"linked: {', '.join(f.value for f in project.link)}")
    return rows


def _metric(project: Project) -> list[str]:
    if not project.metrics:
        return _row("metric", "not found")
    place = project.metrics[0]
    better = "higher" if place.higher_is_better else "lower"
    others = len(project.metrics) - 1
    more = f"; {others} other place{'s' * (others > 1)} found" if others else ""
    rows = _row("metric", f"{place.name}, {better} is better: {how(place)}")
    rows += _row("", f"from {place.source}{more}")
    for note in place.notes:
        rows += _row("", note)
    return rows


def _row(name: str, text: str) -> list[str]:
    return _wrap(clean(text), f"  {name:<11}", " " * _INDENT)


def _wrap(text: str, first: str, then: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=then,
        break_on_hyphens=False,
        break_long_words=False,
    )


def as_json(draft: Draft, scan: Scan, at: Path, written: bool) -> dict[str, Any]:
    """The documented object of ``pilotage init --json``."""
    project = draft.project
    return {
        "path": str(at),
        "written": written,
        "text": draft.text,
        "edits": list(draft.edits),
        "project": str(project.root),
        "python": asdict(project.python) if project.python else None,
        "reference": {
            "command": draft.reference.text,
            "env": draft.reference.env,
            "notes": draft.reference.notes,
        },
        "target": {
            "command": draft.target.text,
            "env": draft.target.env,
            "notes": draft.target.notes,
        },
        "entries": [
            {
                "command": text_of((*e.launcher, *e.words[1:]) if e.launcher else e.words),
                "source": e.source,
                "kind": e.kind,
                "score": e.score,
                "why": list(e.why),
            }
            for e in project.entries
        ],
        "metrics": [asdict(m) for m in project.metrics],
        "notes": list(project.notes),
        "risks": scan.to_json(),
    }
