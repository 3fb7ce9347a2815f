"""What a verification found, as one object for programs and as a table for people.

Everything in it is asked of the fold and of the rules of the ladder; nothing is measured here.
"""

from __future__ import annotations

from typing import Any

from core.attempts import outcome
from core.errors import PilotageError
from core.levels import (
    FAIL,
    NOT_RUN,
    PASS,
    QUESTIONS,
    STALE,
    WAIVED,
    CheckStatus,
    Ladder,
    ladder,
    target,
    top_level,
)
from core.metric import higher_is_better
from core.records_view import number, steps_done, table
from core.state import SessionState
from core.state_parts import Run, level_name
from core.text import WIDTH, clean, hanging
from core.verify.subject import is_target_run

SIGNS = {PASS: "✓", FAIL: "✗", NOT_RUN: "·", STALE: "~", WAIVED: "w"}
WORDS = {PASS: "pass", FAIL: "FAIL", NOT_RUN: "not run", STALE: "stale", WAIVED: "waived"}

DEFAULT_LEVEL = 3
"""The level that a verification asks for where none is named: the same goal is reached."""


def level_to_ask(state: SessionState, level: int | None) -> int:
    """The level to ask for; raises :class:`PilotageError` for one that this target can't reach."""
    top = top_level(state)
    if level is None:
        return min(DEFAULT_LEVEL, top)
    if not 0 <= level < len(QUESTIONS):
        raise PilotageError(f"There is no level {level}: the ladder has L0 to L4.")
    if level > top:
        raise PilotageError(
            f"L{level} can't be reached on xla-cpu, whose times say nothing of a TPU: "
            f"ask for --level {top} at most."
        )
    return level


def result_of(state: SessionState, level_asked: int, seconds: float) -> dict[str, Any]:
    """The result of a verification of the session's present tree.

    ``holds``: every level up to ``level_asked`` is reached. Each check has the state, the numbers
    and the tolerance it was judged by; ``first`` is the first one that failed, where the answer to
    look for is. ``runs`` are all runs of the session, ``findings`` the open ones of the target's.
    """
    rungs = ladder(state)
    checks = [_check(c) for level in rungs.levels for c in level.checks]
    failed = [c for c in checks if c["state"] == FAIL and c["level"] <= level_asked]
    return {
        "session": state.opened.session_id if state.opened else "",
        "title": state.opened.title if state.opened else "",
        "target": str(target(state).get("kind", "")),
        "tree": rungs.tree,
        "measured": rungs.measured,
        "level_asked": level_asked,
        "holds": rungs.measured >= level_asked,
        "summary": rungs.text,
        "first": failed[0]["id"] if failed else "",
        "seconds": round(seconds, 3),
        "runs": [_run(state, run) for run in state.runs.values()],
        "levels": [
            {"level": lv.level, "state": lv.state, "question": lv.question, "reached": lv.reached}
            for lv in rungs.levels
        ],
        "checks": checks,
        "findings": _findings(state, rungs.tree),
        "metric": _metric(state, rungs),
    }


def _check(status: CheckStatus) -> dict[str, Any]:
    body = status.result.body if status.result else None
    return {
        "id": status.check.id,
        "level": status.check.level,
        "state": status.state,
        "title": status.check.title,
        "category": status.check.category,
        "optional": status.check.optional,
        "summary": body.summary if body else "not run",
        "expected": body.expected if body else "",
        "actual": body.actual if body else "",
        "tolerance": body.tolerance if body else "",
        "reason": status.why,
        "evidence": body.evidence if body else {},
    }


def _run(state: SessionState, run: Run) -> dict[str, Any]:
    end = run.ended
    return {
        "run": run.run_id,
        "number": run.number,
        "purpose": run.started.purpose,
        "of": run.started.of,
        "by": run.started.by,
        "precision": run.started.precision,
        "command": run.started.command,
        "exit_code": end.exit_code if end else None,
        "reason": end.reason if end else "",
        "cause": end.cause if end else "",
        "outcome": outcome(state, run).kind if run.started.purpose == "attempt" else "",
        "seconds": None if run.seconds is None else round(run.seconds, 3),
        "steps": steps_done(run),
    }


def _findings(state: SessionState, tree: str) -> list[dict[str, Any]]:
    return [
        {
            "detector": f.opened.detector,
            "category": f.category,
            "title": f.opened.title,
            "silent": f.opened.silent,
            "run": f.run_id,
        }
        for f in state.findings.values()
        if f.open and f.tree == tree
    ]


def _metric(state: SessionState, rungs: Ladder) -> dict[str, Any]:
    """The metric of every reference run that ended well and of the attempts on this tree."""
    config = table(state.config.get("metric"))
    references = [r for r in state.runs_for("reference") if r.ok_exit]
    targets = [
        r for r in state.attempts if r.tree == rungs.tree and r.ok_exit and is_target_run(state, r)
    ]

    def values(runs: list[Run]) -> list[float | str | None]:
        return [_finite(r.result.value) if r.result else None for r in runs]

    return {
        "name": str(config.get("name") or "metric"),
        "higher_is_better": higher_is_better(config),
        "points": number(config.get("points")),
        "reference": values(references),
        "target": values(targets),
    }


def _finite(value: float | None) -> float | str | None:
    # JSON has no words for these; the log has.
    if value is None or value - value == 0:
        return value
    return "nan" if value != value else ("inf" if value > 0 else "-inf")


# --- for people ------------------------------------------------------------------------------


def describe(result: dict[str, Any], width: int = WIDTH) -> str:
    """The result as a table of ``width`` columns: each level, its checks, what differs first, the
    answer."""
    lines = [f"{result['title']} on {result['target']}", ""]
    column = max(len(c["title"]) for c in result["checks"])
    for level in result["levels"]:
        lines.append(f"L{level['level']} {WORDS[level['state']]:<8} {level['question']}")
        beyond = level["level"] > result["level_asked"]
        checks = [c for c in result["checks"] if c["level"] == level["level"]]
        for group in _groups(checks, beyond):
            lines += _rows(group, column, beyond, width)
    lines.append("")
    if result["findings"]:
        lines.append("findings")
        for f in result["findings"]:
            begin = f"   ! {f['category']} {'silent ' if f['silent'] else ''}"
            lines += hanging(begin, f["title"], width)
        lines.append("")
    answer = "holds" if result["holds"] else "does not hold"
    lines.append(
        f"asked for L{result['level_asked']}, measured {level_name(result['measured'])}: {answer}"
        f" ({result['seconds']:.0f} s, {len(result['runs'])} runs)"
    )
    if result["first"]:
        first = next(c for c in result["checks"] if c["id"] == result["first"])
        lines.append(f"first difference: {first['id']}: {first['summary']}")
    return "\n".join(clean(line).rstrip() for line in lines)


def _groups(checks: list[dict[str, Any]], beyond: bool) -> list[list[dict[str, Any]]]:
    """The checks in their order; those that are not run for one and the same reason together."""
    found: dict[str, list[dict[str, Any]]] = {}
    for check in checks:
        key = _words(check, beyond) if check["state"] == NOT_RUN else check["id"]
        found.setdefault(key, []).append(check)
    return [*found.values()]


def _words(check: dict[str, Any], beyond: bool) -> str:
    if check["state"] in (PASS, FAIL):
        return str(check["summary"])
    if check["state"] == NOT_RUN and beyond and not check["reason"]:
        return "not run: beyond the level asked for"
    return str(check["reason"] or check["summary"])


def _rows(group: list[dict[str, Any]], column: int, beyond: bool, width: int) -> list[str]:
    check = group[0]
    state, words = check["state"], _words(check, beyond)
    title = check["title"] if len(group) == 1 else f"{len(group)} checks"
    category = check["category"] if state == FAIL else ""
    rows = hanging(f"   {SIGNS[state]} {title:<{column}}  {category:<2}  ", words, width)
    margin = f"     {'':<{column}}      "
    if len(group) > 1:
        rows += hanging(margin, f"({', '.join(c['title'] for c in group)})", width)
    if state == FAIL:
        for name in ("expected", "actual", "tolerance"):
            if check[name]:
                rows += hanging(f"{margin}{name:<9} ", check[name], width)
        if check["reason"] and check["reason"] != check["summary"]:
            rows += hanging(margin, check["reason"], width)
    return rows
