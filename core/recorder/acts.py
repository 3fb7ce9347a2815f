"""What the operator's acts are on record as: automatic interventions.

An intervention is an act of the operator that changes the agent's input, permissions or
workspace: a message, an interruption, a denied or edited request open one by themselves. A
plain approval, an answer to the agent's own question, a pause and a look do not.
"""

from __future__ import annotations

from core import events as ev
from core.events import Event
from core.state import SessionState

# Who opens interventions on purpose at a console writes the words later; here the act has them.
PREFIX = "auto-"


def intervention_for(event: Event, state: SessionState) -> ev.InterventionRecorded | None:
    """The intervention that an event is by itself, as of ``state`` (which has the event in it)."""
    body = event.body
    if isinstance(body, ev.OperatorMessaged):
        return _made(event, state, "guidance", "own review", body.text, body.author)
    if isinstance(body, ev.OperatorInterrupted):
        text = body.reason or "interrupted the agent"
        return _made(event, state, "restart", "own review", text, body.author)
    if isinstance(body, ev.OperatorDecided) and body.decision in ("deny", "edit"):
        ask = state.asks.get(body.ask_id)
        # Only the answer that counted, and only to a request for permission.
        if ask is None or ask.decision != body or not ask.body.tool:
            return None
        asked = str(ask.body.input.get("command") or ask.body.question)
        if body.decision == "deny":
            text = f"denied: {asked}" + (f" ({body.reason})" if body.reason else "")
            return _made(event, state, "permission", "asked", text, body.author)
        new = str((body.input or {}).get("command") or body.input)
        return _made(event, state, "permission", "asked", f"changed: {asked} -> {new}", body.author)
    return None


def _made(
    event: Event, state: SessionState, kind: str, trigger: str, text: str, author: str
) -> ev.InterventionRecorded:
    run = state.running
    return ev.InterventionRecorded(
        # From the event's own id: whoever reads the log again makes the same one, not a second.
        intervention_id=PREFIX + event.event_id,
        at_ts_us=event.ts_us,
        at_tree=state.tree,
        at_run=run.run_id if run else "",
        at_level=state.measured_level,
        kind=kind,
        trigger=trigger,
        text=text,
        author=author,
        automatic=True,
    )


class Acts:
    """Collects the interventions that acts in the log ask for and that the log has not yet."""

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._due: dict[str, ev.InterventionRecorded] = {}

    def take(self, event: Event) -> None:
        """Look at one event, right after the fold took it in."""
        if isinstance(event.body, ev.InterventionRecorded):
            self._due.pop(event.body.intervention_id, None)
        elif made := intervention_for(event, self._state):
            self._due[made.intervention_id] = made

    def due(self) -> list[ev.InterventionRecorded]:
        """The interventions to be appended now; each is given once."""
        due, self._due = list(self._due.values()), {}
        return due
