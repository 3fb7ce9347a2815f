"""The pieces a :class:`core.state.SessionState` is made of: plain records, no rules.

They are mutable because the fold fills them in place; nobody else writes to them. Every one
remembers the ``seq`` that made it, so that a view can move all panes to that moment.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from core.events import (
    JSON,
    AgentAsked,
    CheckEvaluated,
    FindingOpened,
    HostSampled,
    InterventionRecorded,
    OperatorDecided,
    RunElided,
    RunEnded,
    RunResult,
    RunSampled,
    RunStalled,
    RunStarted,
    TreeSnapshotted,
)
from core.run_lines import LogLine as LogLine
from core.run_lines import RunLines as RunLines
from core.run_steps import RunSteps as RunSteps


def level_name(level: int | None) -> str:
    """``L0`` .. ``L4``; ``none`` for -1 and ``-`` where there is no level at all."""
    if level is None:
        return "-"
    return f"L{level}" if level >= 0 else "none"


@dataclass(slots=True)
class Moment:
    """A point of the timeline. ``kind`` is one of :data:`MOMENT_KINDS`; ``ref`` names the thing."""

    seq: int
    ts_us: int
    kind: str
    label: str
    ref: str = ""


MOMENT_KINDS = (
    "attempt",
    "run",
    "ended",
    "finding",
    "level",
    "claim",
    "refuted",
    "intervention",
    "ask",
    "message",
    "marker",
    "recovered",
    "budget",
    "guard",
)


@dataclass(slots=True)
class Run:
    """One execution of a command, with its output and its probe records so far.

    ``ended_ts_us`` of a cut-off run is its dead recorder's last sign: it lasted that long at least.
    ``stalled`` is set while the run is without a sign of life. ``usage`` and ``telemetry`` are
    samples with the time of each (UTC microseconds), thinned out when they become many;
    ``notices`` are sentences about the run that came with its telemetry. ``elided`` says of
    output that is not in the log, with the event each statement is in. Of a process's beats
    ``signals`` has the last one only; ``beat_at`` says where, by process id.
    """

    run_id: str
    seq: int
    ts_us: int
    tree: str
    started: RunStarted
    ended: RunEnded | None = None
    ended_ts_us: int | None = None
    ended_seq: int | None = None
    result: RunResult | None = None
    lines: RunLines = field(default_factory=RunLines)
    steps: RunSteps = field(default_factory=RunSteps)
    signals: list[JSON] = field(default_factory=list)
    beat_at: dict[int | None, int] = field(default_factory=dict)
    stalled: RunStalled | None = None
    stalled_ts_us: int = 0
    stalls: int = 0
    usage: list[tuple[int, RunSampled]] = field(default_factory=list)
    telemetry: list[tuple[int, HostSampled]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    elided: list[tuple[int, RunElided]] = field(default_factory=list)
    elided_lines: int = 0
    elided_bytes: int = 0

    @property
    def number(self) -> int:
        """The run's number within the session, from 1."""
        return self.started.number

    @property
    def running(self) -> bool:
        """Whether no end is on record."""
        return self.ended is None

    @property
    def ok_exit(self) -> bool:
        """Whether the process ended by itself with exit code 0."""
        return self.ended is not None and self.ended.exit_code == 0

    @property
    def seconds(self) -> float | None:
        """How long it took; null while it runs, and for a cut-off run, whose end nobody saw."""
        if self.ended is None or self.ended.reason == "cut off":
            return None
        return self.ended.duration_s

    @property
    def of_reference(self) -> bool:
        """Whether it ran the untouched project: the reference itself, or a parity run of it."""
        return self.started.purpose == "reference" or self.started.of.startswith("reference")

    def signal(self, k: str) -> JSON | None:
        """The last probe record of kind ``k`` (``model``, ``optimizer``, ``finish`` ...)."""
        for record in reversed(self.signals):
            if record.get("k") == k:
                return record
        return None


@dataclass(slots=True)
class Snapshot:
    """A state of the worktree."""

    seq: int
    ts_us: int
    body: TreeSnapshotted

    @property
    def tree(self) -> str:
        """The git tree id."""
        return self.body.tree


@dataclass(slots=True)
class Ask:
    """A question or permission request of the agent, and the operator's answer once given."""

    seq: int
    ts_us: int
    body: AgentAsked
    decision: OperatorDecided | None = None
    decided_ts_us: int | None = None
    closed: str = ""

    @property
    def pending(self) -> bool:
        """Whether the agent still waits for it."""
        return self.decision is None and not self.closed


@dataclass(slots=True)
class Entry:
    """One line of the conversation as the agent pane shows it.

    ``kind``: ``said``, ``called``, ``asked``, ``claimed``, ``finished``, ``failed``,
    ``started`` (the agent), ``messaged``, ``interrupted``, ``paused``, ``resumed``
    (the operator), ``recovered`` (the recorder). For ``called``, ``output``, ``ok`` and
    ``ended_ts_us`` are filled when the tool returns.
    """

    seq: int
    ts_us: int
    kind: str
    text: str = ""
    ref: str = ""
    tool: str = ""
    input: JSON = field(default_factory=dict)
    output: str | None = None
    ok: bool | None = None
    ended_ts_us: int | None = None
    run_id: str = ""


@dataclass(slots=True)
class Message:
    """An operator's message to the agent; undelivered while ``delivered_ts_us`` is null."""

    seq: int
    ts_us: int
    message_id: str
    text: str
    author: str
    delivered_ts_us: int | None = None


@dataclass(slots=True)
class Claim:
    """A level the agent said it had reached, and the tree it said so of.

    ``refuted_seq`` is the measurement in which a check of that level or below failed; 0: none.
    """

    seq: int
    ts_us: int
    level: int
    text: str
    tree: str
    claim_id: str
    refuted_seq: int = 0


@dataclass(slots=True)
class Finding:
    """A finding with its present category; the detector's own stays in ``opened``."""

    seq: int
    ts_us: int
    run_id: str
    tree: str
    opened: FindingOpened
    category: str
    recategorised_by: str = ""
    resolved: str = ""
    resolved_by: str = ""
    resolved_seq: int | None = None

    @property
    def open(self) -> bool:
        """Whether nothing has resolved it."""
        return self.resolved_seq is None

    @property
    def dismissed(self) -> bool:
        """Whether the operator closed it (a later run that shows it no more does not)."""
        return not self.open and bool(self.resolved_by)


@dataclass(slots=True)
class CheckResult:
    """One evaluation of one check."""

    seq: int
    ts_us: int
    body: CheckEvaluated


@dataclass(slots=True)
class Measurement:
    """A measured level, and the ids of the checks that were evaluated for it."""

    seq: int
    ts_us: int
    level: int
    tree: str
    text: str
    checks: frozenset[str] = frozenset()


@dataclass(slots=True)
class Intervention:
    """An intervention with the latest value of each field; ``history`` has every change.

    ``history`` items: ``{seq, ts_us, what, changes|reason, author}``.
    """

    seq: int
    recorded: InterventionRecorded
    kind: str
    trigger: str
    category: str
    necessity: str
    text: str
    minutes_claimed: float | None
    subset: bool
    author: str
    voided: bool = False
    history: list[JSON] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Signal:
    """One raw sign of the operator at a console, for the effort rules.

    ``what``: ``attached``, ``detached``, ``paused``, ``resumed`` or ``beat``. ``mono_us``
    is comparable between signals of the same ``boot_id`` only.
    """

    ts_us: int
    mono_us: int
    boot_id: str
    console_id: str
    what: str


@dataclass(slots=True)
class PhaseSpan:
    """The agent was in ``phase`` from ``start_ts_us`` until ``end_ts_us`` (null: still)."""

    phase: str
    start_ts_us: int
    start_mono_us: int
    boot_id: str
    end_ts_us: int | None = None
    end_mono_us: int | None = None
