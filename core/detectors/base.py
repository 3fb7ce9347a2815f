"""What a detector is, what it may look at, and the registry of all of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from re import Pattern
from typing import ClassVar

from core import records_view as view
from core.body import JSON
from core.detectors.output_look import Line, LogLook
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
#: Of these, what an output detector reads: it takes more time over a line than one pattern does.
FIRST_READ, LAST_READ, READ_CHARS = 300, 700, 200_000
#: Longer lines are cut before a pattern sees them.
MAX_CHARS = 2_000
#: Steps before which nothing is said about a rate (PyTorch/XLA's metrics analysis: 10).
MIN_STEPS = 10
#: A healthy run compiles in its first two steps (measured on torch_xla 2.9.0).
WARMUP_STEPS = 3


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a detector saw. ``evidence`` are lines for a person; ``next_step`` is a sentence.

    ``at`` holds the line number of each piece of evidence (0: none), where the detector read
    lines of output; it is empty or as long as ``evidence``.
    """

    title: str
    evidence: list[str]
    next_step: str
    category: str = ""
    threshold: str = ""
    at: tuple[int, ...] = ()


class Look:
    """One run as detectors see it: parts of bounded size, read once and shared by all."""

    def __init__(self, state: SessionState, run: Run) -> None:
        self.state = state
        self.run = run

    def has_open(self, detector: str) -> bool:
        """Whether a finding of this detector is on record for the run."""
        return f"{self.run.run_id}.{detector}" in self.state.findings

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
            return list(lines)
        return lines[:FIRST_LINES] + lines[-LAST_LINES:]

    @cached_property
    def log(self) -> LogLook:
        """The same lines as an output detector sees them: text alone, however it came to be."""
        kept = list(self.run.lines.numbered())
        if len(kept) > FIRST_READ + LAST_READ:
            kept = kept[:FIRST_READ] + kept[-LAST_READ:]
        return LogLook(
            [Line(no + 1, line.text[:MAX_CHARS], line.stream) for no, line in kept],
            cwd=self.run.started.cwd,
            chars=READ_CHARS,
            running=self.run.ended is None,
        )

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
    ``NEEDS`` is ``records`` for one that reads what the probe recorded, and ``output`` for one
    that reads the lines of the output alone and so works on any saved log. ``PARITY``: it looks
    at parity runs of the target too, in which every value is read and rates mean nothing.
    """

    NAME: ClassVar[str] = ""
    CATEGORY: ClassVar[str] = "uncategorised"
    SILENT: ClassVar[bool] = True
    SOURCE: ClassVar[str] = ""
    NEEDS: ClassVar[str] = "records"
    PARITY: ClassVar[bool] = False

    def look(self, at: Look) -> Sighting | None:
        """What is seen in the run so far, or ``None``. Pure and quick."""
        raise NotImplementedError


class OutputDetector(Detector):
    """Base of those that read the output alone: of a live run and of a saved log alike.

    In a live run the probe may see the same fault. ``SAME_FAULT`` names the detectors of probe
    records (besides one of the same name) whose finding stands for this one's, and
    ``MEASURED`` the fields of step records: where the probe has read one of them in at least
    :data:`MIN_STEPS` steps, the text is not asked, since a printed number says less.
    """

    NEEDS = "output"
    SAME_FAULT: ClassVar[tuple[str, ...]] = ()
    MEASURED: ClassVar[tuple[str, ...]] = ()

    def look(self, at: Look) -> Sighting | None:
        """See :meth:`Detector.look`."""
        return None if self._measured(at) else self.read(at.log)

    def read(self, log: LogLook) -> Sighting | None:
        """What is seen in the lines, or ``None``. Pure and quick."""
        raise NotImplementedError

    def _measured(self, at: Look) -> bool:
        for field in self.MEASURED:
            known = 0
            for step in at.last:
                known += view.number(step.get(field)) is not None
                if known >= MIN_STEPS:
                    return True
        return False


#: The registry: detectors of probe records and of errors by name, and those of the output alone.
#: The same name in both is the same fault seen by two means, and never two findings.
DETECTORS: dict[str, Detector] = {}
OUTPUT_DETECTORS: dict[str, OutputDetector] = {}


def detector(cls: type[Detector]) -> type[Detector]:
    """Register a detector; names are unique, since finding ids are made of them."""
    if cls.CATEGORY not in CATEGORIES:
        raise ValueError(f"{cls.NAME}: there is no category {cls.CATEGORY}")
    if cls.NEEDS not in ("records", "output"):
        raise ValueError(f"{cls.NAME}: a detector needs records or output, not {cls.NEEDS}")
    made = cls()
    if cls.NAME in (OUTPUT_DETECTORS if isinstance(made, OutputDetector) else DETECTORS):
        raise ValueError(f"two detectors named {cls.NAME}")
    if isinstance(made, OutputDetector):
        OUTPUT_DETECTORS[cls.NAME] = made
    else:
        DETECTORS[cls.NAME] = made
    return cls
