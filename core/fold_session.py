"""The fold's handlers for the recorder, the worktree, runs, findings, checks and levels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core import events as ev
from core.events import JSON, Event
from core.fold import handles
from core.run_lines import LogLine, RunLines, Sieve
from core.state_parts import CheckResult, Finding, Measurement, Run, Snapshot, level_name

if TYPE_CHECKING:
    from core.state import SessionState


@handles(ev.SessionOpened)
def _session_opened(s: SessionState, e: Event, b: ev.SessionOpened) -> None:
    s.opened = b


@handles(ev.RecorderStarted)
def _recorder_started(s: SessionState, e: Event, b: ev.RecorderStarted) -> None:
    s.recorder_pid, s.recorder_up = b.pid, True


@handles(ev.RecorderStopped)
def _recorder_stopped(s: SessionState, e: Event, b: ev.RecorderStopped) -> None:
    s.recorder_up = False
    _close_open(s, e, "stopped")


@handles(ev.RecorderRecovered)
def _recorder_recovered(s: SessionState, e: Event, b: ev.RecorderRecovered) -> None:
    s.recoveries.append((e.seq, b))
    if s.agent is not None and s.agent_end is None:
        s.agent_cut_off = True
    _close_open(s, e, "cut off")
    s._say(e, "recovered", b.text)
    s._moment(e, "recovered", b.text or "recorder recovered")


def _close_open(s: SessionState, e: Event, why: str) -> None:
    """No agent waits for an answer or a result any more: its recorder is gone."""
    for ask in s.asks.values():
        if ask.pending:
            ask.closed = why
    for entry in s.transcript:
        if entry.kind == "called" and entry.output is None:
            ended = e.ts_us if why != "cut off" else _last_alive(s, e, entry.ts_us)
            entry.output, entry.ok, entry.ended_ts_us = why, False, ended


def _last_alive(s: SessionState, e: Event, begun_ts_us: int) -> int:
    """When what a dead recorder left open was last known to go on: not when the next one looked."""
    return max(begun_ts_us, s.last_sign[0]) if s.last_sign else e.ts_us


@handles(ev.TreeSnapshotted)
def _tree_snapshotted(s: SessionState, e: Event, b: ev.TreeSnapshotted) -> None:
    s.snapshots.append(Snapshot(e.seq, e.ts_us, b))


@handles(ev.DiffTagged)
def _diff_tagged(s: SessionState, e: Event, b: ev.DiffTagged) -> None:
    s.tagged = b
    if b.unasked and b.text:
        s._moment(e, "guard", b.text)


@handles(ev.RunStarted)
def _run_started(s: SessionState, e: Event, b: ev.RunStarted) -> None:
    metric = s.config.get("metric")
    pattern = metric.get("pattern") if isinstance(metric, dict) else ""
    lines = RunLines(sieve=Sieve(pattern))
    s.runs[e.run_id] = Run(e.run_id, e.seq, e.ts_us, e.tree, b, lines=lines)
    kind = "attempt" if b.purpose == "attempt" else "run"
    label = f"#{b.number} {b.purpose}" + (f" of {b.of}" if b.of else "")
    s._moment(e, kind, label, e.run_id)


@handles(ev.RunOutput)
def _run_output(s: SessionState, e: Event, b: ev.RunOutput) -> None:
    if run := s.runs.get(e.run_id):
        run.lines.extend(LogLine(e.seq, b.stream, line, b.rank) for line in b.lines)
        run.stalled = None


@handles(ev.RunElided)
def _run_elided(s: SessionState, e: Event, b: ev.RunElided) -> None:
    if run := s.runs.get(e.run_id):
        run.lines.elide(b.lines)
        run.elided_lines += max(0, b.lines)
        run.elided_bytes += max(0, b.bytes)
        run.elided.append((e.seq, b))
        del run.elided[_KEPT_ELISIONS:-1]  # the first ones and the last one; the totals go on


@handles(ev.RunStalled)
def _run_stalled(s: SessionState, e: Event, b: ev.RunStalled) -> None:
    if run := s.runs.get(e.run_id):
        if run.stalled is None and not b.alive:
            run.stalls += 1
        run.stalled, run.stalled_ts_us = b, e.ts_us


@handles(ev.RunResumed)
def _run_resumed(s: SessionState, e: Event, b: ev.RunResumed) -> None:
    if run := s.runs.get(e.run_id):
        run.stalled = None


@handles(ev.RunSampled)
def _run_sampled(s: SessionState, e: Event, b: ev.RunSampled) -> None:
    if run := s.runs.get(e.run_id):
        run.usage.append((e.ts_us, b))
        _thin(run.usage)


@handles(ev.HostSampled)
def _host_sampled(s: SessionState, e: Event, b: ev.HostSampled) -> None:
    if run := s.runs.get(e.run_id):
        run.telemetry.append((e.ts_us, b))
        _thin(run.telemetry)
        _note(run, b.note)


_KEPT_SAMPLES, _KEPT_NOTICES, _KEPT_ELISIONS = 4_096, 50, 50


def _note(run: Run, text: object) -> None:
    """Keep a sentence about a run, each once."""
    if isinstance(text, str) and text and text not in run.notices:
        del run.notices[_KEPT_NOTICES - 1 :]
        run.notices.append(text)


def _beat(run: Run, record: JSON) -> None:
    """Of each process's beats only the last stays: a run that is silent for days gives many.

    It has ``since_t``, the time of the first in a row of beats that said the same.
    """
    pid = record.get("pid")
    who = pid if isinstance(pid, int) else None
    at = run.beat_at.get(who)
    before = run.signals[at] if at is not None else {}
    same = all(before.get(k) == record.get(k) for k in ("steps", "compiles", "doing", "compiling"))
    record = {**record, "since_t": before.get("since_t") if same and before else record.get("t")}
    if at is not None:
        run.signals[at] = record
    else:
        run.beat_at[who] = len(run.signals)
        run.signals.append(record)


def _thin(samples: list[Any]) -> None:
    """Keep a series bounded: of the older half every second sample goes."""
    if len(samples) > _KEPT_SAMPLES:
        del samples[1 : len(samples) // 2 : 2]


@handles(ev.RunStepped)
def _run_stepped(s: SessionState, e: Event, b: ev.RunStepped) -> None:
    if run := s.runs.get(e.run_id):
        run.steps.extend(b.records)
        run.stalled = None


@handles(ev.RunSignalled)
def _run_signalled(s: SessionState, e: Event, b: ev.RunSignalled) -> None:
    if run := s.runs.get(e.run_id):
        for record in b.records:
            kind = record.get("k")
            if kind == "beat":
                _beat(run, record)
                continue
            run.signals.append(record)
            if kind in ("unwatched", "notice"):
                _note(run, record.get("text"))


@handles(ev.RunEnded)
def _run_ended(s: SessionState, e: Event, b: ev.RunEnded) -> None:
    if run := s.runs.get(e.run_id):
        run.ended, run.ended_ts_us, run.ended_seq = b, e.ts_us, e.seq
        run.stalled = None
        if b.reason == "cut off":
            run.ended_ts_us = _last_alive(s, e, run.ts_us)
        s._moment(e, "ended", f"#{run.number} {_how_it_ended(b)}", e.run_id)


@handles(ev.RunResult)
def _run_result(s: SessionState, e: Event, b: ev.RunResult) -> None:
    if run := s.runs.get(e.run_id):
        run.result = b


def _how_it_ended(b: ev.RunEnded) -> str:
    if b.exit_code is not None:
        return f"exit {b.exit_code}"
    return b.signal or b.reason


@handles(ev.FindingOpened)
def _finding_opened(s: SessionState, e: Event, b: ev.FindingOpened) -> None:
    s.findings[b.finding_id] = Finding(
        e.seq, e.ts_us, e.run_id, e.tree, opened=b, category=b.category
    )
    s._moment(e, "finding", f"{b.category} {b.title}", b.finding_id)


@handles(ev.FindingRecategorised)
def _finding_recategorised(s: SessionState, e: Event, b: ev.FindingRecategorised) -> None:
    if finding := s.findings.get(b.finding_id):
        finding.category, finding.recategorised_by = b.category, b.author or "operator"


@handles(ev.FindingResolved)
def _finding_resolved(s: SessionState, e: Event, b: ev.FindingResolved) -> None:
    if finding := s.findings.get(b.finding_id):
        finding.resolved, finding.resolved_by = b.reason, b.author
        finding.resolved_seq = e.seq


@handles(ev.CheckEvaluated)
def _check_evaluated(s: SessionState, e: Event, b: ev.CheckEvaluated) -> None:
    s.checks.setdefault(b.check, []).append(CheckResult(e.seq, e.ts_us, b))


@handles(ev.LevelMeasured)
def _level_measured(s: SessionState, e: Event, b: ev.LevelMeasured) -> None:
    before = s.measurements[-1].level if s.measurements else None
    s.measurements.append(Measurement(e.seq, e.ts_us, b.level, b.tree, b.text, frozenset(b.checks)))
    if before != b.level:
        s._moment(e, "level", level_name(b.level))
    _refute(s, e, b)


def _refute(s: SessionState, e: Event, b: ev.LevelMeasured) -> None:
    """Mark the first measurement of a claimed tree in which a check up to the claim failed."""
    claim = s.claims[-1] if s.claims else None
    if claim is None or claim.refuted_seq or b.level >= claim.level or b.tree != claim.tree:
        return
    failed = [c for c, state in b.checks.items() if state == "fail" and c <= f"L{claim.level}~"]
    if failed:
        claim.refuted_seq = e.seq
        label = f"claim {level_name(claim.level)} refuted: measured {level_name(b.level)}"
        s._moment(e, "refuted", label, claim.claim_id)


@handles(ev.MarkerPlaced)
def _marker_placed(s: SessionState, e: Event, b: ev.MarkerPlaced) -> None:
    s._moment(e, "marker", b.text)


@handles(ev.BudgetReached)
def _budget_reached(s: SessionState, e: Event, b: ev.BudgetReached) -> None:
    s.budgets.append(b)
    s._moment(e, "budget", f"{b.budget}: {b.actual:g} of {b.limit:g}")
