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


@dataclass(frozen=True, slots=True)
class DiffTagged(Body):
    """What the diff guard says of the diff baseline -> ``tree``: tags as ``core.guard.tag.Tag`` has them.

    All tags there are, so that the last one of a session stands for its diff; at most
    ``core.recorder.guarding.MAX_TAGS``, and ``left_out`` counts the rest. ``unasked`` are those that
    need the operator's word by ``[guard]`` and came with this tree without a question, since they
    were found in the files afterwards (``cause``: shell, outside ...); ``text`` then says so.
    """

    KIND: ClassVar[str] = "diff.tagged"
    tree: str
    tags: list[JSON] = field(default_factory=list)
    left_out: int = 0
    unasked: list[JSON] = field(default_factory=list)
    cause: str = ""
    text: str = ""
    note: str = ""


# --- runs ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunStarted(Body):
    """A command was started. ``purpose`` is ``reference``, ``attempt`` or ``parity``.

    ``number`` counts all runs of a session from 1. ``of`` names, for a parity run, what it
    stands for: ``reference`` or ``target``. ``env`` holds only what was added to or taken
    from the recorder's environment. ``seed`` is the reference's seed where one was given,
    ``bundle`` the SHA-256 of the bundle that a run was imported from (``by`` is then ``bundle``),
    ``precision`` what a parity run was asked to compute in (``fp32``, ``own``; ``""``: not said),
    ``against`` the run of the reference whose weights and batches it was given.
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
    seed: int | None = None
    bundle: str = ""
    precision: str = ""
    against: str = ""


@dataclass(frozen=True, slots=True)
class RunOutput(Body):
    """Some lines of one stream (``stdout`` or ``stderr``), control characters already gone.

    ``rank``: the rank of the process that printed them, ``pid N`` where its rank is not known, or
    ``""`` for what comes through the stream that all processes of the run share.
    """

    KIND: ClassVar[str] = "run.output"
    stream: str
    lines: list[str]
    rank: str = ""


@dataclass(frozen=True, slots=True)
class RunElided(Body):
    """Output that the run printed here is not in the log: so many lines, of so many bytes.

    ``reason`` is ``limit`` (``[recorder] max_output_mb`` was reached) or ``not writable`` (the
    session's file could not be written for a time); ``text`` says it in a sentence. ``records``
    counts probe records that were lost likewise. ``last_line`` is what the run had printed last
    when this was said.
    """

    KIND: ClassVar[str] = "run.elided"
    lines: int
    bytes: int = 0
    reason: str = ""
    text: str = ""
    records: int = 0
    last_line: str = ""


@dataclass(frozen=True, slots=True)
class RunStalled(Body):
    """The run has printed nothing and made no step for ``seconds`` seconds.

    ``last_line`` and ``last_step`` are its last signs of life, ``doing`` what the probe last saw it
    do (``compile``, ``data``, ``collective`` ...) and ``at`` at which line of the program;
    ``limit_s`` is the time from which this is said. ``alive`` is true where a compile goes on, so
    that the run is silent and is not counted as stuck.
    """

    KIND: ClassVar[str] = "run.stalled"
    seconds: float
    limit_s: float = 0.0
    last_line: str = ""
    last_step: int | None = None
    doing: str = ""
    alive: bool = False
    at: str = ""


@dataclass(frozen=True, slots=True)
class RunResumed(Body):
    """A stalled run gave a sign of life again, after ``seconds`` seconds in all."""

    KIND: ClassVar[str] = "run.resumed"
    seconds: float


@dataclass(frozen=True, slots=True)
class RunSampled(Body):
    """What the run's processes use, every 10 s and at changes of more than a tenth.

    ``rss_mb`` is resident memory in MiB, summed over the processes (pages that several of them
    share count for each), ``swap_mb`` what of them is swapped out, likewise.
    """

    KIND: ClassVar[str] = "run.sampled"
    rss_mb: float
    processes: int = 0
    swap_mb: float = 0.0


@dataclass(frozen=True, slots=True)
class HostSampled(Body):
    """The machine during a run, and its TPU chips where there are any; MiB, percent of all CPUs.

    ``chips`` holds for each chip ``{chip, kind, hbm_used_mb, hbm_total_mb, duty_pct, pids}``; a
    figure that can't be had is left out. ``note`` is a sentence for what there is to say once,
    such as that the machine has no TPU. A figure that is null could not be read.
    """

    KIND: ClassVar[str] = "host.sampled"
    cpu_pct: float | None = None
    load1: float | None = None
    mem_used_mb: float | None = None
    mem_total_mb: float | None = None
    swap_used_mb: float | None = None
    disk_free_mb: float | None = None
    chips: list[JSON] = field(default_factory=list)
    note: str = ""


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
    ``not started``; ``exit_code`` is null unless the process exited by itself. ``cause`` says what
    stands behind the end where that is known or likely: see ``core.runs.endings.CAUSES``.
    """

    KIND: ClassVar[str] = "run.ended"
    reason: str
    exit_code: int | None = None
    signal: str = ""
    duration_s: float = 0.0
    max_rss_mb: float = 0.0
    text: str = ""
    cause: str = ""


@dataclass(frozen=True, slots=True)
class RunResult(Body):
    """The project's metric of a run, looked for right after the run had ended.

    ``source`` is the line of output or the result file and the place in it, ``how`` the pattern,
    reader or key that matched and ``text`` what it matched in. ``value`` is null where nothing
    was found, and ``problem`` then says why in a sentence.
    """

    KIND: ClassVar[str] = "run.result"
    name: str
    value: float | None = None
    source: str = ""
    how: str = ""
    text: str = ""
    problem: str = ""


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

    ``state`` is ``pass``, ``fail``, ``not run`` or ``waived``. ``tree``, ``command``, the criteria
    in ``uses`` and ``chips`` are what it holds for: a change of any makes the result stale, which
    is derived and never stored. ``criteria`` is a hash of ``uses``; where that is null (releases
    up to 0.2), of all criteria there were.
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
    uses: JSON | None = None


@dataclass(frozen=True, slots=True)
class LevelMeasured(Body):
    """The measured level after a round of checks; ``level`` -1 is *none*, below L0."""

    KIND: ClassVar[str] = "level.measured"
    level: int
    tree: str = ""
    checks: JSON = field(default_factory=dict)
    text: str = ""
