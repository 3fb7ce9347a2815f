"""The sections of ``pilotage.toml`` as types. A default here is what a missing key means."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.errors import PilotageError

DRIVERS = ("scripted", "manual")
"""Agent drivers of this release."""

LATER_DRIVERS = ("anthropic", "claude-code")
"""Drivers that are planned and not in this release."""

PRECISIONS = ("", "fp32", "bf16")
"""What ``[target] precision`` may say; ``""``: what the reference computes in."""

ASKED_BY_DEFAULT = ("metric", "evaluation data", "tests", "tolerance")
"""Kinds of change that need the operator's word where ``[guard] ask`` says nothing else."""

POLICIES = ("allow", "ask", "deny")
"""What ``[agent] policy`` may say about a tool."""


class ConfigError(PilotageError):
    """A configuration can't be used; the sentence names file, line and key."""


@dataclass(frozen=True, slots=True)
class Project:
    """What is migrated.

    ``python`` is the interpreter of the runs (``""``: the one Pilotage runs in). With ``copy``
    the session works on a private copy of the directory instead of a worktree of its git
    repository. ``outputs`` are gitignore patterns of what runs write, besides ``OUTPUTS`` of
    :mod:`core.workspace`; ``link`` are paths below ``path`` that git does not hold (data sets)
    and that the worktrees get a symbolic link to.
    """

    title: str = ""
    path: str = "."
    python: str = ""
    copy: bool = False
    outputs: list[str] = field(default_factory=list)
    link: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return self.path


@dataclass(frozen=True, slots=True)
class Reference:
    """The untouched project, run once: its command, what is added to its environment, its device.

    ``seeds``: where the command, or a value of ``env``, contains ``{seed}``, it is run once with
    each; else they are kept with the session as a note, and the command runs as it is written. ``repeats``: so many more
    parity runs against the reference's own tensors, which show its own variation.
    ``cuda_on_cpu``: CUDA calls of the program are redirected to the host's CPU by the probe, so
    that its time is no measure. ``bundle``: a file made by ``pilotage reference record`` that is
    imported instead of running the reference; the command may then be missing.
    """

    command: str = ""
    env: dict[str, str] = field(default_factory=dict)
    device: str = "cpu"
    seeds: list[int] = field(default_factory=list)
    repeats: int = 0
    cuda_on_cpu: bool = False
    bundle: str = ""

    @property
    def names_seed(self) -> bool:
        """Whether the command, or its environment, says where a seed goes."""
        return any("{seed}" in text for text in (self.command, *self.env.values()))


@dataclass(frozen=True, slots=True)
class Target:
    """Where the migrated project has to run: ``xla-cpu``, ``tpu-v5e-4`` ...; and by what command.

    ``precision`` is what the operator allows it to compute in, ``fp32`` or ``bf16``; ``""``: what
    the reference computes in.
    """

    kind: str = "xla-cpu"
    chips: int = 1
    command: str = ""
    env: dict[str, str] = field(default_factory=dict)
    precision: str = ""


@dataclass(frozen=True, slots=True)
class Parity:
    """How the parity runs of reference and migrated code are laid beside each other.

    ``rename``: names of parameters (or of modules, with everything below them) in the reference,
    and what the migrated code calls them. ``budget_mb``: MiB of tensors that each rank of the
    reference may write; of what does not fit a sample is kept.
    """

    rename: dict[str, str] = field(default_factory=dict)
    budget_mb: int = 256


@dataclass(frozen=True, slots=True)
class Metric:
    """The project's own metric, and where it is found: the last value counts.

    ``pattern`` is searched in each line of output, and its first group is the number; ``reader``
    names a known form of output and ``key`` the entry in it; ``file`` is a result file that the
    run writes, relative to the project. ``points`` turns a difference of the metric into points
    (100 for a share of 1); with 0 the metric has no points, and its relative difference counts.
    """

    name: str = ""
    pattern: str = ""
    reader: str = ""
    key: str = ""
    file: str = ""
    higher_is_better: bool = True
    points: float = 1.0


@dataclass(frozen=True, slots=True)
class Prices:
    """Keys of the price table; ``""`` is an unknown price, which is never counted as zero.

    ``override``: by key, US dollars an hour, or a table with ``usd_per_hour`` and ``scope``
    (``chip`` or ``instance``), which a key that the table has not needs.
    """

    reference: str = ""
    target: str = ""
    override: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Agent:
    """Who migrates. ``speed`` divides the pauses of a scripted agent; 0 leaves them out.

    ``model`` is for agents that are a model; no driver of this release is one. ``policy`` says
    per tool whether a call is made at once (``allow``), needs the operator's word (``ask``) or is
    refused (``deny``); a tool that it does not name is allowed, save ``shell``, which asks.
    """

    driver: str = "scripted"
    script: str = ""
    speed: float = 1.0
    verify_on_claim: bool = True
    model: str = ""
    policy: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Budgets:
    """What the agent may use up until it is ended; 0 is no limit.

    ``agent_usd``: US dollars of its requests, as far as their price is known; ``attempts``: runs
    of the migrated code; ``hours``: its working time, without waiting on you and pauses.
    """

    agent_usd: float = 0.0
    attempts: int = 0
    hours: float = 0.0


@dataclass(frozen=True, slots=True)
class Operator:
    """The operator's price, in US dollars an hour; 0 is *not counted*."""

    rate_usd_per_hour: float = 0.0


@dataclass(frozen=True, slots=True)
class Recorder:
    """How long the recorder stays up once the agent has ended, and its limits.

    ``grace_s``: seconds without a sign of any operator until it stops (default 10 minutes).
    ``run_limit_s``: a run that takes longer is stopped (0: no limit); ``shell_limit_s``
    likewise for one shell command. ``hang_s``: seconds without output and without a step after
    which a run is said to be stalled (0: never); ``hang_action`` says what is done then, ``warn``
    or ``stop``. ``max_output_mb``: MB of one run's output that go into the log whole, after which
    only what tells something is kept (0: no limit). ``xla_debug``: let PyTorch/XLA report why it
    compiles, into a file of the run's own (``PT_XLA_DEBUG_LEVEL=1``).
    """

    grace_s: float = 600.0
    run_limit_s: float = 0.0
    shell_limit_s: float = 600.0
    hang_s: float = 900.0
    hang_action: str = "warn"
    max_output_mb: float = 256.0
    xla_debug: bool = True


@dataclass(frozen=True, slots=True)
class Guard:
    """What an agent's edit may not change without the operator's word.

    ``ask``: kinds of change (see ``core.guard.kinds``), or ``all``; an empty list asks for none.
    ``protect``: globs of files, relative to the project, that need the operator's word whatever is
    changed in them.
    """

    ask: list[str] = field(default_factory=lambda: list(ASKED_BY_DEFAULT))
    protect: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """Everything a session is opened with. ``criteria`` are tolerances: see ``core.levels``."""

    project: Project = field(default_factory=Project)
    reference: Reference = field(default_factory=Reference)
    target: Target = field(default_factory=Target)
    parity: Parity = field(default_factory=Parity)
    metric: Metric = field(default_factory=Metric)
    criteria: dict[str, Any] = field(default_factory=dict)
    budgets: Budgets = field(default_factory=Budgets)
    prices: Prices = field(default_factory=Prices)
    agent: Agent = field(default_factory=Agent)
    operator: Operator = field(default_factory=Operator)
    recorder: Recorder = field(default_factory=Recorder)
    guard: Guard = field(default_factory=Guard)

    @property
    def title(self) -> str:
        """The session's title: the one given, else the name of the project's directory."""
        return self.project.title or Path(self.project.path).name

    def to_json(self) -> dict[str, Any]:
        """The configuration as a JSON object of the same shape as the file."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SessionConfig:
        """The configuration out of ``to_json``; raises :class:`ConfigError`."""
        from core.config.reading import build
        from core.config.source import Source

        return build(data, Source("the session's configuration", ""))


SECTIONS: dict[str, type] = {
    "project": Project,
    "reference": Reference,
    "target": Target,
    "parity": Parity,
    "metric": Metric,
    "budgets": Budgets,
    "prices": Prices,
    "agent": Agent,
    "operator": Operator,
    "recorder": Recorder,
    "guard": Guard,
}
