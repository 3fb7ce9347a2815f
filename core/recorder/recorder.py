"""The recorder: the long-lived process that ties agent, worktree, runs and log together.

It holds the session's lock, closes what a dead recorder left open, records the reference, lets
the agent work through its bridge, does what consoles ask for through the log, and ends in good
order. Everything it does is in the log; its own troubles are in ``recorder.log``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
import traceback
from pathlib import Path

from core import events as ev
from core.agents.base import OutOfBudget, Verdict
from core.agents.drivers import make_driver
from core.config import SessionConfig
from core.errors import PilotageError, SessionError
from core.events import Event
from core.guard.policy import Policy
from core.log_protocol import Log
from core.process import RECORDER_LOG, RecorderLock
from core.recorder.acts import Acts
from core.recorder.bridge import AgentBridge
from core.recorder.budget import watch
from core.recorder.command import base_env
from core.recorder.guarding import Guarding
from core.recorder.journal import Journal
from core.recorder.outside import watch_outside
from core.recorder.recovery import recover
from core.recorder.runs import Runs
from core.recorder.shell import Shell
from core.recorder.tools import Tools
from core.recorder.worktree import Worktree
from core.workspace import Workspace

LOOK_S = 1.0
"""Seconds between two looks whether a session whose agent has ended is still wanted."""


class Recorder:
    """Records one session until it is over; ``await run()`` once.

    ``linger_s`` replaces ``[recorder] grace_s`` of the configuration: seconds without a sign of
    an operator, after the agent has ended, until the recorder ends (0: at once).
    """

    def __init__(self, log: Log, session_dir: Path, *, linger_s: float | None = None) -> None:
        self._dir = session_dir.absolute()
        self._linger_s = linger_s
        self._journal = Journal(log, self.note)
        self._acts = Acts(self._journal.state)
        self._stop = asyncio.Event()
        self._stop_reason = ""
        self._operator_sign = time.monotonic()
        self._tasks: set[asyncio.Task[None]] = set()
        self._notes: list[str] = []  # not written yet
        self._live = False
        self._recovered = False
        self._bridge: AgentBridge | None = None
        self._runs: Runs | None = None

    # --- life ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Record until the agent has ended and nobody wants more, or until asked to stop.

        Raises :class:`PilotageError` when another recorder has the session or it can't be used.
        """
        with RecorderLock(self._dir):
            try:
                await self._record()
            except PilotageError:
                raise
            except Exception:
                self.note(traceback.format_exc())
                raise

    async def _record(self) -> None:
        journal = self._journal
        journal.listeners.append(self._hear)
        journal.catch_up()
        opened = journal.state.opened
        if opened is None:
            raise SessionError(f"{self._dir.name} has no session.opened event; nothing to record.")
        config = SessionConfig.from_json(opened.config)
        with self._signals():
            self._recovered = await recover(journal, opened.session_id)
            await journal.emit(
                ev.RecorderStarted(os.getpid(), socket.gethostname(), opened.pilotage_version)
            )
            self._live = True
            self._settle_acts()
            follower = asyncio.create_task(journal.follow())
            try:
                await self._work(config, opened.session_id)
                reason = self._stop_reason or "the agent has ended"
            except asyncio.CancelledError:
                reason = "cancelled"
                raise
            except Exception as err:
                reason = f"an error: {err}"
                raise
            finally:
                journal.giving_up = True
                follower.cancel()
                await asyncio.gather(follower, *self._tasks, return_exceptions=True)
                with contextlib.suppress(PilotageError):  # noted in recorder.log by the journal
                    await journal.emit(ev.RecorderStopped(reason))

    async def _work(self, config: SessionConfig, session_id: str) -> None:
        journal = self._journal
        files = await asyncio.to_thread(self._open_workspace, config)
        if not journal.state.snapshots:
            await journal.emit(files.baseline_snapshot(), tree=files.baseline)
        worktree = Worktree(files, journal)
        guarding = Guarding(
            journal,
            files,
            Policy(tuple(config.guard.ask), tuple(config.guard.protect)),
            self.note,
            own_edits=config.agent.driver == "manual",
        )
        worktree.on_snapshot = guarding.look
        # After a crash, the last change may have been made and not recorded.
        await worktree.snapshot("cut off" if self._recovered else "outside")
        guarding.catch_up()
        self._runs = runs = Runs(journal, config, worktree, self._dir, session_id, self.note)
        shell = Shell(
            files,
            session_id,
            config.recorder.shell_limit_s,
            {**base_env(config, files, files.root), **config.target.env},
        )
        tools = Tools(worktree, runs, shell, guarding)

        async def verify() -> Verdict | None:
            try:
                return await runs.verify("claim")
            except PilotageError as err:  # stopped by the operator, say: then there is no verdict
                self.note(f"A claim could not be verified: {err}")
                return None

        self._bridge = AgentBridge(
            journal,
            tools,
            self._dir / "agent.json",
            verify if config.agent.verify_on_claim else None,
            config.agent.policy,
        )
        jobs = [asyncio.create_task(runs.prepare())]
        if journal.state.agent_end is None:
            jobs.append(asyncio.create_task(self._agent(config, self._bridge)))
        stop = asyncio.create_task(self._stop.wait())
        watchers = [asyncio.create_task(watch(journal, config.budgets))]
        if config.agent.driver == "manual":
            watchers.append(asyncio.create_task(watch_outside(worktree)))
        try:
            # The agent has its word first; then, as long as someone may want it, the session stays.
            await _first(stop, asyncio.gather(*jobs))
            if not self._stop.is_set():
                await _first(stop, runs.final())
            grace = config.recorder.grace_s if self._linger_s is None else self._linger_s
            while not self._stop.is_set() and not self._unwanted(grace):
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), max(0.02, min(LOOK_S, grace)))
        finally:
            runs.stop(self._stop_reason or "The recorder ended.")
            shell.stop()
            for job in (stop, *watchers, *jobs):
                job.cancel()
            await asyncio.gather(stop, *watchers, *jobs, return_exceptions=True)
            await runs.settled()
            await guarding.settled()

    def _open_workspace(self, config: SessionConfig) -> Workspace:
        project = Path(config.project.path)
        # `baseline` is the last thing that `create` writes: without it there is nothing to lose.
        if (self._dir / "baseline").exists():
            last = self._journal.state.snapshots
            return Workspace.reopen(project, self._dir, last[-1].body if last else None)
        return Workspace.create(
            project,
            self._dir,
            copy=config.project.copy,
            outputs=config.project.outputs,
            link=config.project.link,
        )

    async def _agent(self, config: SessionConfig, bridge: AgentBridge) -> None:
        """Let the driver work; its failure is an event and ends only the agent."""
        journal = self._journal
        try:
            driver = make_driver(config)
            model, detail = driver.describe(bridge.recall())
            await journal.emit(ev.AgentStarted(driver.name, model, detail), source="agent")
            await driver.run(bridge)
            if journal.state.agent_end is None:
                await bridge.finish("the driver ended")
        except asyncio.CancelledError:
            raise
        except OutOfBudget as over:
            await bridge.finish("out of budget", str(over))
        except PilotageError as err:
            await self._agent_failed(str(err))
        except Exception as err:  # a fault of a driver must not take the recorder with it
            self.note(traceback.format_exc())
            await self._agent_failed(
                f"The driver failed with {type(err).__name__}: {err}. "
                f"The traceback is in {self._dir / RECORDER_LOG}."
            )

    async def _agent_failed(self, error: str) -> None:
        await self._journal.emit(ev.AgentFailed(error), source="agent")

    def _unwanted(self, grace_s: float) -> bool:
        if any(not t.done() for t in self._tasks):
            return False
        return time.monotonic() - self._operator_sign >= grace_s

    # --- what consoles append --------------------------------------------------------------

    def _hear(self, event: Event) -> None:
        self._acts.take(event)
        if not self._live:
            return
        if event.source.startswith("console:"):
            self._operator_sign = time.monotonic()
        if self._bridge is not None:
            self._bridge.listen(event)
        if isinstance(event.body, ev.OperatorRequested):
            self._requested(event.body)
        self._settle_acts()

    def _settle_acts(self) -> None:
        due = self._acts.due()
        if due:
            self._spawn(self._journal.emit(*due))

    def _requested(self, body: ev.OperatorRequested) -> None:
        if body.action == "stop session":
            self.stop(f"stopped by {body.author or 'the operator'}")
        elif self._runs is None:
            self.note(f"{body.action!r} was asked for before the session was ready; ignored.")
        elif body.action == "stop run":
            self._runs.stop(f"Stopped by {body.author or 'the operator'}.")
        elif body.action == "verify":
            self._spawn(self._verify(self._runs))
        else:
            self.note(f"A console asked for {body.action!r}, which this release does not know.")

    async def _verify(self, runs: Runs) -> None:
        await runs.verify("operator", force=True)

    def _spawn(self, work: object) -> None:
        task = asyncio.ensure_future(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: object) -> None:
        try:
            await work  # type: ignore[misc]
        except PilotageError as err:
            self.note(str(err))
        except Exception:
            self.note(traceback.format_exc())

    # --- ending ------------------------------------------------------------------------------

    def stop(self, reason: str) -> None:
        """End in good order: the run is stopped, the log says so."""
        if not self._stop.is_set():
            self._stop_reason = reason
            self._journal.giving_up = True  # a full disk must not keep us from ending
            if self._runs is not None:
                self._runs.stop(f"The recorder was asked to stop ({reason}).")
            self._stop.set()

    @contextlib.contextmanager
    def _signals(self):  # type: ignore[no-untyped-def]
        """SIGTERM and SIGINT end in good order; a hang-up of the line ends nothing."""
        loop = asyncio.get_running_loop()
        added = []
        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self.stop, f"signal {signal.Signals(number).name}")
                added.append(number)
            loop.add_signal_handler(signal.SIGHUP, lambda: None)
            added.append(signal.SIGHUP)
        except (ValueError, RuntimeError, NotImplementedError):
            pass  # not the main thread: whoever runs us there stops us by `stop`
        try:
            yield
        finally:
            for number in added:
                loop.remove_signal_handler(number)

    def note(self, text: str) -> None:
        """A line for ``recorder.log``, which is for troubles of the recorder itself."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S")
        self._notes = [*self._notes[-99:], f"{stamp} {text.rstrip()}\n"]
        try:
            with open(self._dir / RECORDER_LOG, "a", encoding="utf-8", errors="replace") as file:
                file.writelines(self._notes)
            self._notes = []
        except OSError:
            # A full disk may be what the trouble is, and our standard error is this very file:
            # saying so must not be what ends us. It is said with the next note.
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(self._notes[-1])
                sys.stderr.flush()


async def _first(stop: asyncio.Task[bool], work: object) -> None:
    """Wait for ``work`` or for the order to stop; errors of ``work`` are raised."""
    task = asyncio.ensure_future(work)  # type: ignore[call-overload]
    await asyncio.wait({stop, task}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
        return
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
