"""Loud failures: the run ended with an error, and its last words say which kind it is.

Exactly one of these speaks for a failed run, the first whose pattern fits. The order matters: an
ImportError that mentions CUDA is a matter of the environment, an out-of-memory error that
mentions CUDA one of memory. Whether a run failed is known from its exit where Pilotage ran it,
and read from its text where there is only a log (:mod:`core.detectors.output_ending`).
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import ClassVar

from core.detectors.base import Detector, Look, Sighting
from core.detectors.output_ending import ERROR_LINES, Ending
from core.detectors.output_look import LogLook

TRACEBACK = "Traceback (most recent call last):"
#: An exception line: ``RuntimeError: ...``, ``torch.OutOfMemoryError: ...``.
_EXCEPTION = re.compile(r"^(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit)(?::|$)")
_FRAME = re.compile(r'^\s+File "(.+)", line (\d+)')
_COMPLAINT = re.compile(r"error|fatal|exhausted|ran out|failed|abort|what\(\)", re.IGNORECASE)
_FOREIGN = ("site-packages", "/lib/python", "pilotage_probe", "<frozen ")
#: Lines of output after the last traceback's header that are read for its exception.
_TAIL = 200
#: Longest title made of the error's own words.
_TITLE_CHARS = 120


class LastWords:
    """The end of a failed run: the last traceback, its exception and the place it names."""

    def __init__(self, at: Look) -> None:
        texts = [t for line, t in zip(at.lines, at.texts, strict=True) if line.stream == "stderr"]
        self.texts = texts or at.texts
        self.cwd = at.run.started.cwd.rstrip("/") + "/" if at.run.started.cwd else ""

    @cached_property
    def traceback(self) -> list[str]:
        """The last traceback with its exception, or the last lines where there is none."""
        starts = [i for i, t in enumerate(self.texts) if TRACEBACK in t]
        return self.texts[starts[-1] :][:_TAIL] if starts else self.texts[-20:]

    @cached_property
    def error(self) -> str:
        """The exception and what follows it: the text the patterns are tried on."""
        lines = self.traceback
        for i in range(len(lines) - 1, -1, -1):
            if _EXCEPTION.match(lines[i]) and not lines[i].startswith(" "):
                return "\n".join(lines[i : i + ERROR_LINES])
        # No Python exception (a native abort, a kill): only lines that speak of an error count,
        # not warnings that happened to come last.
        return "\n".join(t for t in lines if _COMPLAINT.search(t) and "Warning" not in t)

    @cached_property
    def place(self) -> str:
        """The innermost frame of the project: not of an installed package, not of the probe."""
        own = ""
        for text in self.traceback:
            frame = _FRAME.match(text)
            if frame and not any(part in frame[1] for part in _FOREIGN):
                own = f"{frame[1].removeprefix(self.cwd)}:{frame[2]}"
        return own


class ErrorDetector(Detector):
    """Base: fires on a run that ended with an error whose words match ``PATTERN``."""

    SILENT = False
    PATTERN: ClassVar[str] = ""
    #: Calls by which an error is of this kind, and the kinds whose words give way to them.
    FRAMES: ClassVar[str] = ""
    OVER: ClassVar[tuple[str, ...]] = ()
    TITLE: ClassVar[str] = ""
    NEXT: ClassVar[str] = ""
    #: Its words stand in many errors, so another kind that fits the lines below comes first.
    GENERIC: ClassVar[bool] = False

    def look(self, at: Look) -> Sighting | None:
        """See :meth:`Detector.look`."""
        if not failed(at):
            return None
        words = LastWords(at)
        if speaker(words.error, "\n".join(words.traceback[:-1])) is not type(self):
            return None
        tail = [t for t in words.traceback if t.strip()][-6:]
        return Sighting(
            title=self._title(words.error) or how_it_ended(at),
            evidence=([f"at {words.place}"] if words.place else []) + tail + [how_it_ended(at)],
            next_step=self.NEXT,
        )

    def read(self, log: LogLook) -> Sighting | None:
        """The same of a saved log, which has only its text to say that it failed."""
        end = log.ending
        if end.kind != "error" or speaker(end.error, end.frames) is not type(self):
            return None
        return self.sighting(log, end)

    def sighting(self, log: LogLook, end: Ending) -> Sighting:
        """What is said of an ending of this kind."""
        shown = [log.lines[i] for i in end.lines]
        evidence = [line.text.strip()[:400] for line in shown]
        numbers = [line.no for line in shown]
        if end.place:
            evidence, numbers = [f"at {end.place}", *evidence], [0, *numbers]
        title = self._title(end.error) or "the run ended with an error"
        return Sighting(title, evidence, self.NEXT, at=tuple(numbers))

    def _title(self, error: str) -> str:
        return self.TITLE or (error.splitlines()[0].strip()[:_TITLE_CHARS] if error else "")


def failed(at: Look) -> bool:
    """Whether the run ended with an error (not because somebody stopped it)."""
    end = at.run.ended
    if end is None or end.reason in ("stopped", "cut off"):
        return False
    return end.exit_code != 0


def how_it_ended(at: Look) -> str:
    """Such as ``exit 1`` or ``SIGKILL``."""
    end = at.run.ended
    if end is None:
        return "still running"
    if end.exit_code is not None:
        return f"exit {end.exit_code}"
    return f"{end.signal or end.reason}" + (f": {end.text}" if end.text else "")


#: The kinds in the order in which they are tried; filled by :mod:`core.detectors.loud_kinds`.
KINDS: list[type[ErrorDetector]] = []


_WORDLESS = re.compile(r"(?:\w+\.)*\w+(?:Error|Exception):?")
#: Words that no call makes mean something else.
_CAUSE_SAID = re.compile(r"CUDA|cuda|NCCL|nvidia", re.IGNORECASE)


def speaker(error: str, frames: str = "") -> type[ErrorDetector]:
    """The kind an error's words belong to; the last of the kinds takes what no other does.

    The exception's own line decides if it can, then the lines that follow it. ``frames`` is what
    led to it: an assertion without words is told by the line that failed, and words that many
    calls give (an operator that is missing, a device that does not fit) by the call.
    """
    found = _by_words(error)
    if found is KINDS[-1] and _WORDLESS.fullmatch(error.strip()) and frames:
        found = _by_words(frames.splitlines()[-1].strip())
    if not frames or _CAUSE_SAID.search(error.split("\n", 1)[0]):
        return found
    called = (c for c in KINDS if found.NAME in c.OVER and re.search(c.FRAMES, frames))
    return next(called, found)


def _by_words(error: str) -> type[ErrorDetector]:
    for words, generic in ((error.split("\n", 1)[0], False), (error, True)):
        for cls in KINDS:
            if cls.PATTERN and (generic or not cls.GENERIC) and re.search(cls.PATTERN, words):
                return cls
    return KINDS[-1]
