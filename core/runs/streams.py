"""The output of one run: read from all its pipes, split into lines, put together in batches.

A run has one pipe for standard output and one for standard error, and each rank that handed over
pipes of its own (``core.runs.rank_pipes``) has two more. Lines are whole, whatever several
processes write at once; their order between pipes is that of arrival.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from core.runs.items import Item, Output, Progress
from core.runs.lines import LineSplitter
from core.runs.records import Malformed, Record

BATCH_LINES = 500
MAX_GROUPS = 32
"""Changes between pipes in one batch up to which the order of arrival is kept line by line; above
it, as when many ranks print at once, the lines of one rank in a batch are put together."""
CHUNK = 1 << 16
PIPE_WAIT_S = 2.0  # for the pipes to close once every process of the run is gone


@dataclass(eq=False, slots=True)
class _Pipe:
    """One pipe: ``pid`` is 0 for those that all processes share."""

    stream: str
    pid: int
    rank: str
    splitter: LineSplitter = field(default_factory=LineSplitter)
    shown: str = ""


class Streams:
    """Reads all pipes of a run and hands ``put`` its ``Output`` and ``Progress`` items.

    ``heard`` is called with each arrival: the last whole line of it, or ``""``.
    """

    def __init__(
        self, put: Callable[[Item], Awaitable[None]], heard: Callable[[str], None]
    ) -> None:
        self._put = put
        self._heard = heard
        self._pipes: list[_Pipe] = []
        self._readers: set[asyncio.Task[None]] = set()
        self._pending: list[Output] = []
        self._lines = 0
        self._received = 0  # bytes of all pipes
        self._flushing = asyncio.Lock()
        self._ranks: dict[int, str] = {}
        self.writers: list[int] = []
        """The ends to write to of the two shared pipes, until they are handed over."""
        self._shared: list[int] = []

    # --- pipes -----------------------------------------------------------------------------

    def open(self) -> str:
        """Make the shared pipes; returns what the probe knows them by: ``stdout=DEV:INO ...``."""
        names = []
        for stream in ("stdout", "stderr"):
            reader, writer = os.pipe()
            about = os.fstat(reader)
            names.append(f"{stream}={about.st_dev}:{about.st_ino}")
            self._shared.append(reader)
            self.writers.append(writer)
        return " ".join(names)

    def start(self) -> None:
        """Begin to read the shared pipes; our copies of the ends to write to are closed."""
        for writer in self.writers:
            os.close(writer)
        self.writers.clear()
        for reader, stream in zip(self._shared, ("stdout", "stderr"), strict=True):
            self.attach(reader, stream)
        self._shared.clear()

    def attach(self, fd: int, stream: str, pid: int = 0, rank: str = "") -> None:
        """Read one more pipe to its end."""
        pipe = _Pipe(stream, pid, rank)
        self._pipes.append(pipe)
        task = asyncio.create_task(self._read(fd, pipe))
        self._readers.add(task)

    def discard(self) -> None:
        """Close what was opened and never started."""
        for fd in (*self.writers, *self._shared):
            with contextlib.suppress(OSError):
                os.close(fd)
        self.writers.clear()
        self._shared.clear()

    async def _read(self, fd: int, pipe: _Pipe) -> None:
        reader = asyncio.StreamReader(CHUNK)
        transport: Any = None
        try:
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", 0)
            )
            while data := await reader.read(CHUNK):
                self._received += len(data)
                lines = pipe.splitter.feed(data)
                self._heard(lines[-1] if lines else "")
                self._add(pipe, lines)
                if self._lines >= BATCH_LINES:
                    await self.flush()
        finally:
            if transport is not None:
                transport.close()

    async def drain(self, knock: Callable[[], None]) -> None:
        """Wait for the pipes to end; cut off what something outside the run holds open.

        ``knock`` takes in what waits to be read besides, before each look.
        """
        knock()
        late = set(self._readers)
        while late:
            before = self._received
            _, late = await asyncio.wait(late, timeout=PIPE_WAIT_S)
            knock()
            late |= {task for task in self._readers if not task.done()}
            # A reader that waits for our own reader to take a batch is not held up by the pipe.
            if self._received == before and not self._flushing.locked():
                break

    async def close(self) -> None:
        """Stop reading, and pass on what is left, unfinished lines included."""
        for task in self._readers:
            task.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        for pipe in self._pipes:
            self._add(pipe, pipe.splitter.close())
        await self.flush()

    # --- lines -----------------------------------------------------------------------------

    def learn(self, records: Iterable[Record | Malformed]) -> None:
        """Take the ranks of processes from what their probes say."""
        for record in records:
            if isinstance(record, Record) and record.pid is not None and record.rank is not None:
                self._ranks[record.pid] = str(record.rank)

    def _rank(self, pipe: _Pipe) -> str:
        if not pipe.pid:
            return ""
        return pipe.rank or self._ranks.get(pipe.pid) or f"pid {pipe.pid}"

    def _add(self, pipe: _Pipe, lines: list[str]) -> None:
        if not lines:
            return
        self._lines += len(lines)
        rank = self._rank(pipe)
        last = self._pending[-1] if self._pending else None
        if last is not None and (last.stream, last.rank) == (pipe.stream, rank):
            last.lines.extend(lines)
        else:
            self._pending.append(Output(pipe.stream, lines, rank))

    async def flush(self) -> None:
        """Hand over all finished lines."""
        async with self._flushing:
            pending, self._pending, self._lines = self._pending, [], 0
            if len(pending) > MAX_GROUPS:
                pending = _together(pending)
            for output in pending:
                for start in range(0, len(output.lines), BATCH_LINES):
                    part = output.lines[start : start + BATCH_LINES]
                    await self._put(Output(output.stream, part, output.rank))

    async def show_progress(self) -> None:
        """Hand over what unfinished lines show, where that has changed."""
        for pipe in self._pipes:
            text = pipe.splitter.progress
            if text != pipe.shown:
                pipe.shown = text
                await self._put(Progress(pipe.stream, text, self._rank(pipe)))


def _together(pending: list[Output]) -> list[Output]:
    """The same lines with those of one stream and rank in one place, in the order of arrival."""
    groups: dict[tuple[str, str], list[str]] = {}
    for output in pending:
        groups.setdefault((output.stream, output.rank), []).extend(output.lines)
    return [Output(stream, lines, rank) for (stream, rank), lines in groups.items()]
