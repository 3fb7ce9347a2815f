"""Writing down what a run does, without ever making the run wait for a disk.

A run whose output nobody takes stands still once its pipe is full. So where the session's file
can't be written (a full disk) its events wait here, in bounded memory, and are stored when there
is room again; what did not fit is counted and said. The run is neither held up nor ended for it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone

from core import events as ev
from core.errors import LostError, PilotageError
from core.events import NewEvent
from core.recorder.journal import Journal
from core.recorder.reserve import Reserve

OUTPUT_BYTES = 16_000_000
"""Bytes of output that may wait."""

RECORDS = 200_000
"""Probe records that may wait: verdicts rest on them, so they go last."""

SAMPLES = 2_000
"""Other events that may wait."""

TRY_S = 1.0
BATCH = 200  # events stored at once

_NOTHING = "nothing was lost"


class RunWriter:
    """One run's way into the log. ``write`` raises only where the log is lost for good."""

    def __init__(
        self,
        journal: Journal,
        reserve: Reserve,
        run_id: str,
        tree: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._journal = journal
        self._reserve = reserve
        self._run_id = run_id
        self._tree = tree
        self._clock = clock
        self._waiting: deque[NewEvent] = deque()
        self._output = self._records = self._samples = 0  # of what waits
        self._since_us = 0
        self._error = ""
        self._try_at = 0.0
        self._lost_lines = self._lost_bytes = self._lost_records = 0
        self._said = _NOTHING
        self._reserve.take()

    @property
    def failing(self) -> bool:
        """Whether events wait for the log to be writable again."""
        return bool(self._waiting)

    def write(self, *bodies: ev.Body) -> None:
        """Store events, now or when that is possible again; raises :class:`LostError`."""
        if not bodies:
            return
        failing = self.failing
        for body in bodies:
            self._waiting.append(NewEvent(body, "recorder", self._run_id, self._tree))
            self._count(body, 1)
        if not failing or self._clock() >= self._try_at:
            self._try()
        now_us = _now_us()
        for back in range(1, min(len(bodies), len(self._waiting)) + 1):
            # Those that have to wait keep the time at which they happened.
            self._waiting[-back] = replace(self._waiting[-back], ts_us=now_us)
        self._bound()

    async def finish(self, *bodies: ev.Body) -> None:
        """Store the last events of the run, with the journal's whole patience.

        Where the disk is full the room that was put aside for it is given up first. Raises
        :class:`PilotageError` when it can't be done.
        """
        self._try_at = 0.0
        self.write(*bodies)
        if self._waiting and self._reserve.release():
            self._shrink()
            self._try()
        if self._waiting:
            self._shrink()
            self._journal.note(
                f"Run {self._run_id} has ended, and the log can't take it: {self._error}"
            )
            rest = [*self._waiting]
            statement = self._statement()
            await self._journal.emit_events(*([statement] if statement else []), *rest)
            self._again()
            self._forget()
        self._reserve.release()

    # --- inside ----------------------------------------------------------------------------

    def _try(self) -> None:
        """Store what waits, oldest first, as far as that goes."""
        try:
            while self._waiting:
                statement = self._statement()
                some = [self._waiting[i] for i in range(min(BATCH, len(self._waiting)))]
                self._journal.store(*([statement] if statement else []), *some)
                self._lost_lines = self._lost_bytes = self._lost_records = 0
                for new in some:
                    self._waiting.popleft()
                    self._count(new.body, -1)
        except LostError:
            raise
        except PilotageError as err:
            if not self._since_us:
                self._since_us = _now_us()
                self._journal.note(f"The log can't be written, trying again each second: {err}")
            self._error = str(err)
            self._try_at = self._clock() + TRY_S
            return
        if self._since_us:
            self._reserve.take()
        self._again()

    def _again(self) -> None:
        """The log has taken everything: say so, if it had not before."""
        if self._since_us:
            self._journal.note(f"The log can be written again; {self._said}.")
        self._since_us = 0
        self._said = _NOTHING

    def _statement(self) -> NewEvent | None:
        """What is to be said of events that are lost, before those that come after them."""
        lines, size, records = self._lost_lines, self._lost_bytes, self._lost_records
        if not (lines or records):
            return None
        what = f"{lines:,} lines ({size / 1e6:.1f} MB) of output"
        if records:
            what += f" and {records:,} records of the probe"
        self._said = f"{what} were lost"
        begun = datetime.fromtimestamp(self._since_us / 1e6, timezone.utc)
        now = datetime.now(timezone.utc)
        text = (
            f"{what} could not be stored: the session's file could not be written from "
            f"{begun:%H:%M:%S} to {now:%H:%M:%S} UTC ({self._error[:200]})."
        )
        body = ev.RunElided(lines, size, "not writable", text, records)
        return NewEvent(body, "recorder", self._run_id, self._tree)

    def _bound(self) -> None:
        """Drop the oldest of what waits where it is too much."""
        while self._output > OUTPUT_BYTES:
            self._drop(ev.RunOutput)
        while self._records > RECORDS:
            self._drop(ev.RunStepped, ev.RunSignalled)
        while self._samples > SAMPLES:
            self._drop(ev.RunSampled, ev.HostSampled, ev.RunStalled, ev.RunResumed, ev.RunElided)

    def _shrink(self) -> None:
        """Leave only what the reserve has room for: the end, and the last lines before it."""
        while self._output > 100_000:
            self._drop(ev.RunOutput)

    def _drop(self, *kinds: type[ev.Body]) -> None:
        for index, new in enumerate(self._waiting):
            body = new.body
            if not isinstance(body, kinds):
                continue
            del self._waiting[index]
            self._count(body, -1)
            if isinstance(body, ev.RunOutput):
                self._lost_lines += len(body.lines)
                self._lost_bytes += _size(body)
            elif isinstance(body, ev.RunElided):  # what it said must not be lost as well
                self._lost_lines += body.lines
                self._lost_bytes += body.bytes
            elif isinstance(body, ev.RunStepped | ev.RunSignalled):
                self._lost_records += len(body.records)
            return
        raise AssertionError("a count is of events that are not there")

    def _count(self, body: ev.Body, by: int) -> None:
        if isinstance(body, ev.RunOutput):
            self._output += by * _size(body)
        elif isinstance(body, ev.RunStepped | ev.RunSignalled):
            self._records += by * len(body.records)
        elif isinstance(
            body, ev.RunSampled | ev.HostSampled | ev.RunStalled | ev.RunResumed | ev.RunElided
        ):
            self._samples += by

    def _forget(self) -> None:
        self._waiting.clear()
        self._output = self._records = self._samples = 0
        self._lost_lines = self._lost_bytes = self._lost_records = 0


def _size(body: ev.RunOutput) -> int:
    return sum(map(len, body.lines)) + len(body.lines)


def _now_us() -> int:
    return time.time_ns() // 1000
