"""Things that somebody wants runs for; each can be given up as a whole."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from core.errors import PilotageError

T = TypeVar("T")


class RunStopped(PilotageError):
    """What a run was wanted for has been given up; the sentence says by whom."""


@dataclass(slots=True, eq=False)
class Job:
    """Something that somebody wants runs for, and that can be stopped as a whole."""

    by: str
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    text: str = ""

    def stop(self, text: str) -> None:
        if not self.stopped.is_set():
            self.text = text
            self.stopped.set()

    def check(self) -> None:
        if self.stopped.is_set():
            raise RunStopped(self.text)


class Jobs:
    """The jobs that are going on."""

    def __init__(self) -> None:
        self._open: set[Job] = set()

    @contextlib.contextmanager
    def job(self, by: str) -> Iterator[Job]:
        """A job, for as long as the block lasts."""
        job = Job(by)
        self._open.add(job)
        try:
            yield job
        except asyncio.CancelledError:
            job.stop("The recorder ended.")
            raise
        finally:
            self._open.discard(job)

    def stop(self, text: str, by: Collection[str] | None = None) -> None:
        """Give up the jobs of some, or all of them; ``text`` says by whom."""
        for job in list(self._open):
            if by is None or job.by in by:
                job.stop(text)


async def until(work: Awaitable[T], job: Job) -> T:
    """Wait for something that is not a run; raises :class:`RunStopped` if the job is given up."""
    task: asyncio.Future[T] = asyncio.ensure_future(work)
    stop = asyncio.ensure_future(job.stopped.wait())
    try:
        both: set[asyncio.Future[Any]] = {task, stop}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise RunStopped(job.text)
    finally:
        for future in (task, stop):
            if not future.done():
                future.cancel()
        await asyncio.gather(task, stop, return_exceptions=True)
