"""How often what a run's processes use goes into the log."""

from __future__ import annotations

from core import events as ev
from core.runs.items import Usage

EVERY_S = 10.0
CHANGE = 0.1  # a share
CHANGE_MIB = 16.0
"""A change is worth an event from both on: small processes double in size for no reason."""


class UsageRate:
    """Lets a sample pass every ten seconds, and earlier where memory changes much."""

    def __init__(self) -> None:
        self._last: Usage | None = None
        self._at = 0.0

    def take(self, usage: Usage, now: float) -> ev.RunSampled | None:
        """The event for a sample, if it is to be one; ``now`` in monotonic seconds."""
        last = self._last
        if last is not None and now - self._at < EVERY_S:
            change = abs(usage.rss_mb - last.rss_mb)
            if change < max(CHANGE_MIB, CHANGE * last.rss_mb):
                return None
        self._last, self._at = usage, now
        return ev.RunSampled(usage.rss_mb, usage.processes, usage.swap_mb)
