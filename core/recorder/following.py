"""Following one run from its start to its end: what its handle yields becomes events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from core import events as ev
from core.config import SessionConfig
from core.recorder.items import (
    end_and_drain,
    end_event,
    record_events,
    resumed_events,
    stall_event,
)
from core.recorder.jobs import Job
from core.recorder.output_limit import OutputLimit
from core.recorder.run_writer import RunWriter
from core.recorder.sampling import UsageRate
from core.runs.launcher import (
    Ended,
    Item,
    Notice,
    Output,
    Records,
    Reports,
    Resumed,
    RunHandle,
    Stalled,
    Usage,
)
from core.runs.telemetry import Telemetry

DETECT_S = 0.5
"""Seconds between two looks of the detectors at a run in progress, at least."""


class Follower:
    """One run being followed.

    ``look`` is called again and again to look for new findings; ``stalled`` gives the id of the
    open finding of a stall, or ``""``. ``telemetry`` None: none is taken.
    """

    def __init__(
        self,
        handle: RunHandle,
        writer: RunWriter,
        config: SessionConfig,
        job: Job,
        *,
        look: Callable[[], None],
        stalled: Callable[[], str],
        telemetry: Telemetry | None = None,
    ) -> None:
        self._handle = handle
        self._writer = writer
        self._config = config
        self._job = job
        self._look = look
        self._stalled = stalled
        self._telemetry = telemetry
        limit = int(config.recorder.max_output_mb * 1e6)
        self._limit = OutputLimit(limit, config.metric.pattern)
        self._usage = UsageRate()
        self._why = ""
        self._end: list[ev.Body] = []

    async def follow(self) -> None:
        """Write down what the run does until it has ended; its end is written by ``finish``."""
        others = [asyncio.create_task(self._stop_with_job())]
        if self._telemetry is not None:
            others.append(asyncio.create_task(self._sample(self._telemetry)))
        look_at = time.monotonic() + DETECT_S
        try:
            async for item in self._handle:
                self._writer.write(*await self._events(item))
                # A log that can't be written shows the detectors nothing new.
                if time.monotonic() < look_at or self._writer.failing:
                    continue
                begin = time.monotonic()
                self._look()
                # Looking at a long log takes time: never more than a tenth of it.
                took = time.monotonic() - begin
                look_at = time.monotonic() + max(DETECT_S, 9 * took)
        finally:
            for task in others:
                task.cancel()
            await end_and_drain(self._handle)
            await asyncio.gather(*others, return_exceptions=True)

    async def finish(self) -> None:
        """Write down the end, with patience."""
        await self._writer.finish(*self._end)

    async def _events(self, item: Item) -> list[ev.Body]:
        now = time.monotonic()
        if isinstance(item, Output):
            return self._limit.take(item, now)
        if isinstance(item, Records):
            return record_events(item)
        if isinstance(item, Reports):
            return [ev.RunSignalled(list(item.records))]
        if isinstance(item, Notice):
            return [ev.RunSignalled([{"k": item.kind, "text": item.text}])]
        if isinstance(item, Usage):
            sample = self._usage.take(item, now)
            return [sample] if sample else []
        if isinstance(item, Stalled):
            if self._config.recorder.hang_action == "stop" and not item.alive:
                self._why = (
                    f"Stopped as stalled: no output and no step for {item.seconds:.0f} s "
                    "([recorder] hang_s, hang_action)."
                )
                await self._handle.stop()
            return [stall_event(item)]
        if isinstance(item, Resumed):
            return resumed_events(item, self._stalled())
        if isinstance(item, Ended):
            self._end = [*self._limit.finish(), end_event(item, self._job.text or self._why)]
        return []

    async def _stop_with_job(self) -> None:
        await self._job.stopped.wait()
        await self._handle.stop()

    async def _sample(self, telemetry: Telemetry) -> None:
        async for body in telemetry.samples():
            self._writer.write(body)
