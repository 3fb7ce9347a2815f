"""What ``pilotage init`` finds in a project: values that say where they come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fact(Generic[T]):
    """A value and where it was found (``scripts/train.sh:12``); ``guess`` where nothing says so.

    ``notes`` are sentences for the comment above it.
    """

    value: T
    source: str
    guess: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """A command that may be how the project is trained.

    ``words`` is the command as found without the launcher of several processes, ``launcher`` that
    launcher with its options. ``script`` is the Python file it starts, where that is in the
    project; ``cwd`` the directory in it that a ``cd`` of the script goes to. ``kind``: launcher, readme, makefile, console script, main. ``why`` lists what the
    score is made of.
    """

    words: tuple[str, ...]
    source: str
    kind: str
    env: tuple[tuple[str, str], ...] = ()
    launcher: tuple[str, ...] = ()
    processes: int | None = None
    script: str = ""
    cwd: str = ""
    open: tuple[str, ...] = ()
    score: int = 0
    why: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MetricPlace:
    """A place where a metric is printed or written; the fields are those of ``[metric]``.

    ``edit`` is what has to be done before it can be read there.
    """

    name: str
    source: str
    higher_is_better: bool
    points: float
    pattern: str = ""
    reader: str = ""
    key: str = ""
    file: str = ""
    line: str = ""
    edit: str = ""
    score: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python, and what is installed there; ``problem`` where it can't be asked."""

    path: str
    source: str
    python: str = ""
    torch: str | None = None
    torch_xla: str | None = None
    problem: str = ""


@dataclass(slots=True)
class Project:
    """All facts about one project. ``root`` is absolute; files are relative to it."""

    root: Path
    title: str
    python: Interpreter | None = None
    pythons: list[Interpreter] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    metrics: list[MetricPlace] = field(default_factory=list)
    seeds: Fact[list[int]] | None = None
    settings: list[Fact[str]] = field(default_factory=list)
    copy: Fact[bool] | None = None
    link: list[Fact[str]] = field(default_factory=list)
    outputs: list[Fact[str]] = field(default_factory=list)
    gpu: bool = False
    options: dict[str, str] = field(default_factory=dict)
    framework: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def entry(self) -> Entry | None:
        """The candidate that is taken for the reference."""
        return self.entries[0] if self.entries else None
