"""What goes on for very long right now, by the beats that the probe gives while nothing is recorded.

A beat comes every few seconds in which no step ends (``core.runs.records.BeatRecord``): a compile
or an execution that is still under way shows in a row of them, long before the step's record. The
fold keeps the last beat of each process, with the time at which that row began.
"""

from __future__ import annotations

from core import records_view as view
from core.body import JSON
from core.detectors.base import Look


def compiling_for(at: Look) -> tuple[float, str]:
    """Seconds for which one compilation has gone on at least, and the program's line."""
    beat = view.record(at.run, "beat") or {}
    return _row(beat) if beat.get("compiling") is True else (0.0, "")


def waiting_for(at: Look) -> tuple[float, str]:
    """Seconds for which the host has waited for the device within one step, and the line."""
    beat = view.record(at.run, "beat") or {}
    waits = beat.get("doing") == "sync" and not beat.get("compiling")
    return _row(beat) if waits else (0.0, "")


def _row(beat: JSON) -> tuple[float, str]:
    first, last = view.number(beat.get("since_t")), view.number(beat.get("t"))
    if first is None or last is None:
        return 0.0, ""
    return max(0.0, last - first), str(beat.get("at") or "")
