"""Kinds of event that the recorder makes: session, worktree, runs, findings, checks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from core.body import JSON, Body

# --- session and recorder --------------------------------------------------------------------


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


# --- the worktree ----------------------------------------------------------------------------


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


# --- runs ------------------------------------------------------------------------------------


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


# --- findings, checks, levels ----------------------------------------------------------------


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
