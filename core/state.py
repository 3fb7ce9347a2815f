"""The fold: what a session is, as a function of its events.

``apply`` is pure in the sense that matters here: no clock, no file, no network, no random
number; the same events give the same state, so the live view, a replay, an export and the
accounting can't disagree. What depends on *now* (how long the agent has waited, whether the
recorder's process is alive) is asked for with an argument or looked up outside.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from core import events as ev
from core import fold_people, fold_session
from core.events import Event
from core.fold import HANDLERS
from core.state_parts import (
    Ask,
    CheckResult,
    Claim,
    Entry,
    Finding,
    Intervention,
    Measurement,
    Message,
    Moment,
    PhaseSpan,
    Run,
    Signal,
    Snapshot,
)

# The handlers register themselves on import; a kind without one is a mistake of ours.
assert set(HANDLERS) == set(ev.BODIES.values()), (fold_people, fold_session)

#: Phases of the agent, as the fold knows them. ``idle``: not started; ``stopped``: its
#: recorder ended in good order; ``cut off``: its recorder died and has not gone on with it.
PHASES = (
    "idle", "working", "waiting", "paused", "finished", "failed", "stopped", "cut off",
)  # fmt: skip


@dataclass(slots=True)
class SessionState:
    """Everything the cockpit draws, at one position (``seq``) of the log."""

    seq: int = 0
    first_ts_us: int = 0
    last_ts_us: int = 0
    opened: ev.SessionOpened | None = None
    recorder_pid: int = 0
    recorder_up: bool = False
    recoveries: list[tuple[int, ev.RecorderRecovered]] = field(default_factory=list)

    agent: ev.AgentStarted | None = None
    agent_end: ev.AgentFinished | ev.AgentFailed | None = None
    agent_cut_off: bool = False
    paused: bool = False
    interrupted: bool = False
    phase: str = "idle"
    phases: list[PhaseSpan] = field(default_factory=list)

    transcript: list[Entry] = field(default_factory=list)
    asks: dict[str, Ask] = field(default_factory=dict)
    messages: dict[str, Message] = field(default_factory=dict)
    claims: list[Claim] = field(default_factory=list)
    usage: list[ev.AgentUsed] = field(default_factory=list)

    snapshots: list[Snapshot] = field(default_factory=list)
    #: What the diff guard last said of the diff since the baseline.
    tagged: ev.DiffTagged | None = None
    runs: dict[str, Run] = field(default_factory=dict)
    findings: dict[str, Finding] = field(default_factory=dict)
    checks: dict[str, list[CheckResult]] = field(default_factory=dict)
    measurements: list[Measurement] = field(default_factory=list)
    interventions: dict[str, Intervention] = field(default_factory=dict)
    signals: list[Signal] = field(default_factory=list)
    consoles: dict[str, ev.OperatorAttached] = field(default_factory=dict)
    budgets: list[ev.BudgetReached] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    unknown: dict[str, int] = field(default_factory=dict)
    #: Wall clock, monotonic clock and boot of the last event that a live recorder made.
    last_sign: tuple[int, int, str] | None = None

    # --- what views and rules ask for ---------------------------------------------------

    @property
    def config(self) -> dict[str, Any]:
        """The configuration the session was opened with."""
        return self.opened.config if self.opened else {}

    @property
    def tree(self) -> str:
        """The git tree of the worktree at its last snapshot, or ``""``."""
        return self.snapshots[-1].tree if self.snapshots else ""

    @property
    def claimed_level(self) -> int | None:
        """The level the agent last claimed."""
        return self.claims[-1].level if self.claims else None

    @property
    def measured_level(self) -> int:
        """The level last measured, whatever the tree was; -1 is *none*."""
        return self.measurements[-1].level if self.measurements else -1

    @property
    def pending_ask(self) -> Ask | None:
        """The oldest question the agent waits on."""
        return next((a for a in self.asks.values() if a.pending), None)

    @property
    def running(self) -> Run | None:
        """The run that was started last and has no end."""
        return next((r for r in reversed(self.runs.values()) if r.running), None)

    @property
    def last_run(self) -> Run | None:
        """The run that was started last."""
        return next(reversed(self.runs.values()), None)

    def runs_for(self, purpose: str, of: str | None = None) -> list[Run]:
        """The runs of one purpose, oldest first; ``of`` narrows parity runs."""
        return [
            r
            for r in self.runs.values()
            if r.started.purpose == purpose and (of is None or r.started.of == of)
        ]

    @property
    def attempts(self) -> list[Run]:
        """The runs of the migrated code that the agent or the operator started."""
        return self.runs_for("attempt")

    @property
    def over(self) -> bool:
        """Whether the agent has ended and its recorder has too."""
        return self.agent_end is not None and not self.recorder_up

    # --- the fold -------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Take in one event. Events come in order of ``seq``; an unknown kind only counts."""
        if event.seq <= self.seq:
            raise ValueError(f"event {event.seq} after {self.seq}: the fold takes events in order")
        self.seq = event.seq
        if not self.first_ts_us:
            self.first_ts_us = event.ts_us
        self.last_ts_us = max(self.last_ts_us, event.ts_us)
        if not event.source.startswith("console") and not self._closes(event.body):
            self.last_sign = (event.ts_us, event.mono_us, event.boot_id)
        handler = HANDLERS.get(type(event.body))
        if handler is None:
            self.unknown[event.kind] = self.unknown.get(event.kind, 0) + 1
        else:
            handler(self, event, event.body)
        self._follow_phase(event)

    def _follow_phase(self, event: Event) -> None:
        phase = self._phase()
        if phase == self.phase:
            return
        start = (event.ts_us, event.mono_us, event.boot_id)
        if phase == "cut off" and self.phases and self.last_sign is not None:
            # The agent ended with its recorder, not when the next one noticed.
            last = self.phases[-1]
            begun = (last.start_ts_us, last.start_mono_us, last.boot_id)
            start = self.last_sign if self.last_sign[0] >= begun[0] else begun
        if self.phases:
            self.phases[-1].end_ts_us, self.phases[-1].end_mono_us = start[:2]
        self.phases.append(PhaseSpan(phase, *start))
        self.phase = phase

    def _closes(self, body: ev.Body) -> bool:
        """Whether an event is a new recorder's word on what a dead one left open."""
        return (
            isinstance(body, ev.RecorderRecovered)
            or (isinstance(body, ev.RecorderStarted) and self.recorder_up)
            or (isinstance(body, ev.RunEnded) and body.reason == "cut off")
        )

    def _phase(self) -> str:
        if isinstance(self.agent_end, ev.AgentFailed):
            return "failed"
        if self.agent_end is not None:
            return "finished"
        if self.agent is None:
            return "idle"
        if self.agent_cut_off:
            return "cut off"
        if not self.recorder_up:
            return "stopped"
        if self.paused:
            return "paused"
        return "waiting" if self.pending_ask or self.interrupted else "working"

    def _moment(self, event: Event, kind: str, label: str, ref: str = "") -> None:
        self.moments.append(Moment(event.seq, event.ts_us, kind, label, ref))

    def _say(self, event: Event, kind: str, text: str = "", **more: Any) -> Entry:
        entry = Entry(event.seq, event.ts_us, kind, text, run_id=event.run_id, **more)
        self.transcript.append(entry)
        return entry


def fold(events: Iterable[Event]) -> SessionState:
    """The state after ``events``."""
    state = SessionState()
    for event in events:
        state.apply(event)
    return state
