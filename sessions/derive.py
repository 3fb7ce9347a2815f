"""What the derived tables hold, as a pure function of the log.

The same events give the same rows, so ``pilotage check`` can compare what is in a file with
what its log says, and an export needs no tables in the file at all.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from core.attempts import checks_of, findings_of, outcome
from core.effort import TAIL_S, effort
from core.events import (
    AgentUsed,
    Event,
    OperatorAttached,
    OperatorDetached,
    OperatorHeartbeat,
    OperatorPaused,
    OperatorResumed,
)
from core.levels import FAIL
from core.money import agent_cost
from core.state import SessionState
from core.state_parts import Intervention, Run
from sessions import derive_runs
from sessions.chain import GENESIS
from sessions.tables import BY_NAME

Rows = list[tuple[Any, ...]]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

_SIGNALS: dict[type, str] = {
    OperatorAttached: "attached",
    OperatorDetached: "detached",
    OperatorHeartbeat: "beat",
    OperatorPaused: "paused",
    OperatorResumed: "resumed",
}


@dataclass(slots=True)
class Derived:
    """Everything derived from a log: the state at its end, and the rows of each table."""

    state: SessionState
    tables: dict[str, Rows]
    head_hash: str = GENESIS
    first_seq: int = 0

    def dicts(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table as dictionaries, in its order of columns."""
        names = BY_NAME[table].names
        return [dict(zip(names, row, strict=True)) for row in self.tables[table]]


@dataclass(slots=True)
class _Raw:
    """What the fold does not keep, but a table has."""

    usage: Rows = field(default_factory=list)
    signals: Rows = field(default_factory=list)
    runs: dict[str, Rows] = field(default_factory=lambda: {n: [] for n in derive_runs.TABLES})


def iso(ts_us: int | None) -> str | None:
    """``2026-11-30T11:42:07.123456Z``; a time no calendar has comes back as plain microseconds."""
    if ts_us is None:
        return None
    try:
        moment = _EPOCH + timedelta(microseconds=ts_us)
    except OverflowError:
        return f"{ts_us} us"
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def derive(events: Iterable[Event]) -> Derived:
    """The rows of all derived tables, from the events of a log in their order."""
    state, raw = SessionState(), _Raw()
    head, first_seq = GENESIS, 0
    for event in events:
        state.apply(event)
        head, first_seq = event.hash, first_seq or event.seq
        body = event.body
        if event.run_id in state.runs:
            for table, row in derive_runs.rows_of(event, iso(event.ts_us)):
                raw.runs[table].append(row)
        if isinstance(body, AgentUsed):
            raw.usage.append((event.seq, iso(event.ts_us), *body.payload().values()))
        elif what := _SIGNALS.get(type(body)):
            raw.signals.append(
                (
                    event.seq,
                    event.ts_us,
                    event.mono_us,
                    event.boot_id,
                    getattr(body, "console_id", ""),
                    what,
                )
            )
    tables = {
        "session": _session(state),
        "run": [_run(r) for r in state.runs.values()],
        "attempt": _attempts(state),
        "check_result": _checks(state),
        "check_run": _check_runs(state),
        "level": [(m.seq, iso(m.ts_us), m.level, m.tree, m.text) for m in state.measurements],
        "claim": [(c.seq, iso(c.ts_us), c.level, c.tree, c.text) for c in state.claims],
        "finding": _findings(state),
        "intervention": [_intervention(state, i) for i in state.interventions.values()],
        "intervention_change": _changes(state),
        "ask": _asks(state),
        "usage": raw.usage,
        "snapshot": _snapshots(state),
        "operator_signal": raw.signals,
        "operator_time": [
            (gap, TAIL_S, seconds / 60) for gap, seconds in effort(state).active_s.items()
        ],
        **raw.runs,
        "moment": [
            (n, m.seq, iso(m.ts_us), m.kind, m.label, m.ref) for n, m in enumerate(state.moments, 1)
        ],
    }
    stored = {name: [_storable(row) for row in rows] for name, rows in tables.items()}
    return Derived(state, stored, head, first_seq)


def _storable(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row as SQLite gives it back: truth values as numbers, text without lone surrogates."""
    return tuple(
        int(v)
        if isinstance(v, bool)
        else v.encode("utf-8", "replace").decode("utf-8")
        if isinstance(v, str) and not v.isascii()
        else v
        for v in row
    )


# --- the rows --------------------------------------------------------------------------------


def _session(s: SessionState) -> Rows:
    opened, agent, cost, time = s.opened, s.agent, agent_cost(s), effort(s)
    return [
        (
            opened.session_id if opened else None,
            opened.title if opened else None,
            opened.project if opened else None,
            opened.pilotage_version if opened else None,
            iso(s.first_ts_us),
            iso(s.last_ts_us),
            s.phase,
            agent.driver if agent else None,
            agent.model if agent else None,
            s.claimed_level,
            s.measured_level,
            cost.usd,
            cost.at_least,
            sum(u.usd is None for u in s.usage),
            time.span_s,
            time.agent_s,
            time.blocked_s,
            time.cells.working_active,
            time.cells.working_away,
            time.cells.idle_active,
            time.cells.idle_away,
        )
    ]


def _run(r: Run) -> tuple[Any, ...]:
    b, end, result = r.started, r.ended, r.result
    return (
        r.run_id,
        r.seq,
        b.number,
        b.purpose,
        b.of,
        b.command,
        b.target,
        b.chips,
        r.tree,
        b.probe_mode,
        iso(r.ts_us),
        r.ts_us,
        iso(r.ended_ts_us),
        r.ended_seq,
        r.seconds,
        end.reason if end else None,
        end.exit_code if end else None,
        end.signal if end else None,
        end.cause if end else None,
        end.max_rss_mb if end and r.seconds is not None else None,
        len(r.steps),
        len(r.lines),
        r.elided_lines,
        r.stalls,
        _not_nan(result.value) if result else None,
        result.source if result else None,
        result.how if result else None,
        result.problem if result else None,
    )


def _not_nan(value: float | None) -> float | None:
    """SQLite keeps no nan: it becomes null there, so it is null in the rows as well."""
    return None if value is None or math.isnan(value) else value


def _attempts(s: SessionState) -> Rows:
    rows: Rows = []
    since = 0
    for number, r in enumerate(s.attempts, 1):
        findings = findings_of(s, r)
        acts = sum(
            since < i.recorded.at_ts_us <= r.ts_us and not i.voided
            for i in s.interventions.values()
        )
        since = r.ts_us
        result = outcome(s, r)
        rows.append(
            (
                r.run_id,
                number,
                r.seq,
                r.tree,
                result.kind,
                result.text,
                len(findings),
                sum(f.opened.silent for f in findings),
                sum(c.body.state == FAIL for c in checks_of(s, r)),
                acts,
            )
        )
    return rows


def _checks(s: SessionState) -> Rows:
    results = sorted((r for some in s.checks.values() for r in some), key=lambda r: r.seq)
    return [
        (
            r.seq,
            iso(r.ts_us),
            b.check,
            b.level,
            b.state,
            b.summary,
            b.expected,
            b.actual,
            b.tolerance,
            b.reason,
            b.tree,
            b.command,
            b.criteria,
            b.chips,
            b.author,
        )
        for r in results
        for b in (r.body,)
    ]


def _check_runs(s: SessionState) -> Rows:
    results = sorted((r for some in s.checks.values() for r in some), key=lambda r: r.seq)
    return [
        (r.seq, run_id, role)
        for r in results
        for role, runs in (("run", r.body.runs), ("reference", r.body.reference_runs))
        for run_id in runs
        if run_id in s.runs
    ]


def _findings(s: SessionState) -> Rows:
    return [
        (
            f.opened.finding_id,
            f.seq,
            iso(f.ts_us),
            _known(s, f.run_id),
            f.tree,
            f.opened.detector,
            f.opened.category,
            f.category,
            f.recategorised_by,
            f.opened.title,
            "\n".join(f.opened.evidence),
            f.opened.threshold,
            f.opened.next_step,
            f.opened.silent,
            f.resolved if f.resolved_seq else None,
            f.resolved_seq,
        )
        for f in s.findings.values()
    ]


def _intervention(s: SessionState, i: Intervention) -> tuple[Any, ...]:
    b = i.recorded
    # From the key press on, not from the words, which may come minutes later.
    trees = (p.tree for p in s.snapshots if p.ts_us > b.at_ts_us and p.tree != b.at_tree)
    levels = (m.level for m in s.measurements if m.ts_us > b.at_ts_us)
    return (
        b.intervention_id,
        i.seq,
        iso(b.at_ts_us),
        b.at_ts_us,
        iso(i.history[0]["ts_us"]),
        _known(s, b.at_run),
        b.at_tree,
        next(trees, None),
        b.at_level,
        next(levels, None),
        _text(i.kind),
        _text(i.trigger),
        _text(i.category),
        _text(i.necessity),
        _text(i.text),
        i.minutes_claimed if isinstance(i.minutes_claimed, int | float) else None,
        bool(i.subset),
        _text(i.author),
        b.automatic,
        i.voided,
        len(i.history) - 1,
    )


def _changes(s: SessionState) -> Rows:
    rows = [
        (
            h["seq"],
            i.recorded.intervention_id,
            iso(h["ts_us"]),
            h["what"],
            canonical(h["changes"]) if "changes" in h else None,
            h.get("reason"),
            h.get("author"),
        )
        for i in s.interventions.values()
        for h in i.history
    ]
    return sorted(rows)


def _asks(s: SessionState) -> Rows:
    rows: Rows = []
    for ask_id, a in s.asks.items():
        d = a.decision
        waited = None if a.decided_ts_us is None else (a.decided_ts_us - a.ts_us) / 1e6
        rows.append(
            (
                ask_id,
                a.seq,
                iso(a.ts_us),
                a.body.question,
                a.body.tool,
                d.decision if d else None,
                d.reason if d else None,
                d.author if d else None,
                waited,
            )
        )
    return rows


def _snapshots(s: SessionState) -> Rows:
    return [
        (
            p.seq,
            iso(p.ts_us),
            p.tree,
            p.body.commit,
            p.body.cause,
            len(p.body.files),
            _total(p.body.files, "added"),
            _total(p.body.files, "removed"),
        )
        for p in s.snapshots
    ]


def _total(files: list[dict[str, Any]], name: str) -> int:
    return sum(f[name] for f in files if isinstance(f.get(name), int))


def _known(s: SessionState, run_id: str) -> str | None:
    """The run, for a foreign key: null where the log has no such run."""
    return run_id if run_id in s.runs else None


def _text(value: Any) -> str:
    """An amendment may hold anything a stranger's file says; a column holds text."""
    return value if isinstance(value, str) else canonical(value)


def canonical(value: Any) -> str:
    """JSON with sorted keys, so that the same value is the same text."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
