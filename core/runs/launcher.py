"""Start a run, follow it and end it.

    handle = await Launcher().start(RunSpec("r1", "python train.py", cwd))
    async for item in handle:        # core.runs.items; the last one is Ended
        ...

The items must be taken: a reader that stalls stalls the run, so that nothing is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.errors import PilotageError
from core.runs import endings, environment, leftovers, probe_setup, xla_files
from core.runs.items import Ended as Ended
from core.runs.items import Item as Item
from core.runs.items import Notice as Notice
from core.runs.items import Output as Output
from core.runs.items import Progress as Progress
from core.runs.items import Records as Records
from core.runs.items import Reports as Reports
from core.runs.items import Resumed as Resumed
from core.runs.items import Stalled as Stalled
from core.runs.items import Usage as Usage
from core.runs.rank_pipes import RankPipes
from core.runs.stall import StallWatch
from core.runs.streams import BATCH_LINES as BATCH_LINES
from core.runs.streams import PIPE_WAIT_S, Streams
from core.runs.tail import RecordTail
from core.runs.unwatched import Survey
from core.runs.xla_files import XlaFiles
from core.text import clean

BATCH_S = 0.1
PROGRESS_S = 1.0  # how often an unfinished line (a progress bar) is reported
QUEUE = 64  # batches that may wait for the reader
SUPERVISOR_ENV = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL")  # what its Python may need
SUPERVISOR = Path(__file__).with_name("supervise.py")


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What to run. ``command``: a list of arguments, or a string for ``/bin/sh -c``.

    ``env`` is added to the recorder's environment, from which ours and credentials were taken
    (``core.runs.environment``). ``probe`` None runs without one; else ``probe_dir`` is where the
    probe's copy and records go, a directory of this run's own. ``time_limit_s`` None: no limit.
    ``hang_s``: seconds without a sign of life after which the run is said to be stalled (0:
    never). ``xla_debug``: have PyTorch/XLA report its compiles (``core.runs.xla_files``).
    ``probe_capture`` and the four after it: ``probe_setup.install``.
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
    hang_s: float = 0.0
    xla_debug: bool = False
    probe_capture: Path | None = None
    probe_reference: Path | None = None
    probe_precision: probe_setup.Precision = "own"
    probe_cuda: probe_setup.Cuda = ""
    probe_budget_mb: int = probe_setup.BUDGET_MB

    @property
    def argv(self) -> list[str]:
        """What is executed."""
        if isinstance(self.command, str):
            return ["/bin/sh", "-c", self.command]
        return list(self.command)


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
                spec.probe_dir,
                mode=spec.probe,
                steps=spec.probe_steps,
                env=spec.env,
                capture=spec.probe_capture,
                reference=spec.probe_reference,
                precision=spec.probe_precision,
                cuda=spec.probe_cuda,
                budget_mb=spec.probe_budget_mb,
            )
            if spec.xla_debug:
                inherited = environment.for_run(os.environ, spec.env)
                additions |= xla_files.debug_env(spec.probe_dir, inherited, spec.probe)
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
        self._streams = Streams(self._queue.put, self._heard)
        self._stall = StallWatch(spec.hang_s, time.monotonic())
        self._why = ""
        self._grace_s = spec.stop_grace_s
        self._exit: endings.Exit | None = None
        self._exited = 0.0
        self._failed = ""
        self._swept = 0
        self._max_rss = 0
        own = str(spec.probe_dir / xla_files.FILE) if spec.probe_dir is not None else ""
        self._xla = XlaFiles(env, spec.cwd, own)
        self._tail: RecordTail | None = None
        self._ranks: RankPipes | None = None
        self._survey: Survey | None = None
        if spec.probe is not None and spec.probe_dir is not None:
            self._tail = RecordTail(probe_setup.records_dir(spec.probe_dir))
            self._ranks = RankPipes(spec.probe_dir, self._streams.attach)
            self._survey = Survey(spec.probe_dir)

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
        self._grace_s = self.spec.stop_grace_s if grace_s is None else grace_s
        await self._order(f"stop {self._grace_s}\n")

    # --- start -------------------------------------------------------------------------------

    async def _start(self) -> None:
        status_r, status_w = os.pipe()
        env = dict(self.env)
        try:
            shared = self._streams.open()
            if self._ranks is not None and self._ranks.open():
                env |= probe_setup.streams(self._ranks.path, shared)
            self._supervisor = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(SUPERVISOR), str(status_w)),
                stdin=asyncio.subprocess.PIPE,
                stdout=self._streams.writers[0],
                stderr=self._streams.writers[1],
                env={k: v for k, v in os.environ.items() if k in SUPERVISOR_ENV},
                cwd="/",
                pass_fds=(status_w,),
                start_new_session=True,
            )
        except OSError as error:
            os.close(status_r)
            self._streams.discard()
            if self._ranks is not None:
                self._ranks.close()
            raise PilotageError(
                f"Run {self.spec.run_id} was not started: no supervisor could be started "
                f"({error.strerror or error}). Check the limits on processes, open files and "
                "memory."
            ) from error
        finally:
            os.close(status_w)
        self._began = time.monotonic()
        self._streams.start()
        status = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(status), os.fdopen(status_r, "rb")
        )
        order = {
            "argv": self.spec.argv,
            "cwd": str(self.spec.cwd),
            "env": env,
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
            with contextlib.suppress(Exception):
                await self._streams.close()
        finally:
            transport.close()
            if self._ranks is not None:
                self._ranks.close()
            if self._supervisor.stdin is not None:
                self._supervisor.stdin.close()
        await self._queue.put(self.ended)

    async def _live(self, status: asyncio.StreamReader) -> float:
        """Pass on what happens until the run and its pipes are gone; returns its seconds."""
        others = [asyncio.create_task(self._tick())]
        if self.spec.time_limit_s is not None:
            others.append(asyncio.create_task(self._limit(self.spec.time_limit_s)))
        try:
            while line := await status.readline():
                await self._status(line)
            if self._exit is None and not self._failed:
                # The supervisor was killed: what it would have ended, we end.
                self._swept = len(await asyncio.to_thread(leftovers.kill_run, self.spec.run_id))
            await self._streams.drain(self._ranks.take_waiting if self._ranks else _nothing)
            with contextlib.suppress(TimeoutError, asyncio.TimeoutError):  # it waits for the pipes
                await asyncio.wait_for(self._supervisor.wait(), PIPE_WAIT_S)
        finally:
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        await self._pass_records(last=True)
        if self._survey is not None:
            await self._notice(self._survey.close())
        await self._streams.close()
        found = self._stall.look(time.monotonic())
        if isinstance(found, Resumed):  # silence until now is none that can be ended any more
            await self._queue.put(found)
        return (self._exited or time.monotonic()) - self._began

    async def _status(self, line: bytes) -> None:
        if not line:
            return
        said = json.loads(line)
        if "started" in said:
            self.pid = said["started"]
        elif "usage" in said:
            self._max_rss = max(self._max_rss, said["usage"])
            usage = Usage(
                endings.mib(said["usage"]), said["processes"], endings.mib(said.get("swap", 0))
            )
            await self._queue.put(usage)
            if self._survey is not None:
                await self._pass_records()  # what has said hello must not be taken for unwatched
                await self._notice(self._survey.look(said.get("pids", ())))
        elif "exit" in said:
            self._exit = endings.Exit.from_status(said)
            self._exited = time.monotonic()
            self._max_rss = max(self._max_rss, said["max_rss"])
        elif "swept" in said:
            self._swept = len(said["swept"])
        elif "failed" in said:
            self._failed = str(said["failed"])

    def _heard(self, line: str) -> None:
        self._stall.output(time.monotonic(), line)

    async def _pass_records(self, last: bool = False) -> None:
        if reports := self._xla.finish() if last else self._xla.read():
            await self._queue.put(Reports(reports))
        if self._tail is None:
            return
        records = self._tail.finish() if last else self._tail.read()
        if records:
            self._streams.learn(records)
            if self._survey is not None:
                self._survey.heard(records)
            self._stall.records(records, time.monotonic())
            await self._queue.put(Records(records))

    async def _notice(self, sentences: list[str]) -> None:
        for text in sentences:
            await self._queue.put(Notice("unwatched", text))

    async def _tick(self) -> None:
        progress_at = 0.0
        while True:
            await asyncio.sleep(BATCH_S)
            await self._streams.flush()
            await self._pass_records()
            if found := self._stall.look(time.monotonic()):
                await self._queue.put(found)
            if time.monotonic() >= progress_at:
                progress_at = time.monotonic() + PROGRESS_S
                await self._streams.show_progress()

    async def _limit(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._why = self._why or "time limit"
        await self._order(f"stop {self.spec.stop_grace_s}\n")

    def _end(self, duration: float) -> Ended:
        if self._failed:
            return endings.not_started(self._failed)
        return endings.describe(
            self._exit,
            why=self._why,
            limit_s=self.spec.time_limit_s,
            grace_s=self._grace_s,
            duration_s=duration,
            max_rss=self._max_rss,
            swept=self._swept,
        )


def _nothing() -> None:
    pass
