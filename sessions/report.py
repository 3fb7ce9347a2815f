"""One session's result as one object, and the same as text.

Everything in it is asked of the fold and of the rules in ``core``; nothing is computed twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from core.attempts import findings_of, outcome
from core.effort import Effort, effort
from core.events import AgentFailed
from core.levels import NOT_RUN, Ladder, ladder
from core.money import Amount, costs
from core.state import SessionState, fold
from core.state_parts import Finding, Intervention, Run, level_name
from core.text import clean
from sessions.audit import audit
from sessions.derive import iso
from sessions.log import EventLog

#: Signs of check states, as in the cockpit: state is never told by colour alone.
SIGNS = {"pass": "ok  ", "fail": "FAIL", "not run": " .  ", "stale": "old ", "waived": "waiv"}


def result_of(path: Path, upto: int | None = None, finished: bool = False) -> dict[str, Any]:
    """The result of a session, at its last event or at event ``upto``.

    ``holds`` is whether the log supports what is shown: the audit found no problem, and at
    least one check was really measured (a session in which nothing ran supports nothing). The
    audit is of the whole file, whatever ``upto`` is. With ``finished``, the agent must also have
    ended of its own accord. Dollars are null where unknown.
    """
    with EventLog.read(path) as log:
        state = fold(log.events(upto=upto))
    checked = audit(path)
    rungs = ladder(state)
    problems = list(checked["problems"])
    if not any(c.state != NOT_RUN for level in rungs.levels for c in level.checks):
        problems.append("No check of the ladder was measured on the present code.")
    if finished and not any(run.ok_exit for run in state.runs_for("reference")):
        problems.append("No reference run ended with exit 0, so there is nothing to measure by.")
    if finished and state.phase != "finished":
        why = (
            f": {state.agent_end.error.rstrip('.')}"
            if isinstance(state.agent_end, AgentFailed)
            else ""
        )
        problems.append(f"The agent did not finish, it is {state.phase!r}{why}.")
    return {
        "session": state.opened.session_id if state.opened else path.parent.name,
        "title": state.opened.title if state.opened else "",
        "path": str(path),
        "target": str(state.config.get("target", {}).get("kind", "")),
        "events": state.seq,
        "head_hash": checked["head_hash"],
        "phase": state.phase,
        "claimed": state.claimed_level,
        "measured": rungs.measured,
        "summary": rungs.text,
        "levels": _levels(rungs),
        "attempts": [_attempt(state, n, run) for n, run in enumerate(state.attempts, 1)],
        "findings": [_finding(f) for f in state.findings.values()],
        "interventions": [_intervention(i) for i in state.interventions.values()],
        "time": _time(effort(state)),
        "cost": _cost(state),
        "holds": not problems,
        "problems": problems,
    }


def _levels(rungs: Ladder) -> list[dict[str, Any]]:
    return [
        {
            "level": level_name(level.level),
            "question": level.question,
            "state": level.state,
            "reached": level.reached,
            "claimed": level.claimed,
            "checks": [
                {
                    "check": status.check.id,
                    "state": status.state,
                    "summary": status.result.body.summary if status.result else "",
                    "why": status.why,
                }
                for status in level.checks
            ],
        }
        for level in rungs.levels
    ]


def _attempt(state: SessionState, number: int, run: Run) -> dict[str, Any]:
    """``number`` counts attempts, as in the exports; ``run`` is what the cockpit calls #4."""
    became = outcome(state, run)
    return {
        "number": number,
        "run": run.run_id,
        "tree": run.tree,
        "command": run.started.command,
        "outcome": became.kind,
        "text": became.text,
        "exit_code": run.ended.exit_code if run.ended else None,
        "seconds": None if run.seconds is None else round(run.seconds, 3),
        "findings": [f.opened.finding_id for f in findings_of(state, run)],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "finding": finding.opened.finding_id,
        "category": finding.category,
        "detected_category": finding.opened.category,
        "title": finding.opened.title,
        "silent": finding.opened.silent,
        "open": finding.open,
        "run": finding.run_id,
    }


def _intervention(item: Intervention) -> dict[str, Any]:
    return {
        "intervention": item.recorded.intervention_id,
        "at": iso(item.recorded.at_ts_us),
        "kind": item.kind,
        "trigger": item.trigger,
        "category": item.category,
        "necessity": item.necessity,
        "text": item.text,
        "level": level_name(item.recorded.at_level),
        "tree": item.recorded.at_tree,
        "run": item.recorded.at_run,
        "voided": item.voided,
        "automatic": item.recorded.automatic,
    }


def _time(spent: Effort) -> dict[str, Any]:
    return {
        "session_s": round(spent.span_s, 3),
        "agent_working_s": round(spent.agent_s, 3),
        "agent_blocked_on_operator_s": round(spent.blocked_s, 3),
        "operator_active_s": {str(gap): round(s, 3) for gap, s in spent.active_s.items()},
    }


def _cost(state: SessionState) -> dict[str, Any]:
    amounts = costs(state)
    named: dict[str, Amount] = {
        "agent": amounts.agent,
        "hardware": amounts.hardware,
        "reference_run": amounts.reference_run,
        "target_run": amounts.target_run,
        "operator": amounts.operator,
    }
    return {
        name: {"usd": amount.usd, "text": amount.text, "note": amount.note}
        for name, amount in named.items()
    }


def describe(result: dict[str, Any]) -> str:
    """The result as text: ladder, attempts, findings, interventions, time, cost, verdict."""
    out = [f"{result['title']}  ({result['session']}, target {result['target']})", ""]
    out += _ladder_text(result)
    out += ["", f"Attempts ({len(result['attempts'])})"]
    for run in result["attempts"]:
        seconds = f"{run['seconds']:.0f} s" if run["seconds"] is not None else "-"
        out.append(
            f"  #{run['run'].removeprefix('r'):<3} {run['outcome']:<10} {seconds:>7}  {run['text']}"
        )
    out += ["", f"Interventions ({len(result['interventions'])})"]
    for item in result["interventions"]:
        words = item["text"] or item["kind"] or "(no words yet)"
        voided = "  [voided]" if item["voided"] else ""
        out.append(f"  {item['at'][11:19]} at {item['level']}  {item['kind']}: {words}{voided}")
    out += ["", *_time_and_cost(result), ""]
    if result["holds"]:
        out.append(f"The log supports this result: {result['summary']}")
    else:
        out.append("The log does not support this result:")
        out += [f"  {text}" for text in result["problems"]]
    return "\n".join(clean(line) for line in out)


def _ladder_text(result: dict[str, Any]) -> list[str]:
    lines = [f"  {'':<4} {'claimed':<8} {'measured':<9} question"]
    for level in result["levels"]:
        claim = "yes" if level["claimed"] else "-"
        lines.append(f"  {level['level']:<4} {claim:<8} {level['state']:<9} {level['question']}")
        for status in level["checks"]:
            if status["state"] == "pass":
                continue
            words = status["summary"] if status["state"] == "fail" else status["why"]
            lines.append(f"       {SIGNS[status['state']]} {status['check']}: {words}")
    claimed = level_name(result["claimed"])
    lines.append(f"  claimed {claimed}, measured {level_name(result['measured'])}")
    return lines


def _time_and_cost(result: dict[str, Any]) -> list[str]:
    time, cost = result["time"], result["cost"]
    by_gap = time["operator_active_s"].items()
    active = ", ".join(f"{s / 60:.1f} min joined at {gap} s" for gap, s in by_gap)
    minutes = {
        name: f"{time[f'{name}_s'] / 60:.1f} min"
        for name in ("session", "agent_working", "agent_blocked_on_operator")
    }
    lines = [
        f"Time   session {minutes['session']}, agent working {minutes['agent_working']}",
        f"       agent waiting on the operator {minutes['agent_blocked_on_operator']}",
        f"       operator active {active}" if any(s for _, s in by_gap) else "       no operator",
    ]
    parts = []
    for name, amount in cost.items():
        parts.append(f"{name.replace('_', ' ')} {amount['text']}")
    return [*lines, f"Cost   {', '.join(parts)}"]
