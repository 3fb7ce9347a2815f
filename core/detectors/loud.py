"""Loud failures: the run ended with an error, and its last words say which kind it is.

Exactly one of these speaks for a failed run, the first whose pattern fits. The order matters: an
ImportError that mentions CUDA is a matter of the environment, an out-of-memory error that
mentions CUDA one of memory.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import ClassVar

from core.detectors.base import Detector, Look, Sighting, detector

TRACEBACK = "Traceback (most recent call last):"
#: An exception line: ``RuntimeError: ...``, ``torch.OutOfMemoryError: ...``.
_EXCEPTION = re.compile(r"^(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit)(?::|$)")
_FRAME = re.compile(r'^\s+File "(.+)", line (\d+)')
_COMPLAINT = re.compile(r"error|fatal|exhausted|ran out|failed|abort|what\(\)", re.IGNORECASE)
_FOREIGN = ("site-packages", "/lib/python", "pilotage_probe", "<frozen ")
#: Lines of output after the last traceback's header that are read for its exception.
_TAIL = 200


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
                return "\n".join(lines[i : i + 20])
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
    TITLE: ClassVar[str] = ""
    NEXT: ClassVar[str] = ""

    def look(self, at: Look) -> Sighting | None:
        """See :meth:`Detector.look`."""
        if not failed(at) or _speaker(at) is not type(self):
            return None
        words = LastWords(at)
        tail = [t for t in words.traceback if t.strip()][-6:]
        head = words.error.splitlines()[0].strip() if words.error else ""
        return Sighting(
            title=self.TITLE if self.TITLE else (head[:120] or how_it_ended(at)),
            evidence=([f"at {words.place}"] if words.place else []) + tail + [how_it_ended(at)],
            next_step=self.NEXT,
        )


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


def _speaker(at: Look) -> type[ErrorDetector]:
    error = LastWords(at).error
    for cls in _ORDER:
        if cls.PATTERN and re.search(cls.PATTERN, error):
            return cls
    return UnknownError


@detector
class OutOfMemory(ErrorDetector):
    """The device's or the host's memory did not suffice."""

    NAME, CATEGORY = "out_of_memory", "C6"
    SOURCE = "public cases hbm_oom and vmem_oom: RESOURCE_EXHAUSTED in memory space hbm or vmem"
    PATTERN = (
        r"RESOURCE_EXHAUSTED|Ran out of memory|[Oo]ut of memory|OutOfMemoryError|^MemoryError"
        r"|can't allocate memory|std::bad_alloc|Exceeded hbm capacity"
    )
    TITLE = "out of memory"
    NEXT = (
        "Compare the bytes asked for with the device's memory; then a smaller batch with "
        "accumulation, bf16 where the operator agrees, or rematerialisation."
    )


@detector
class ImportFailed(ErrorDetector):
    """A library is missing, or its binary does not fit."""

    NAME, CATEGORY = "import_error", "C1"
    SOURCE = (
        "public case import_error (pytorch/xla#8813) and measured on torch_xla 2.9.0: ABI mismatch"
    )
    PATTERN = (
        r"ImportError|ModuleNotFoundError|No module named|undefined symbol"
        r"|cannot open shared object file|version `?GLIBC|PackageNotFoundError"
        r"|libtpu.*(?:not found|version)|AttributeError: (?:partially initialized )?module '"
    )
    TITLE = "a library is missing or does not fit"
    NEXT = (
        "Pin torch and torch_xla to each other (2.9.1 with 2.9.0) and install what is named; "
        "libraries that need CUDA have no TPU build and have to be replaced."
    )


@detector
class RestoreFailed(ErrorDetector):
    """A checkpoint could not be read back."""

    NAME, CATEGORY = "restore_error", "C3"
    SOURCE = "public case restore_error (huggingface/transformers#4963)"
    PATTERN = r"don't know how to restore data location|Error\(s\) in loading state_dict"
    TITLE = "a checkpoint can't be restored"
    NEXT = "Save tensors after moving them to the CPU, or load with map_location='cpu'."


@detector
class CudaAssumed(ErrorDetector):
    """The code asked for CUDA where there is none, or mixed devices."""

    NAME, CATEGORY = "cuda_assumed", "C2"
    SOURCE = "torch's own messages where CUDA is not compiled in or no driver is found"
    PATTERN = (
        r"Torch not compiled with CUDA|Found no NVIDIA driver|No CUDA GPUs are available"
        r"|CUDA (?:driver|error|unknown error)|libcuda|NCCL|nccl"
        r"|Invalid device string: 'cuda|Invalid device.*cuda|torch\.cuda|device type.{0,20}cuda"
        r"|Attempting to deserialize object on a CUDA device|cuda\.is_available\(\) is False"
        r"|Expected all tensors to be on the same device|Input tensor is not an XLA tensor"
        r"|[Tt]ensor.{0,40}not.{0,10}XLA tensor"
    )
    TITLE = "the code assumes CUDA"
    NEXT = (
        "Replace .cuda(), torch.cuda.* and device strings at the place named by the device the "
        "run was asked for, and move model and batch to the same one."
    )


@detector
class NotLowered(ErrorDetector):
    """An operator does not exist on the device."""

    NAME, CATEGORY = "operator_missing", "C5"
    SOURCE = "torch's dispatcher and XLA's status messages"
    PATTERN = (
        r"Could not run 'aten::|not implemented for|NotImplementedError|UNIMPLEMENTED"
        r"|[Oo]p\(s\) not lowered|is not (?:currently )?supported on the XLA"
    )
    TITLE = "an operator is missing on the device"
    NEXT = "Express it in operators that XLA lowers, or compute this part on the CPU on purpose."


@detector
class LazyError(ErrorDetector):
    """The lazy-tensor runtime failed."""

    NAME, CATEGORY = "lazy_runtime_error", "C4"
    SOURCE = "measured on torch_xla 2.9.0: a CPU backward before the first XLA device breaks a later XLA backward"
    PATTERN = r"device_ready_queues_|torch_xla/csrc|xla::|PjRt|XlaRuntimeError|INTERNAL: "
    TITLE = "the XLA runtime failed"
    NEXT = (
        "Make the XLA device before any backward on the CPU, keep CPU reference and XLA run in "
        "separate processes, and look at the first error above this one."
    )


@detector
class UnknownError(ErrorDetector):
    """Any other error: its own words are the title."""

    NAME = "error"
    SOURCE = "exit code and last traceback; the operator may give it a category"
    NEXT = "Read the traceback's last frame of the project; give it a category once it is known."


_ORDER: tuple[type[ErrorDetector], ...] = (
    OutOfMemory, ImportFailed, RestoreFailed, CudaAssumed, NotLowered, LazyError,
)  # fmt: skip
