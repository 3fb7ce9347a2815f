"""The vocabulary of the event log.

Everything that happens in a session is one of the kinds below. Each kind is one frozen
dataclass (its *body*); a stored body travels in an :class:`Event`, the envelope with the
sequence number, the clocks and the place in the hash chain.

Rules of the vocabulary:

* A kind is ``noun.past_tense``; it never changes its meaning. A field may be added with a
  default; a change that old readers would misread gets a new ``VERSION``.
* Reading is tolerant: an unknown kind becomes :class:`Unknown` and survives a round trip
  unchanged, an unknown field is kept in ``extra`` of the event, a missing field takes its
  default. Writing is strict: bodies are made by their constructors.
* Bodies hold JSON values only (str, int, float, bool, None, list, dict). Text in them is
  already redacted, and is still hostile: a view cleans it before it is drawn.
"""

from __future__ import annotations

import dataclasses
import json
import math
import uuid
from dataclasses import dataclass, field
from typing import Any, ClassVar

JSON = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Body:
    """Base of all event bodies; subclasses set ``KIND`` and, when changed, ``VERSION``."""

    KIND: ClassVar[str] = ""
    VERSION: ClassVar[int] = 1

    def payload(self) -> JSON:
        """The body as a JSON object, without kind and version (the envelope has those)."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}


# --- session and recorder -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionOpened(Body):
    """A session exists; ``config`` is the whole configuration it was opened with."""

    KIND: ClassVar[str] = "session.opened"
    session_id: str
    title: str
    project: str
    config: JSON = field(default_factory=dict)
    pilotage_version: str = ""


@dataclass(frozen=True, slots=True)
class RecorderStarted(Body):
    """A recorder process holds the session's lock from here on."""

    KIND: ClassVar[str] = "recorder.started"
    pid: int
    host: str = ""
    pilotage_version: str = ""


@dataclass(frozen=True, slots=True)
class RecorderRecovered(Body):
    """A recorder found that the one before it ended without a word, and closed what was open.

    ``cut_off_runs`` are the runs that had no end; each also gets a ``run.ended`` whose
    reason is ``cut off``. ``last_seq`` is the last event the dead recorder is known by.
    """

    KIND: ClassVar[str] = "recorder.recovered"
    cut_off_runs: list[str] = field(default_factory=list)
    cut_off_calls: list[str] = field(default_factory=list)
    last_seq: int = 0
    killed_pids: list[int] = field(default_factory=list)
    text: str = ""


@dataclass(frozen=True, slots=True)
class RecorderStopped(Body):
    """The recorder ended in good order."""

    KIND: ClassVar[str] = "recorder.stopped"
    reason: str = ""


# --- operator -------------------------------------------------------------------------------


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


# --- agent ----------------------------------------------------------------------------------


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


# --- the worktree ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TreeSnapshotted(Body):
    """The worktree was written to the shadow ref, as git tree ``tree`` in commit ``commit``.

    ``files`` is against the baseline: ``{path, status, added, removed}`` each, with counts
    null for binary files. ``patch`` is the unified diff baseline -> tree and ``step_patch``
    the one from the snapshot before; either is cut at a stated size, and then says so in
    ``patch_note``.
    """

    KIND: ClassVar[str] = "tree.snapshotted"
    tree: str
    commit: str
    parent: str = ""
    cause: str = ""
    call_id: str = ""
    files: list[JSON] = field(default_factory=list)
    patch: str = ""
    step_patch: str = ""
    patch_note: str = ""


# --- runs -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunStarted(Body):
    """A command was started. ``purpose`` is ``reference``, ``attempt`` or ``parity``.

    ``number`` counts all runs of a session from 1. ``of`` names, for a parity run, what it
    stands for: ``reference`` or ``target``. ``env`` holds only what was added to or taken
    from the recorder's environment.
    """

    KIND: ClassVar[str] = "run.started"
    number: int
    purpose: str
    command: str
    target: str = ""
    chips: int = 0
    of: str = ""
    probe_mode: str = ""
    parity_steps: int = 0
    cwd: str = ""
    python: str = ""
    env: JSON = field(default_factory=dict)
    pid: int = 0
    by: str = ""


@dataclass(frozen=True, slots=True)
class RunOutput(Body):
    """Some lines of one stream (``stdout`` or ``stderr``), control characters already gone."""

    KIND: ClassVar[str] = "run.output"
    stream: str
    lines: list[str]


@dataclass(frozen=True, slots=True)
class RunStepped(Body):
    """Probe records of optimizer steps, in the form of ``core.runs.records.StepRecord``."""

    KIND: ClassVar[str] = "run.stepped"
    records: list[JSON]


@dataclass(frozen=True, slots=True)
class RunSignalled(Body):
    """Probe records other than steps: versions, the model, the optimizer, the finish."""

    KIND: ClassVar[str] = "run.signalled"
    records: list[JSON]


@dataclass(frozen=True, slots=True)
class RunEnded(Body):
    """The run's process group is gone.

    ``reason`` is ``exited``, ``signalled``, ``stopped``, ``time limit``, ``cut off`` or
    ``not started``; ``exit_code`` is null unless the process exited by itself.
    """

    KIND: ClassVar[str] = "run.ended"
    reason: str
    exit_code: int | None = None
    signal: str = ""
    duration_s: float = 0.0
    max_rss_mb: float = 0.0
    text: str = ""


# --- findings, checks, levels ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FindingOpened(Body):
    """A detector saw something; ``evidence`` is what it saw, in lines a person can read."""

    KIND: ClassVar[str] = "finding.opened"
    finding_id: str
    detector: str
    category: str
    title: str
    evidence: list[str] = field(default_factory=list)
    next_step: str = ""
    silent: bool = False
    threshold: str = ""


@dataclass(frozen=True, slots=True)
class FindingRecategorised(Body):
    """The operator's category; the detector's stays on record."""

    KIND: ClassVar[str] = "finding.recategorised"
    finding_id: str
    category: str
    reason: str = ""
    author: str = ""


@dataclass(frozen=True, slots=True)
class FindingResolved(Body):
    """A later run of the same kind showed the finding no more, or the operator closed it."""

    KIND: ClassVar[str] = "finding.resolved"
    finding_id: str
    reason: str = ""
    author: str = ""


@dataclass(frozen=True, slots=True)
class CheckEvaluated(Body):
    """The result of one check of the ladder, with everything needed to doubt it.

    ``state`` is ``pass``, ``fail``, ``not run`` or ``waived``. ``tree``, ``command``,
    ``criteria`` (a hash) and ``chips`` are what it holds for: a change of any makes the
    result stale, which is derived and never stored.
    """

    KIND: ClassVar[str] = "check.evaluated"
    check: str
    level: int
    state: str
    summary: str
    expected: str = ""
    actual: str = ""
    tolerance: str = ""
    reason: str = ""
    tree: str = ""
    command: str = ""
    criteria: str = ""
    chips: int = 0
    runs: list[str] = field(default_factory=list)
    reference_runs: list[str] = field(default_factory=list)
    evidence: JSON = field(default_factory=dict)
    author: str = ""


@dataclass(frozen=True, slots=True)
class LevelMeasured(Body):
    """The measured level after a round of checks; ``level`` -1 is *none*, below L0."""

    KIND: ClassVar[str] = "level.measured"
    level: int
    tree: str = ""
    checks: JSON = field(default_factory=dict)
    text: str = ""


# --- interventions, markers, budgets ----------------------------------------------------------


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


@dataclass(frozen=True, slots=True)
class Unknown(Body):
    """A body of a kind, or a version, that this release does not know. It survives unchanged."""

    kind: str
    v: int
    data: JSON

    def payload(self) -> JSON:
        """The stored payload as it was read."""
        return dict(self.data)


BODIES: dict[str, type[Body]] = {
    cls.KIND: cls
    for cls in list(globals().values())
    if isinstance(cls, type) and issubclass(cls, Body) and cls.KIND
}


@dataclass(frozen=True, slots=True)
class Event:
    """One stored event: the body and its envelope.

    ``ts_us`` is UTC microseconds (a label), ``mono_us`` a monotonic clock that is only
    comparable within one ``boot_id`` (a measure). ``source`` is ``recorder``, ``agent``,
    ``console:<id>`` or ``importer``. ``extra`` keeps payload fields this release does not know.
    """

    seq: int
    event_id: str
    ts_us: int
    mono_us: int
    boot_id: str
    source: str
    body: Body
    run_id: str = ""
    tree: str = ""
    prev_hash: str = ""
    hash: str = ""
    extra: JSON = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The kind, ``noun.past_tense``."""
        return self.body.kind if isinstance(self.body, Unknown) else self.body.KIND

    @property
    def v(self) -> int:
        """The version of the kind's payload."""
        return self.body.v if isinstance(self.body, Unknown) else self.body.VERSION

    @property
    def time_s(self) -> float:
        """UTC seconds since the epoch."""
        return self.ts_us / 1e6


@dataclass(frozen=True, slots=True)
class NewEvent:
    """What a producer hands to the log; the log adds seq, clocks and hashes.

    ``ts_us`` may be given by an importer or by a key press whose time counts; else the log
    stamps it at the append.
    """

    body: Body
    source: str
    run_id: str = ""
    tree: str = ""
    ts_us: int | None = None
    event_id: str = field(default_factory=lambda: uuid.uuid4().hex)


def encode_payload(body: Body, extra: JSON | None = None) -> str:
    """The payload as canonical JSON: sorted keys, no spaces, so that its hash is stable."""
    data = body.payload()
    if extra:
        data = {**extra, **data}
    try:
        return _dumps(data)
    except ValueError:  # NaN and infinities are no JSON; a diverged loss must be storable
        return _dumps(_finite(data))


def _dumps(data: JSON) -> str:
    text = json.dumps(
        data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    # A lone surrogate can't be stored as UTF-8.
    return text.encode("utf-8", "replace").decode("utf-8")


def _finite(value: Any) -> Any:
    """Copy of a JSON value with ``nan``, ``inf`` and ``-inf`` as those strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value


def decode_body(kind: str, v: int, payload: JSON) -> tuple[Body, JSON]:
    """Body and unknown fields of a stored payload.

    Never raises on strange input: what can't be read as its kind becomes :class:`Unknown`.
    """
    cls = BODIES.get(kind)
    if cls is None or v > cls.VERSION or not isinstance(payload, dict):
        return Unknown(kind, v, payload if isinstance(payload, dict) else {"value": payload}), {}
    names = {f.name for f in dataclasses.fields(cls)}
    known = {k: val for k, val in payload.items() if k in names}
    extra = {k: val for k, val in payload.items() if k not in names}
    try:
        body = cls(**known)
    except TypeError:  # a required field is missing
        return Unknown(kind, v, payload), {}
    if not _well_typed(body):
        return Unknown(kind, v, payload), {}
    return body, extra


_CHECKS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "JSON": (dict,),
    "list[str]": (list,),
    "list[int]": (list,),
    "list[JSON]": (list,),
}
_ITEM: dict[str, type] = {"list[str]": str, "list[int]": int, "list[JSON]": dict}


def _well_typed(body: Body) -> bool:
    """Whether each field has the JSON type its annotation names (a stranger's file may lie)."""
    for f in dataclasses.fields(body):
        spec = str(f.type)
        value = getattr(body, f.name)
        if spec.endswith(" | None"):
            if value is None:
                continue
            spec = spec.removesuffix(" | None")
        if not isinstance(value, _CHECKS[spec]):
            return False
        if isinstance(value, bool) and spec in ("int", "float"):
            return False
        item = _ITEM.get(spec)
        if item is not None and not all(isinstance(x, item) for x in value):
            return False
    return True
