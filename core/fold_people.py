"""The fold's handlers for the agent and the operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core import events as ev
from core.events import Event
from core.fold import handles
from core.state_parts import Ask, Claim, Intervention, Message, Signal, level_name

if TYPE_CHECKING:
    from core.state import SessionState

#: Fields of an intervention that ``intervention.amended`` may change.
AMENDABLE = (
    "kind", "trigger", "category", "necessity", "text", "minutes_claimed", "subset", "author",
)  # fmt: skip

# --- agent ----------------------------------------------------------------------------------


@handles(ev.AgentStarted)
def _agent_started(s: SessionState, e: Event, b: ev.AgentStarted) -> None:
    s.agent, s.agent_end, s.agent_cut_off = b, None, False
    s.interrupted = False
    s._say(e, "started", f"{b.driver} agent started" + (f": {b.detail}" if b.detail else ""))


@handles(ev.AgentSaid)
def _agent_said(s: SessionState, e: Event, b: ev.AgentSaid) -> None:
    s._say(e, "said", b.text)


@handles(ev.AgentCalled)
def _agent_called(s: SessionState, e: Event, b: ev.AgentCalled) -> None:
    s.interrupted = False
    s._say(e, "called", ref=b.call_id, tool=b.tool, input=b.input)


@handles(ev.AgentReturned)
def _agent_returned(s: SessionState, e: Event, b: ev.AgentReturned) -> None:
    for entry in reversed(s.transcript):
        if entry.kind == "called" and entry.ref == b.call_id:
            entry.output, entry.ok, entry.ended_ts_us = b.output, b.ok, e.ts_us
            entry.run_id = entry.run_id or e.run_id
            return


@handles(ev.AgentUsed)
def _agent_used(s: SessionState, e: Event, b: ev.AgentUsed) -> None:
    s.usage.append(b)


@handles(ev.AgentAsked)
def _agent_asked(s: SessionState, e: Event, b: ev.AgentAsked) -> None:
    s.asks[b.ask_id] = Ask(e.seq, e.ts_us, b)
    s._say(e, "asked", b.question, ref=b.ask_id, tool=b.tool, input=b.input)
    s._moment(e, "ask", b.question, b.ask_id)


@handles(ev.AgentClaimed)
def _agent_claimed(s: SessionState, e: Event, b: ev.AgentClaimed) -> None:
    s.claims.append(Claim(e.seq, e.ts_us, b.level, b.text, e.tree or s.tree, b.claim_id))
    s._say(e, "claimed", b.text, ref=level_name(b.level))
    s._moment(e, "claim", f"claims {level_name(b.level)}", b.claim_id)


@handles(ev.AgentFinished)
def _agent_finished(s: SessionState, e: Event, b: ev.AgentFinished) -> None:
    s.agent_end = b
    s._say(e, "finished", b.text or b.reason)


@handles(ev.AgentFailed)
def _agent_failed(s: SessionState, e: Event, b: ev.AgentFailed) -> None:
    s.agent_end = b
    s._say(e, "failed", b.error)


# --- operator -------------------------------------------------------------------------------


def _signal(s: SessionState, e: Event, console_id: str, what: str) -> None:
    s.signals.append(Signal(e.ts_us, e.mono_us, e.boot_id, console_id, what))


@handles(ev.OperatorAttached)
def _operator_attached(s: SessionState, e: Event, b: ev.OperatorAttached) -> None:
    s.consoles[b.console_id] = b
    _signal(s, e, b.console_id, "attached")


@handles(ev.OperatorDetached)
def _operator_detached(s: SessionState, e: Event, b: ev.OperatorDetached) -> None:
    s.consoles.pop(b.console_id, None)
    _signal(s, e, b.console_id, "detached")


@handles(ev.OperatorHeartbeat)
def _operator_heartbeat(s: SessionState, e: Event, b: ev.OperatorHeartbeat) -> None:
    _signal(s, e, b.console_id, "beat")


@handles(ev.OperatorDecided)
def _operator_decided(s: SessionState, e: Event, b: ev.OperatorDecided) -> None:
    # The first answer counts; a second console's later one changes nothing.
    ask = s.asks.get(b.ask_id)
    if ask is not None and ask.pending:
        ask.decision, ask.decided_ts_us = b, e.ts_us


@handles(ev.OperatorMessaged)
def _operator_messaged(s: SessionState, e: Event, b: ev.OperatorMessaged) -> None:
    s.messages[b.message_id] = Message(e.seq, e.ts_us, b.message_id, b.text, b.author)
    s._say(e, "messaged", b.text, ref=b.message_id)
    s._moment(e, "message", b.text, b.message_id)


@handles(ev.OperatorDelivered)
def _operator_delivered(s: SessionState, e: Event, b: ev.OperatorDelivered) -> None:
    s.interrupted = False
    if message := s.messages.get(b.message_id):
        message.delivered_ts_us = e.ts_us


@handles(ev.OperatorInterrupted)
def _operator_interrupted(s: SessionState, e: Event, b: ev.OperatorInterrupted) -> None:
    # An interrupted agent withdraws what it asked: a later answer would reach nobody.
    for ask in s.asks.values():
        if ask.pending:
            ask.closed = "interrupted"
    s.interrupted = True  # it now waits for a word, or for being resumed
    s._say(e, "interrupted", b.reason)
    s._moment(e, "message", "interrupted" + (f": {b.reason}" if b.reason else ""))


@handles(ev.OperatorPaused)
def _operator_paused(s: SessionState, e: Event, b: ev.OperatorPaused) -> None:
    s.paused = True
    s._say(e, "paused", b.reason)
    _signal(s, e, "", "paused")


@handles(ev.OperatorResumed)
def _operator_resumed(s: SessionState, e: Event, b: ev.OperatorResumed) -> None:
    s.paused = s.interrupted = False
    s._say(e, "resumed")
    # It is an act of the one who resumed, whose clock goes on with it.
    _signal(s, e, e.source.removeprefix("console:"), "resumed")


@handles(ev.OperatorRequested)
def _operator_requested(s: SessionState, e: Event, b: ev.OperatorRequested) -> None:
    s._say(e, "requested", b.action + (f": {b.detail}" if b.detail else ""))


# --- interventions --------------------------------------------------------------------------


@handles(ev.InterventionRecorded)
def _intervention_recorded(s: SessionState, e: Event, b: ev.InterventionRecorded) -> None:
    s.interventions[b.intervention_id] = Intervention(
        seq=e.seq,
        recorded=b,
        kind=b.kind,
        trigger=b.trigger,
        category=b.category,
        necessity=b.necessity,
        text=b.text,
        minutes_claimed=b.minutes_claimed,
        subset=b.subset,
        author=b.author,
        history=[{"seq": e.seq, "ts_us": e.ts_us, "what": "recorded", "author": b.author}],
    )
    s._moment(e, "intervention", b.text or b.kind or "intervention", b.intervention_id)


def _note(s: SessionState, e: Event, intervention_id: str, what: str, **more: object) -> None:
    item = s.interventions.get(intervention_id)
    if item is not None:
        item.history.append({"seq": e.seq, "ts_us": e.ts_us, "what": what, **more})


@handles(ev.InterventionAmended)
def _intervention_amended(s: SessionState, e: Event, b: ev.InterventionAmended) -> None:
    item = s.interventions.get(b.intervention_id)
    if item is None:
        return
    for name, value in b.changes.items():
        if name in AMENDABLE:
            setattr(item, name, value)
    _note(s, e, b.intervention_id, "amended", changes=b.changes, author=b.author)
    for moment in s.moments:
        if moment.kind == "intervention" and moment.ref == b.intervention_id:
            moment.label = item.text or item.kind or "intervention"


@handles(ev.InterventionVoided)
def _intervention_voided(s: SessionState, e: Event, b: ev.InterventionVoided) -> None:
    if item := s.interventions.get(b.intervention_id):
        item.voided = True
    _note(s, e, b.intervention_id, "voided", reason=b.reason, author=b.author)


@handles(ev.InterventionRestored)
def _intervention_restored(s: SessionState, e: Event, b: ev.InterventionRestored) -> None:
    if item := s.interventions.get(b.intervention_id):
        item.voided = False
    _note(s, e, b.intervention_id, "restored", author=b.author)
