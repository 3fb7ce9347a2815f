"""The operator's clock, from raw signals, by one published rule.

Active time at a console is the union of the intervals that join acts at most ``gap`` seconds
apart; the last act of such a chain counts for 30 s more. An act is a heartbeat (key, mouse,
paste, focus) or attaching. A pause and the console's detaching cut: nothing is counted beyond
them, and what was done during a pause is not counted at all. The operator's active time is the
union over the consoles. It is always given at 60, 180 and 900 s, so that nobody has to trust
one threshold; 180 s is the one used where a single figure is needed.

Intervals within one boot are measured on the monotonic clock, so that a clock that is set
does not make or lose time; between boots only the wall clock is left.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core.state import SessionState
    from core.state_parts import PhaseSpan, Signal

#: Seconds between two acts up to which the time between them counts.
GAPS_S = (60, 180, 900)
#: The one used for the cells and for money.
GAP_S = 180
#: Seconds counted after the last act of a chain.
TAIL_S = 30

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Cells:
    """Seconds of the session in four disjoint cells; they sum to its span."""

    working_active: float
    working_away: float
    idle_active: float
    idle_away: float

    @property
    def sum(self) -> float:
        """The span of the session."""
        return self.working_active + self.working_away + self.idle_active + self.idle_away


@dataclass(frozen=True, slots=True)
class Effort:
    """Seconds. ``active_s`` by gap; ``cells`` at 180 s; ``blocked_s``: the agent waited on us."""

    span_s: float
    active_s: dict[int, float]
    cells: Cells
    agent_s: float
    blocked_s: float

    @property
    def active(self) -> float:
        """The operator's active seconds at the 180 s gap."""
        return self.active_s[GAP_S]

    @property
    def text(self) -> str:
        """The three totals together, in minutes: ``12 min (9 / 12 / 31 at 60 / 180 / 900 s)``."""
        minutes = [f"{self.active_s[g] / 60:.0f}" for g in GAPS_S]
        gaps = " / ".join(str(g) for g in GAPS_S)
        return f"{self.active / 60:.0f} min ({' / '.join(minutes)} at {gaps} s)"


class Clock:
    """Puts stamps of several boots on one axis of seconds.

    The first stamp seen of each boot ties its monotonic clock to the wall clock. Stamps without
    a boot id (imported ones) are on the wall clock.
    """

    def __init__(self, stamps: Iterable[tuple[int, int, str]]) -> None:
        self._anchor: dict[str, tuple[int, int]] = {}
        for ts_us, mono_us, boot_id in stamps:
            known = self._anchor.get(boot_id)
            if known is None or mono_us < known[1]:
                self._anchor[boot_id] = (ts_us, mono_us)

    def seconds(self, ts_us: int, mono_us: int, boot_id: str) -> float:
        """Seconds on the common axis."""
        if not boot_id:
            return ts_us / 1e6
        ts0, mono0 = self._anchor.get(boot_id, (ts_us, mono_us))
        return (ts0 + mono_us - mono0) / 1e6


def effort(state: SessionState, now_ts_us: int | None = None) -> Effort:
    """The operator's and the agent's time up to ``now`` (UTC microseconds).

    Without ``now``, and once the session is over, time ends with the last event.
    """
    last = state.phases[-1] if state.phases else None
    stamps = [(s.ts_us, s.mono_us, s.boot_id) for s in state.signals]
    stamps += [(p.start_ts_us, p.start_mono_us, p.boot_id) for p in state.phases]
    clock = Clock(stamps)
    start = state.first_ts_us / 1e6
    end = state.last_ts_us / 1e6
    if now_ts_us is not None and not state.over:
        end = max(end, now_ts_us / 1e6)
    if last is not None:
        end = max(end, clock.seconds(last.start_ts_us, last.start_mono_us, last.boot_id))
    span = (start, max(start, end))
    working = _phases(state.phases, clock, span, "working")
    active = {gap: clip(active_intervals(state.signals, clock, gap), span) for gap in GAPS_S}
    both = length(intersect(working, active[GAP_S]))
    agent_s, active_s, span_s = length(working), length(active[GAP_S]), span[1] - span[0]
    return Effort(
        span_s=span_s,
        active_s={gap: length(intervals) for gap, intervals in active.items()},
        cells=Cells(
            working_active=both,
            working_away=agent_s - both,
            idle_active=active_s - both,
            idle_away=max(0.0, span_s - agent_s - active_s + both),
        ),
        agent_s=agent_s,
        blocked_s=length(_phases(state.phases, clock, span, "waiting")),
    )


def _phases(phases: list[PhaseSpan], clock: Clock, span: Interval, phase: str) -> list[Interval]:
    """Intervals in which the agent was in ``phase``; a phase lasts until the next begins."""
    edges: list[float] = []
    for p in phases:
        at = clock.seconds(p.start_ts_us, p.start_mono_us, p.boot_id)
        edges.append(max(at, edges[-1]) if edges else at)  # a wall clock may have been set back
    edges.append(max([span[1], *edges[-1:]]))
    found = [(edges[i], edges[i + 1]) for i, p in enumerate(phases) if p.phase == phase]
    return clip(found, span)


def active_intervals(signals: list[Signal], clock: Clock, gap_s: float) -> list[Interval]:
    """The operator's active intervals (seconds), joined at ``gap_s``, over all consoles."""
    chains: dict[str, float] = {}  # console -> time of its last act
    found: list[Interval] = []
    attached: set[str] = set()
    paused = False

    def close(console: str, until: float | None = None) -> None:
        begun = chains.pop(console, None)
        if begun is None:
            return
        if until is None:
            found.append((begun, begun + TAIL_S))
        elif until - begun <= gap_s:  # acted up to the cut
            found.append((begun, until))
        else:
            found.append((begun, min(until, begun + TAIL_S)))

    for signal in signals:
        at = clock.seconds(signal.ts_us, signal.mono_us, signal.boot_id)
        if signal.what == "attached":
            attached.add(signal.console_id)
        if signal.what == "paused":
            for console in list(chains):
                close(console, at)
            paused = True
        elif signal.what == "resumed":
            paused = False
            if signal.console_id in attached:  # resuming is an act, where a person sits there
                chains[signal.console_id] = at
        elif signal.what == "detached":
            close(signal.console_id, at)
        elif not paused:
            before = chains.get(signal.console_id)
            if before is not None:
                joined = at - before <= gap_s
                found.append((before, at if joined else min(at, before + TAIL_S)))
            chains[signal.console_id] = at
    for console in list(chains):
        close(console)
    return union(found)


# --- intervals -------------------------------------------------------------------------------


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Disjoint intervals in order; empty and backward ones are dropped."""
    merged: list[Interval] = []
    for begin, end in sorted(i for i in intervals if i[1] > i[0]):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def clip(intervals: Iterable[Interval], span: Interval) -> list[Interval]:
    """The parts of ``intervals`` inside ``span``, disjoint and in order."""
    return union((max(a, span[0]), min(b, span[1])) for a, b in intervals)


def intersect(a: list[Interval], b: list[Interval]) -> list[Interval]:
    """What two lists of disjoint, ordered intervals have in common."""
    found: list[Interval] = []
    i = j = 0
    while i < len(a) and j < len(b):
        begin, end = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if end > begin:
            found.append((begin, end))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return found


def length(intervals: Iterable[Interval]) -> float:
    """Seconds in disjoint intervals."""
    return sum(b - a for a, b in intervals)
