"""What the agent is doing and for whom it waits, in words that can't be misread. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from core.state import SessionState
from core.state_parts import Ask
from tui.wording import one_line, span, tool_wish

#: Seconds without a recorder after the last event in which a session is still *starting*.
STARTING_S = 10

#: Seconds without any event after which a working agent is called stalled. Long compiles and
#: long thoughts of a model exist; two minutes without a sign of either is worth a look.
STALLED_S = 120


INTERRUPTED = "interrupted: m sends a message, p goes on"
"""Why an agent waits that asks for nothing, and the two ways on."""


@dataclass(frozen=True, slots=True)
class Status:
    """The agent's state. ``tone`` is one of wait, work, run, pause, done, bad, idle.

    ``since_us`` is when it began (null: no clock is shown); ``todo`` says what the operator
    can do about it, and is empty where there is nothing to do.
    """

    word: str
    tone: str
    detail: str = ""
    since_us: int | None = None
    todo: str = ""

    def elapsed(self, now_us: int) -> str:
        """How long it has been so, ``0:42``, or nothing."""
        return "" if self.since_us is None else span((now_us - self.since_us) / 1e6)


def ask_text(ask: Ask) -> str:
    """What an ask is about: ``wants to run pip install x`` or ``asks: which seed?``."""
    if ask.body.tool:
        return "wants to " + tool_wish(ask.body.tool, ask.body.input)
    return "asks: " + one_line(ask.body.question, 200)


def ask_subject(ask: Ask) -> str:
    """What an ask is about, without who wants it: ``rm -r runs``, ``edit train.py``."""
    if not ask.body.tool:
        return one_line(ask.body.question, 200)
    wish = tool_wish(ask.body.tool, ask.body.input)
    return wish.removeprefix("run ") if ask.body.tool in ("shell", "run") else wish


def agent_status(
    state: SessionState, now_us: int, recorder: bool | None, session_id: str = ""
) -> Status:
    """The one state the header shows.

    ``recorder`` is whether the recorder's process holds its lock; null where that has no
    meaning (a replay) or is not known yet.
    """
    if state.phase in ("finished", "failed"):
        return _ended(state)
    if state.agent is None and state.measurements and not state.recorder_up:
        return Status(
            "VERIFIED", "idle", "no agent has worked here; the code was measured as it is"
        )
    if recorder is False:
        return _without_recorder(state, now_us, session_id)
    if state.phase == "cut off":
        return Status(
            "CUT OFF",
            "bad",
            "the recorder died; what was open was closed",
            _since(state),
            "R starts the agent again" if recorder is not None else "",
        )
    if state.phase == "stopped":
        return Status("STOPPED", "idle", "the recorder ended in good order", _since(state))
    if state.phase == "idle":
        return Status("STARTING", "idle", "no agent yet", state.first_ts_us or None)
    if state.phase == "waiting":
        ask = state.pending_ask
        if ask is None:
            return Status("WAITING ON YOU", "wait", INTERRUPTED, _since(state))
        return Status("WAITING ON YOU", "wait", ask_text(ask), ask.ts_us, "a approve, d deny")
    if state.phase == "paused":
        return Status("PAUSED", "pause", "the agent takes no step", _since(state), "p resumes")
    return _working(state, now_us)


def _working(state: SessionState, now_us: int) -> Status:
    run = state.running
    if run is not None:
        purpose = run.started.purpose + (f" of {run.started.of}" if run.started.of else "")
        return Status(f"RUN #{run.number}", "run", purpose, run.ts_us)
    if (now_us - state.last_ts_us) / 1e6 > STALLED_S:
        return Status(
            "STALLED?",
            "wait",
            "no event since",
            state.last_ts_us,
            "x interrupts, m writes to the agent",
        )
    call = next((e for e in reversed(state.transcript) if e.kind == "called"), None)
    if call is not None and call.output is None:
        return Status("WORKING", "work", tool_wish(call.tool, call.input), call.ts_us)
    return Status("WORKING", "work", "", _since(state))


def _ended(state: SessionState) -> Status:
    # Both kinds of end carry one text; which it was is the phase.
    end = state.agent_end
    text = getattr(end, "error", "") or getattr(end, "text", "") or getattr(end, "reason", "")
    if state.phase == "failed":
        return Status("FAILED", "bad", one_line(text, 200), _since(state))
    return Status("FINISHED", "done", one_line(text, 200))


def _without_recorder(state: SessionState, now_us: int, session_id: str) -> Status:
    again = f"R restarts it (or: pilotage run --resume {session_id})".replace(" )", ")")
    if state.phase == "stopped":
        return Status("STOPPED", "idle", "the recorder ended in good order", None, again)
    if not state.recorder_up and (now_us - state.last_ts_us) / 1e6 < STARTING_S:
        return Status("STARTING", "idle", "waiting for the recorder", state.first_ts_us or None)
    return Status("RECORDER GONE", "bad", "the agent stands still", None, again)


def _since(state: SessionState) -> int | None:
    return state.phases[-1].start_ts_us if state.phases else None
