"""Start a run, follow it and end it.

    handle = await Launcher().start(RunSpec("r1", "python train.py", cwd))
    async for item in handle:        # Output, Records, Usage; the last one is Ended
        ...

The items must be taken: a reader that stalls stalls the run, so that nothing is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.errors import PilotageError
from core.runs import environment, leftovers, probe_setup
from core.runs.lines import LineSplitter
from core.runs.records import Malformed, Record
from core.runs.tail import RecordTail
from core.text import clean

BATCH_S = 0.1
BATCH_LINES = 500
PROGRESS_S = 1.0  # how often an unfinished line (a progress bar) is reported
QUEUE = 64  # batches that may wait for the reader
PIPE_WAIT_S = 2.0  # for the pipes to close once every process of the run is gone
SUPERVISOR_ENV = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL")  # what its Python may need
SUPERVISOR = Path(__file__).with_name("supervise.py")


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What to run. ``command``: a list of arguments, or a string for ``/bin/sh -c``.

    ``env`` is added to the recorder's environment, from which ours and credentials were taken
    (``core.runs.environment``). ``probe`` None runs without one; else ``probe_dir`` is where the
    probe's copy and records go, a directory of this run's own. ``time_limit_s`` None: no limit.
    """

    run_id: str
    command: Sequence[str] | str
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    session_id: str = ""
    probe: probe_setup.Mode | None = None
    probe_steps: int = 10
    probe_dir: Path | None = None
    time_limit_s: float | None = None
    stop_grace_s: float = 5.0

    @property
    def argv(self) -> list[str]:
        """What is executed."""
        if isinstance(self.command, str):
            return ["/bin/sh", "-c", self.command]
        return list(self.command)


@dataclass(frozen=True, slots=True)
class Output:
    """Finished lines of ``stdout`` or ``stderr``, cleaned (``core.runs.lines``)."""

    stream: str
    lines: list[str]


@dataclass(frozen=True, slots=True)
class Progress:
    """What the unfinished last line of a stream shows; each replaces the one before."""

    stream: str
    text: str


@dataclass(frozen=True, slots=True)
class Records:
    """Records of the run's probes."""

    records: list[Record | Malformed]


@dataclass(frozen=True, slots=True)
class Usage:
    """The process tree right now: resident memory in MiB and number of processes."""

    rss_mb: float
    processes: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The run is over and no process of it is left.

    ``reason``: ``exited``, ``signalled``, ``stopped``, ``time limit``, ``cut off`` (its
    supervisor was killed) or ``not started``. ``exit_code`` is None unless it exited by itself;
    ``signal`` is a name such as ``SIGSEGV``. ``swept``: how many processes it left running.
    """

    reason: str
    exit_code: int | None = None
    signal: str = ""
    duration_s: float = 0.0
    max_rss_mb: float = 0.0
    swept: int = 0
    text: str = ""


Item = Output | Progress | Records | Usage | Ended


class Launcher:
    """Starts runs; holds nothing itself."""

    async def start(self, spec: RunSpec) -> RunHandle:
        """Start a run. One whose command can't be executed ends with reason ``not started``.

        Raises PilotageError if the working directory or the probe's directory can't be used.
        """
        if not spec.cwd.is_dir():
            raise PilotageError(
                f"Run {spec.run_id} was not started: its directory {spec.cwd} does not exist."
            )
        additions = dict(spec.env)
        if spec.probe is not None:
            if spec.probe_dir is None:
                raise PilotageError(
                    f"Run {spec.run_id} was not started: it is to be probed, "
                    "but no directory for the probe was given."
                )
            additions |= probe_setup.install(
                spec.probe_dir, mode=spec.probe, steps=spec.probe_steps, env=spec.env
            )
        additions["PYTHONUNBUFFERED"] = "1"
        additions[leftovers.RUN_VARIABLE] = spec.run_id
        if spec.session_id:
            additions[leftovers.SESSION_VARIABLE] = spec.session_id
        env = environment.for_run(os.environ, additions)
        handle = RunHandle(spec, env)
        await handle._start()
        return handle


class RunHandle:
    """A run under way. Iterate over it for what happens; the last item is its ``Ended``."""

    def __init__(self, spec: RunSpec, env: dict[str, str]) -> None:
        self.spec = spec
        self.env = env
        self.stated_env = environment.stated(os.environ, env)
        self.pid = 0
        self.ended: Ended | None = None
        self._queue: asyncio.Queue[Item] = asyncio.Queue(QUEUE)
        self._pending: list[Output] = []
        self._lines = 0
        self._received = 0  # bytes of both streams
        self._flushing = asyncio.Lock()
        self._why = ""
        self._exit: dict[str, Any] | None = None
        self._exited = 0.0
        self._failed = ""
        self._swept = 0
        self._max_rss = 0
        self._tail: RecordTail | None = None
        if spec.probe is not None and spec.probe_dir is not None:
            self._tail = RecordTail(probe_setup.records_dir(spec.probe_dir))

    # --- for the user of a handle ------------------------------------------------------------

    async def __aiter__(self) -> AsyncIterator[Item]:
        while True:
            item = await self._queue.get()
            yield item
            if isinstance(item, Ended):
                return

    async def stop(self, grace_s: float | None = None) -> None:
        """Ask the run to end: SIGTERM to all of it, SIGKILL after ``grace_s`` seconds.

        Returns at once; the end is the item ``Ended``. Harmless once the run has ended.
        """
        self._why = self._why or "stopped"
        await self._order(f"stop {self.spec.stop_grace_s if grace_s is None else grace_s}\n")

    # --- start -------------------------------------------------------------------------------

    async def _start(self) -> None:
        status_r, status_w = os.pipe()
        try:
            self._supervisor = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(SUPERVISOR), str(status_w)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={k: v for k, v in os.environ.items() if k in SUPERVISOR_ENV},
                cwd="/",
                pass_fds=(status_w,),
                start_new_session=True,
            )
        except OSError as error:
            os.close(status_r)
            raise PilotageError(
                f"Run {self.spec.run_id} was not started: no supervisor could be started "
                f"({error.strerror or error}). Check the limits on processes and memory."
            ) from error
        finally:
            os.close(status_w)
        self._began = time.monotonic()
        status = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(status), os.fdopen(status_r, "rb")
        )
        order = {
            "argv": self.spec.argv,
            "cwd": str(self.spec.cwd),
            "env": self.env,
            "mark": [leftovers.RUN_VARIABLE, self.spec.run_id],
        }
        await self._order(json.dumps(order) + "\n")
        await self._status(await status.readline())
        self._task = asyncio.create_task(self._follow(status, transport))

    async def _order(self, text: str) -> None:
        stdin = self._supervisor.stdin
        if stdin is None or self.ended is not None:
            return
        with contextlib.suppress(ConnectionError):  # it has ended already
            stdin.write(text.encode())
            await stdin.drain()

    # --- follow ------------------------------------------------------------------------------

    async def _follow(self, status: asyncio.StreamReader, transport: Any) -> None:
        """The run's life after its start; puts ``Ended`` whatever happens."""
        try:
            self.ended = self._end(await self._live(status))
        except Exception as error:  # of ours: the run must not go on unwatched
            swept = await asyncio.to_thread(leftovers.kill_run, self.spec.run_id)
            text = f"Following the run failed ({type(error).__name__}: {error}); it was ended."
            self.ended = Ended("cut off", swept=len(swept), text=clean(text))
        finally:
            transport.close()
            if self._supervisor.stdin is not None:
                self._supervisor.stdin.close()
        await self._queue.put(self.ended)

    async def _live(self, status: asyncio.StreamReader) -> float:
        """Pass on what happens until the run and its pipes are gone; returns its seconds."""
        stdout, stderr = self._supervisor.stdout, self._supervisor.stderr
        assert stdout is not None and stderr is not None
        splitters = {"stdout": LineSplitter(), "stderr": LineSplitter()}
        readers = [
            asyncio.create_task(self._read(stdout, "stdout", splitters["stdout"])),
            asyncio.create_task(self._read(stderr, "stderr", splitters["stderr"])),
        ]
        others = [asyncio.create_task(self._tick(splitters))]
        if self.spec.time_limit_s is not None:
            others.append(asyncio.create_task(self._limit(self.spec.time_limit_s)))
        try:
            while line := await status.readline():
                await self._status(line)
            if self._exit is None and not self._failed:
                # The supervisor was killed: what it would have ended, we end.
                self._swept = len(await asyncio.to_thread(leftovers.kill_run, self.spec.run_id))
            await self._drain(readers)
            with contextlib.suppress(TimeoutError, asyncio.TimeoutError):  # it waits for the pipes
                await asyncio.wait_for(self._supervisor.wait(), PIPE_WAIT_S)
        finally:
            for task in (*others, *readers):
                task.cancel()
            await asyncio.gather(*others, *readers, return_exceptions=True)
        for stream, splitter in splitters.items():
            self._add(stream, splitter.close())
        await self._flush()
        if self._tail is not None and (records := self._tail.finish()):
            await self._queue.put(Records(records))
        return (self._exited or time.monotonic()) - self._began

    async def _status(self, line: bytes) -> None:
        if not line:
            return
        said = json.loads(line)
        if "started" in said:
            self.pid = said["started"]
        elif "usage" in said:
            self._max_rss = max(self._max_rss, said["usage"])
            await self._queue.put(Usage(_mib(said["usage"]), said["processes"]))
        elif "exit" in said:
            self._exit = said
            self._exited = time.monotonic()
            self._max_rss = max(self._max_rss, said["max_rss"])
        elif "swept" in said:
            self._swept = len(said["swept"])
        elif "failed" in said:
            self._failed = clean(str(said["failed"]))

    async def _read(
        self, reader: asyncio.StreamReader, stream: str, splitter: LineSplitter
    ) -> None:
        while data := await reader.read(65536):
            self._received += len(data)
            self._add(stream, splitter.feed(data))
            if self._lines >= BATCH_LINES:
                await self._flush()

    async def _drain(self, readers: list[asyncio.Task[None]]) -> None:
        """Wait for the pipes to end; cut off what something outside the run holds open."""
        late: set[asyncio.Task[None]] = set(readers)
        while late:
            before = self._received
            _, late = await asyncio.wait(late, timeout=PIPE_WAIT_S)
            # A reader that waits for our own reader to take a batch is not held up by the pipe.
            if self._received == before and not self._flushing.locked():
                break
        for task in late:
            task.cancel()

    def _add(self, stream: str, lines: list[str]) -> None:
        if not lines:
            return
        self._lines += len(lines)
        if self._pending and self._pending[-1].stream == stream:
            self._pending[-1].lines.extend(lines)  # the order between streams is that of arrival
        else:
            self._pending.append(Output(stream, lines))

    async def _flush(self) -> None:
        async with self._flushing:
            pending, self._pending, self._lines = self._pending, [], 0
            for output in pending:
                for start in range(0, len(output.lines), BATCH_LINES):
                    part = output.lines[start : start + BATCH_LINES]
                    await self._queue.put(Output(output.stream, part))

    async def _tick(self, splitters: Mapping[str, LineSplitter]) -> None:
        shown = dict.fromkeys(splitters, "")
        progress_at = 0.0
        while True:
            await asyncio.sleep(BATCH_S)
            await self._flush()
            if self._tail is not None and (records := self._tail.read()):
                await self._queue.put(Records(records))
            if time.monotonic() >= progress_at:
                progress_at = time.monotonic() + PROGRESS_S
                for stream, splitter in splitters.items():
                    if (text := splitter.progress) != shown[stream]:
                        shown[stream] = text
                        await self._queue.put(Progress(stream, text))

    async def _limit(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._why = self._why or "time limit"
        await self._order(f"stop {self.spec.stop_grace_s}\n")

    def _end(self, duration: float) -> Ended:
        took: dict[str, Any] = {
            "duration_s": round(duration, 3),
            "max_rss_mb": _mib(self._max_rss),
            "swept": self._swept,
        }
        if self._failed:
            text = f"The command could not be started: {self._failed}."
            return Ended("not started", text=text)
        if self._exit is None:
            text = "The run's supervisor process was killed; what was left of the run was ended."
            return Ended("cut off", text=text, **took)
        code, number = self._exit["exit"], self._exit["signal"]
        name = _signal_name(number) if number is not None else ""
        if self._why == "time limit":
            text = f"Ended by the time limit of {self.spec.time_limit_s:g} s."
            return Ended("time limit", exit_code=code, signal=name, text=text, **took)
        if self._why:
            return Ended("stopped", exit_code=code, signal=name, **took)
        if number is not None:
            return Ended("signalled", signal=name, text=_about(name), **took)
        return Ended("exited", exit_code=code, **took)


def _mib(size: int) -> float:
    return round(size / 1048576, 1)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _about(name: str) -> str:
    if name == "SIGKILL":
        return "Killed by SIGKILL; on a machine short of memory that is the kernel's doing."
    return f"Killed by {name}."
