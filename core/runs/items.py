"""What a run's handle yields while the run goes on; the last item is always ``Ended``."""

from __future__ import annotations

from dataclasses import dataclass

from core.runs.records import Malformed, Record


@dataclass(frozen=True, slots=True)
class Output:
    """Finished lines of ``stdout`` or ``stderr``, cleaned (``core.runs.lines``).

    ``rank``: the rank of the process, ``pid N`` where it has a stream of its own and its rank is
    not known, ``""`` for the stream that all processes share.
    """

    stream: str
    lines: list[str]
    rank: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """What the unfinished last line of a stream shows; each replaces the one before."""

    stream: str
    text: str
    rank: str = ""


@dataclass(frozen=True, slots=True)
class Records:
    """Records of the run's probes."""

    records: list[Record | Malformed]


@dataclass(frozen=True, slots=True)
class Reports:
    """Facts that PyTorch/XLA reported into files of the run, as signal records."""

    records: list[dict[str, object]]


@dataclass(frozen=True, slots=True)
class Usage:
    """The process tree right now: resident memory and swap in MiB, and number of processes."""

    rss_mb: float
    processes: int
    swap_mb: float = 0.0


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence about the run, such as that the probe can't follow one of its processes."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Stalled:
    """No output and no step for ``seconds`` seconds; see ``core.runs.stall``."""

    seconds: float
    limit_s: float
    last_line: str = ""
    last_step: int | None = None
    doing: str = ""
    alive: bool = False
    at: str = ""


@dataclass(frozen=True, slots=True)
class Resumed:
    """A sign of life after a stall of ``seconds`` seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Ended:
    """The run is over and no process of it is left.

    ``reason``: ``exited``, ``signalled``, ``stopped``, ``time limit``, ``cut off`` (its
    supervisor was killed) or ``not started``. ``exit_code`` is None unless it exited by itself;
    ``signal`` is a name such as ``SIGSEGV``. ``swept``: how many processes it left running.
    ``cause`` is one of ``core.runs.endings.CAUSES`` or ``""``.
    """

    reason: str
    exit_code: int | None = None
    signal: str = ""
    duration_s: float = 0.0
    max_rss_mb: float = 0.0
    swept: int = 0
    text: str = ""
    cause: str = ""


Item = Output | Progress | Records | Reports | Usage | Notice | Stalled | Resumed | Ended
