"""One check in full: what was compared, by which tolerance, in which runs, and what undoes it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rich.text import Text

from core.guard.related import related
from core.levels import FAIL, NOT_RUN, STALE, WAIVED, CheckStatus
from core.state import SessionState
from tui.panes.check_words import SIGNS, state_style, state_words
from tui.theme import Palette
from tui.wording import block, count, one_line

ROWS = 200
"""Rows of one table that are shown."""


def check_detail(status: CheckStatus, state: SessionState, colours: Palette) -> Text:
    """Everything needed to doubt a check: expectation, numbers, tolerance, runs, trees."""
    text = Text()
    text.append(f"{SIGNS[status.state]} ", state_style(status.state, colours))
    text.append_text(state_words(status, colours))
    if status.check.category:
        text.append(f"  {status.check.category}", colours.warn)
    text.append(f"   {status.check.question}\n\n", colours.plain)
    if status.result is None:
        text.append((status.why or "Nothing has been measured yet.") + "\n", colours.plain)
        text.append("v measures the present tree.\n\n", colours.muted)
        text.append_text(_rule(status.check.id, colours))
        return text
    body = status.result.body
    footnotes = body.evidence.get("footnotes")
    fields = [
        ("result", body.summary),
        ("expected", body.expected),
        ("actual", body.actual),
        ("tolerance", body.tolerance),
        ("why stale" if status.state == STALE else "reason", status.why or body.reason),
        *(("note", str(note)) for note in footnotes or [] if isinstance(footnotes, list)),
        ("runs", _runs(body.runs, state)),
        ("reference", _runs(body.reference_runs, state)),
        ("diff guard", _tagged(status, state)),
        ("tree", body.tree[:12]),
        ("command", body.command),
        ("chips", str(body.chips or "")),
        ("criteria", _criteria(body.uses, body.criteria)),
        ("by", body.author),
        ("holds for", _holds_for(status)),
    ]
    for name, value in fields:
        if value:
            text.append(f"{name:<11}", colours.muted)
            text.append(block(value) + "\n", colours.plain)
    evidence = {k: v for k, v in body.evidence.items() if k != "footnotes"}
    if evidence:
        text.append("\nevidence\n", colours.strong)
        text.append_text(_evidence(evidence, colours))
    text.append("\n").append_text(_rule(status.check.id, colours))
    return text


def _tagged(status: CheckStatus, state: SessionState) -> str:
    """What the guard has tagged in the diff that may be why a check fails."""
    if status.state != FAIL or status.result is None:
        return ""
    tags = related(status.check.id, state.tagged, status.result.body.tree)
    return "; ".join(tag.sentence for tag in tags[:3])


def _criteria(uses: dict[str, Any] | None, hashed: str) -> str:
    if uses is None:
        return f"all of them ({hashed})" if hashed else ""
    return ", ".join(f"{name} {value:g}" for name, value in uses.items()) or "none"


def _holds_for(status: CheckStatus) -> str:
    """What would make a result stale, in words; empty for one that is stale or never was."""
    if status.state in (STALE, NOT_RUN) or status.result is None:
        return ""
    body = status.result.body
    parts = ["this tree", "this command", f"{body.chips} chip(s)"]
    if body.uses is None or body.uses:
        parts.append("these criteria")
    if body.reference_runs:
        parts.append("this reference run")
    kept = "the waiver ends" if status.state == WAIVED else "it is stale"
    return f"{', '.join(parts)}; another of any, and {kept}"


def _rule(id: str, colours: Palette) -> Text:
    """How the check is judged and where its tolerance comes from: what its function says."""
    from core.verify.evaluate import EVALUATORS  # all checks; the cockpit starts without them

    lines = [line.strip() for line in (EVALUATORS[id].__doc__ or "").strip().splitlines()]
    text = Text("how it is judged\n", colours.strong)
    paragraphs = "\n".join(lines).split("\n\n")
    for paragraph in paragraphs:
        words = re.sub(r":\w+:`[\w.]*?(\w+)`", r"\1", " ".join(paragraph.split())).replace("``", "")
        text.append(f"  {words}\n", colours.muted)
    return text


def _evidence(evidence: dict[str, object], colours: Palette) -> Text:
    text = Text()
    for name, value in evidence.items():
        text.append(f"  {one_line(name, 60)}: ", colours.muted)
        if isinstance(value, list) and value and all(isinstance(x, dict) for x in value):
            text.append("\n").append_text(_table(value, colours))
        elif isinstance(value, list) and value and isinstance(value[0], list):
            text.append("\n")
            for item in value[:ROWS]:
                text.append(f"    {one_line(_compact(item), 400)}\n", colours.plain)
            text.append_text(_rest(len(value), colours))
        else:
            text.append(f"{one_line(_compact(value), 2000)}\n", colours.plain)
    return text


def _table(rows: Sequence[dict[str, object]], colours: Palette) -> Text:
    """Rows that have the same names, under each other; the widest column last, where it may wrap."""
    shown = rows[:ROWS]
    names = list(dict.fromkeys(name for row in shown for name in row))
    names.sort(key=lambda n: (max(len(_compact(row.get(n, ""))) for row in shown), n))
    cells = [[one_line(_compact(row.get(name, "")), 60) for name in names] for row in shown]
    widths = [max(len(str(name)), *(len(row[i]) for row in cells)) for i, name in enumerate(names)]
    text = Text()
    heads = (one_line(str(n), 60).ljust(w) for n, w in zip(names, widths, strict=True))
    text.append(f"    {'  '.join(heads).rstrip()}\n", colours.muted)
    for row in cells:
        line = "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True))
        text.append(f"    {line.rstrip()}\n", colours.plain)
    return text.append_text(_rest(len(rows), colours))


def _rest(size: int, colours: Palette) -> Text:
    return (
        Text(f"    … {count(size - ROWS, 'more row')}\n", colours.muted) if size > ROWS else Text()
    )


def _compact(value: object) -> str:
    if isinstance(value, dict):
        return "  ".join(f"{k} {_compact(v)}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(_compact(v) for v in value)
    return f"{value:.6g}" if isinstance(value, float) else "-" if value is None else str(value)


def _runs(ids: list[str], state: SessionState) -> str:
    names = []
    for run_id in ids:
        run = state.runs.get(run_id)
        names.append(f"#{run.number} {run.started.purpose}" if run else run_id)
    return ", ".join(names)


def can_waive(status: CheckStatus) -> str:
    """Why a check can't be waived now, as a sentence; ``""`` where it can."""
    if status.result is None:
        return f"{status.check.id} has not been evaluated yet: v measures the present tree."
    if status.state == STALE:
        return f"{status.check.id} is stale: v measures the present tree, then waive what fails."
    if status.state not in (FAIL, NOT_RUN):
        return f"{status.check.id} is {status.state}: there is nothing to waive."
    return ""
