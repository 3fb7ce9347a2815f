"""What a detector is, what it may look at, and the registry of all of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from re import Pattern
from typing import ClassVar

from core import records_view as view
from core.body import JSON
from core.levels import is_xla_cpu, last, target
from core.state import SessionState
from core.state_parts import LogLine, Run
from core.verify.subject import is_target_run

#: The failure categories, in the words of the study they come from.
CATEGORIES = {
    "C1": "environment and dependencies",
    "C2": "CUDA and device assumptions",
    "C3": "library interactions",
    "C4": "lazy-tensor execution",
    "C5": "operators and numerics",
    "C6": "memory capacity",
    "uncategorised": "uncategorised",
}

#: Bounds of what a detector looks at.
FIRST_STEPS, LAST_STEPS = 50, 200
FIRST_LINES, LAST_LINES = 2_000, 5_000
#: Longer lines are cut before a pattern sees them.
MAX_CHARS = 2_000
#: Steps before which nothing is said about a rate (PyTorch/XLA's metrics analysis: 10).
MIN_STEPS = 10
#: A healthy run compiles in its first two steps (measured on torch_xla 2.9.0).
WARMUP_STEPS = 3


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a detector saw. ``evidence`` are lines for a person; ``next_step`` is a sentence."""

    title: str
    evidence: list[str]
    next_step: str
    category: str = ""
    threshold: str = ""


class Look:
    """One run as detectors see it: parts of bounded size, read once and shared by all."""

    def __init__(self, state: SessionState, run: Run) -> None:
        self.state = state
        self.run = run

    @cached_property
    def first(self) -> list[JSON]:
        """The first steps."""
        return view.steps(self.run, first=FIRST_STEPS)

    @cached_property
    def last(self) -> list[JSON]:
        """The last steps."""
        return view.steps(self.run, last=LAST_STEPS)

    @cached_property
    def lines(self) -> list[LogLine]:
        """The first and the last lines of the output."""
        lines = self.run.lines
        if len(lines) <= FIRST_LINES + LAST_LINES:
            return lines
        return lines[:FIRST_LINES] + lines[-LAST_LINES:]

    @cached_property
    def texts(self) -> list[str]:
        """Their texts, cut to a length a pattern is quick on."""
        return [line.text[:MAX_CHARS] for line in self.lines]

    @cached_property
    def model(self) -> JSON | None:
        """The record of the trained model, once there is one."""
        return view.record(self.run, "model")

    @cached_property
    def reference_model(self) -> JSON | None:
        """The same record of the latest reference run that ended well."""
        reference = last(self.state.runs_for("reference"), lambda r: r.ok_exit)
        return view.record(reference, "model") if reference else None

    @property
    def xla_seen(self) -> bool:
        """Whether the run has imported torch_xla."""
        return view.record(self.run, "xla") is not None

    @cached_property
    def wants_xla(self) -> bool:
        """Whether the run was meant to train on an XLA device: the target command was run."""
        kind = str(target(self.state).get("kind", ""))
        known = is_xla_cpu(self.state) or kind.startswith("tpu")
        return known and is_target_run(self.state, self.run)

    @property
    def wants_tpu(self) -> bool:
        """Whether it was meant to run on a TPU, and not on the host through PJRT."""
        return self.wants_xla and not is_xla_cpu(self.state)

    def matching(self, pattern: Pattern[str], limit: int = 5) -> list[str]:
        """The first few lines in which a compiled pattern is found."""
        found = []
        for text in self.texts:
            if pattern.search(text):
                found.append(text)
                if len(found) == limit:
                    break
        return found


class Detector:
    """Base of all detectors. ``SOURCE`` says where sign and threshold come from.

    ``SILENT`` failures raise no error: the run may end with exit 0 and be worthless.
    """

    NAME: ClassVar[str] = ""
    CATEGORY: ClassVar[str] = "uncategorised"
    SILENT: ClassVar[bool] = True
    SOURCE: ClassVar[str] = ""

    def look(self, at: Look) -> Sighting | None:
        """What is seen in the run so far, or ``None``. Pure and quick."""
        raise NotImplementedError


DETECTORS: dict[str, Detector] = {}


def detector(cls: type[Detector]) -> type[Detector]:
    """Register a detector; names are unique, since finding ids are made of them."""
    if cls.NAME in DETECTORS:
        raise ValueError(f"two detectors named {cls.NAME}")
    if cls.CATEGORY not in CATEGORIES:
        raise ValueError(f"{cls.NAME}: there is no category {cls.CATEGORY}")
    DETECTORS[cls.NAME] = cls()
    return cls
