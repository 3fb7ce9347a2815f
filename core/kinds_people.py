"""Kinds of event that people and agents make: operator, agent, interventions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from core.body import JSON, Body

# --- operator --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OperatorAttached(Body):
    """A console opened the session."""

    KIND: ClassVar[str] = "operator.attached"
    console_id: str
    author: str = ""
    terminal: str = ""


@dataclass(frozen=True, slots=True)
class OperatorDetached(Body):
    """A console left in good order (one that was killed leaves no such event)."""

    KIND: ClassVar[str] = "operator.detached"
    console_id: str


@dataclass(frozen=True, slots=True)
class OperatorHeartbeat(Body):
    """The operator did something at a console: a key, a mouse press, a paste, a focus change.

    At most one per 15 s and console, so that hours of work stay a few hundred events.
    """

    KIND: ClassVar[str] = "operator.heartbeat"
    console_id: str
    signal: str = "key"


@dataclass(frozen=True, slots=True)
class OperatorDecided(Body):
    """The operator's word on one ``agent.asked``: ``allow``, ``deny`` or ``edit``.

    With ``edit``, ``input`` replaces what the agent asked for.
    """

    KIND: ClassVar[str] = "operator.decided"
    ask_id: str
    decision: str
    reason: str = ""
    input: JSON | None = None
    author: str = ""


@dataclass(frozen=True, slots=True)
class OperatorMessaged(Body):
    """A message to the agent. It is delivered when an ``operator.delivered`` names it."""

    KIND: ClassVar[str] = "operator.messaged"
    message_id: str
    text: str
    author: str = ""


@dataclass(frozen=True, slots=True)
class OperatorDelivered(Body):
    """The recorder handed an operator's message to the agent."""

    KIND: ClassVar[str] = "operator.delivered"
    message_id: str


@dataclass(frozen=True, slots=True)
class OperatorInterrupted(Body):
    """The operator stopped what the agent was doing (and the run it had started, if any)."""

    KIND: ClassVar[str] = "operator.interrupted"
    reason: str = ""
    author: str = ""


@dataclass(frozen=True, slots=True)
class OperatorPaused(Body):
    """The agent takes no further step, and the operator's clock stops, until resumed."""

    KIND: ClassVar[str] = "operator.paused"
    reason: str = ""
    author: str = ""


@dataclass(frozen=True, slots=True)
class OperatorResumed(Body):
    """The end of a pause."""

    KIND: ClassVar[str] = "operator.resumed"
    author: str = ""


@dataclass(frozen=True, slots=True)
class OperatorRequested(Body):
    """A command to the recorder: ``verify``, ``stop run`` or ``stop session``."""

    KIND: ClassVar[str] = "operator.requested"
    action: str
    author: str = ""
    detail: str = ""


# --- agent -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AgentStarted(Body):
    """A driver began to work; ``driver`` is ``scripted``, ``anthropic``, ``claude-code`` ..."""

    KIND: ClassVar[str] = "agent.started"
    driver: str
    model: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class AgentSaid(Body):
    """Text from the agent."""

    KIND: ClassVar[str] = "agent.said"
    text: str
    turn: int = 0


@dataclass(frozen=True, slots=True)
class AgentCalled(Body):
    """The agent called a tool; an ``agent.returned`` with the same ``call_id`` ends it."""

    KIND: ClassVar[str] = "agent.called"
    call_id: str
    tool: str
    input: JSON = field(default_factory=dict)
    turn: int = 0


@dataclass(frozen=True, slots=True)
class AgentReturned(Body):
    """What the tool gave back."""

    KIND: ClassVar[str] = "agent.returned"
    call_id: str
    ok: bool = True
    output: str = ""


@dataclass(frozen=True, slots=True)
class AgentUsed(Body):
    """Token usage of one request, by class, and its price in US dollars.

    ``usd`` is null where the price is not known: never zero for unknown.
    """

    KIND: ClassVar[str] = "agent.used"
    model: str
    request_id: str = ""
    input_tokens: int = 0
    cache_write_5m_tokens: int = 0
    cache_write_1h_tokens: int = 0
    cache_read_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = None
    reported_usd: float | None = None
    price_table: str = ""


@dataclass(frozen=True, slots=True)
class AgentAsked(Body):
    """The agent waits for the operator: a permission (``tool`` set) or a question."""

    KIND: ClassVar[str] = "agent.asked"
    ask_id: str
    question: str
    tool: str = ""
    input: JSON = field(default_factory=dict)
    call_id: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class AgentClaimed(Body):
    """The agent says that a level is reached. It is a claim: nothing was measured by it."""

    KIND: ClassVar[str] = "agent.claimed"
    level: int
    text: str = ""
    claim_id: str = ""


@dataclass(frozen=True, slots=True)
class AgentFinished(Body):
    """The agent ended of its own accord."""

    KIND: ClassVar[str] = "agent.finished"
    reason: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class AgentFailed(Body):
    """The agent ended because of an error; ``error`` is a sentence."""

    KIND: ClassVar[str] = "agent.failed"
    error: str


# --- interventions, markers, budgets ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InterventionRecorded(Body):
    """An act of the operator that changes the agent's input, permissions, workspace or environment.

    ``at_ts_us``, ``at_tree``, ``at_run`` and ``at_level`` are those of the key press (or of
    the act), whatever the time at which the words were written. ``automatic`` marks one
    that the cockpit opened for an act such as a message or a denial.
    """

    KIND: ClassVar[str] = "intervention.recorded"
    intervention_id: str
    at_ts_us: int
    at_tree: str = ""
    at_run: str = ""
    at_level: int = -1
    kind: str = ""
    trigger: str = ""
    category: str = ""
    necessity: str = ""
    text: str = ""
    minutes_claimed: float | None = None
    subset: bool = False
    author: str = ""
    automatic: bool = False


@dataclass(frozen=True, slots=True)
class InterventionAmended(Body):
    """New values for some fields of an intervention; the old ones stay in the history."""

    KIND: ClassVar[str] = "intervention.amended"
    intervention_id: str
    changes: JSON
    author: str = ""


@dataclass(frozen=True, slots=True)
class InterventionVoided(Body):
    """The intervention does not count; it stays visible."""

    KIND: ClassVar[str] = "intervention.voided"
    intervention_id: str
    reason: str = ""
    author: str = ""


@dataclass(frozen=True, slots=True)
class InterventionRestored(Body):
    """Undoes ``intervention.voided``."""

    KIND: ClassVar[str] = "intervention.restored"
    intervention_id: str
    author: str = ""


@dataclass(frozen=True, slots=True)
class MarkerPlaced(Body):
    """A named moment on the timeline."""

    KIND: ClassVar[str] = "marker.placed"
    text: str
    author: str = ""


@dataclass(frozen=True, slots=True)
class BudgetReached(Body):
    """A budget was reached, with the figures that led to it and what was done."""

    KIND: ClassVar[str] = "budget.reached"
    budget: str
    limit: float
    actual: float
    action: str = ""
