"""The runs of a session: the reference, the attempts, the verification; each fully on record."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import TypeVar

from core import events as ev
from core.agents.base import Verdict
from core.attempts import findings_of, outcome
from core.config import SessionConfig
from core.errors import PilotageError
from core.levels import QUESTIONS, Criteria
from core.recorder.budget import over_budget, too_many_attempts
from core.recorder.command import Command
from core.recorder.detecting import Detecting
from core.recorder.following import Follower
from core.recorder.items import end_and_drain
from core.recorder.jobs import Job, Jobs, RunStopped, until
from core.recorder.journal import Journal
from core.recorder.plans import Plan, asks_half, capture_dir, reference_plans, target_parity
from core.recorder.reserve import Reserve
from core.recorder.results import ResultWatch
from core.recorder.run_writer import RunWriter
from core.recorder.worktree import Worktree
from core.reference.marks import CUDA_ON_CPU
from core.runs.launcher import Launcher, RunSpec
from core.runs.telemetry import Telemetry
from core.state_parts import Finding, Run
from core.verify.evaluate import measure
from core.verify.subject import TELLING, Subject

T = TypeVar("T")


class Runs:
    """Makes the runs of one session, one at a time, and measures what they show."""

    def __init__(
        self,
        journal: Journal,
        config: SessionConfig,
        worktree: Worktree,
        session_dir: Path,
        session_id: str,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._journal = journal
        self._detecting = Detecting(journal, session_dir, note)
        self._config = config
        self._worktree = worktree
        self._dir = session_dir
        self._session_id = session_id
        self._criteria = Criteria.from_json(config.criteria)
        self._reserve = Reserve(session_dir)
        self._told: set[str] = set()  # sentences on the machine, each said once in a session
        self._lock = asyncio.Lock()
        self._ready = asyncio.Event()
        self._jobs = Jobs()
        self._tasks: set[asyncio.Task[Run]] = set()

    # --- what is asked for -----------------------------------------------------------------

    async def prepare(self) -> None:
        """Make the runs of the reference that are not on record (:mod:`core.recorder.plans`).

        Where ``[reference] bundle`` names a file they come from there, and none is made. Raises
        :class:`PilotageError` for one that can't be used.
        """
        state, files = self._journal.state, self._worktree.files
        with self._jobs.job("recorder") as job:
            try:
                if self._config.reference.bundle and not state.runs_for("reference"):
                    from core.reference.importing import import_bundle

                    async with self._lock:
                        path = Path(self._config.reference.bundle)
                        await import_bundle(self._journal, self._dir, path)
                for plan in reference_plans(state, self._config, files, self._dir):
                    await self._run(plan, job)
            except RunStopped:
                pass
            finally:
                self._ready.set()

    async def attempt(self, command: str = "", *, stop_on: str = "", by: str = "agent") -> Run:
        """Run the target command, or another one, on the worktree as it is, and evaluate.

        ``stop_on``: a category; the run is stopped when a finding of it opens. Raises
        :class:`RunStopped` when it was given up before it began.
        """
        with self._jobs.job(by) as job:
            await until(self._ready.wait(), job)
            await self._within_budget(by)
            async with self._files_kept(job):
                run = await self._attempt(command, stop_on, by, job)
        if run.ended is not None and run.ended.reason in TELLING:
            await self._measure(run.tree)
        return run

    async def verify(self, by: str, force: bool = False, upto: int = len(QUESTIONS)) -> Verdict:
        """Measure the worktree as it is: whatever runs that takes, then every check.

        With ``force`` runs that were made on this tree already are made again. ``upto``: the
        level that is asked for; at L0 no parity run is made.
        """
        state = self._journal.state
        with self._jobs.job(by) as job:
            await until(self._ready.wait(), job)
            async with self._files_kept(job):
                await self._worktree.snapshot("outside")
                tree = self._worktree.files.tree
                subject = Subject(state, tree, self._criteria)
                run = None if force else subject.target_run()
                if run is None:
                    await self._within_budget(by)
                    run = await self._attempt("", "", "verification", job)
                    job.check()
                if run.ok_exit and upto > 0 and (force or not subject.has_parity()):
                    await self._parity(tree, by, job)
        return await self._measure(tree)

    async def _parity(self, tree: str, by: str, job: Job) -> None:
        """The parity run of the target, and one in its own dtype where that is another."""
        for own in (False, True):
            plan = target_parity(
                self._journal.state,
                self._config,
                self._worktree.files,
                self._dir,
                tree,
                by,
                own=own,
            )
            run = await self._run(plan, job)
            job.check()
            if not run.ok_exit or not plan.against or not asks_half(run):
                return

    async def final(self) -> None:
        """Evaluate the tree that the agent leaves, unless that is on record as it stands."""
        state = self._journal.state
        await self._worktree.snapshot("outside")
        last = state.measurements[-1] if state.measurements else None
        ended = max((r.ended_seq or 0 for r in state.runs.values()), default=0)
        if last is None or last.tree != state.tree or last.seq < ended:
            await self._measure(self._worktree.files.tree)

    def stop(self, text: str, *, agents_only: bool = False) -> None:
        """Give up what is going on: the present run is stopped, waiting ones never begin."""
        self._jobs.stop(text, ("agent", "claim") if agents_only else None)

    async def settled(self) -> None:
        """Wait until every run that was begun has its end on record."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def findings_of(self, run_id: str) -> list[Finding]:
        """The findings of a run."""
        run = self._journal.state.runs.get(run_id)
        return findings_of(self._journal.state, run) if run else []

    def describe(self, run: Run) -> str:
        """The outcome of a run in one sentence."""
        end = run.ended
        took = f" after {end.duration_s:.1f} s" if end else ""
        return f"run #{run.number}: {outcome(self._journal.state, run).text}{took}"

    # --- inside ------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _files_kept(self, job: Job) -> AsyncIterator[None]:
        """Keep the agent from changing files for as long as the block lasts."""
        await until(self._worktree.in_use.acquire(), job)
        try:
            yield
        finally:
            self._worktree.in_use.release()

    async def _within_budget(self, by: str) -> None:
        """Raise where the agent wants an attempt more than its budget; that ends it."""
        spent = too_many_attempts(self._journal.state, self._config.budgets)
        if spent is not None and by in ("agent", "claim"):
            await self._journal.emit(spent)
            raise PilotageError(over_budget(spent))

    async def _attempt(self, command: str, stop_on: str, by: str, job: Job) -> Run:
        files = self._worktree.files
        await self._worktree.snapshot("outside")
        plan = Plan(
            "attempt",
            Command.target(self._config, files, command),
            files.cwd,
            files.tree,
            "light",
            by=by,
            stop_on=stop_on,
        )
        return await self._run(plan, job)

    async def _measure(self, tree: str) -> Verdict:
        results, level = measure(self._journal.state, tree)
        await self._journal.emit(*results, level, tree=tree)
        _, _, why = level.text.partition("; ")
        return Verdict(level.level, level.level, why)

    async def _run(self, plan: Plan, job: Job) -> Run:
        """Make one run. Its record is completed even where nobody waits for it any more."""
        task = asyncio.create_task(self._make(plan, job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def _make(self, plan: Plan, job: Job) -> Run:
        await until(self._lock.acquire(), job)
        try:
            state = self._journal.state
            number = len(state.runs) + 1
            run_id = f"r{number}"
            writer = RunWriter(self._journal, self._reserve, run_id, plan.tree)
            result = ResultWatch(self._config.metric, plan.purpose, plan.cwd)
            self._journal.runs_on += 1
            try:
                began = await self._start(plan, number, run_id, job, writer)
                if began is not None:
                    await began.follow()
            finally:
                self._journal.runs_on -= 1
            if began is None:
                await writer.finish()
                return state.runs[run_id]
            await began.finish()
            found = await result.read(state.runs[run_id])
            await self._journal.emit(*found, run_id=run_id, tree=plan.tree)
            if plan.cwd == self._worktree.files.cwd:
                await self._worktree.note_outputs()
            await self._detect(run_id, plan.tree)
            over = self._detecting.over(run_id)
            await self._journal.emit(*over, run_id=run_id, tree=plan.tree)
            return state.runs[run_id]
        finally:
            self._lock.release()

    async def _start(
        self, plan: Plan, number: int, run_id: str, job: Job, writer: RunWriter
    ) -> Follower | None:
        """Start the run and say so; None where it can't be, which is on record too."""
        config, command = self._config, plan.command
        parity = self._criteria.parity_steps if plan.probe == "parity" else 0
        spec = RunSpec(
            # With the session: the launcher finds a run's processes by it, over all sessions.
            run_id=f"{self._session_id}/{run_id}",
            command=command.words,
            cwd=plan.cwd,
            env=command.env,
            session_id=self._session_id,
            probe=plan.probe,
            probe_steps=parity or 1,
            probe_dir=self._dir / "runs" / run_id,
            time_limit_s=config.recorder.run_limit_s or None,
            hang_s=config.recorder.hang_s,
            xla_debug=config.recorder.xla_debug,
            probe_capture=capture_dir(self._dir, run_id) if plan.capture else None,
            probe_reference=capture_dir(self._dir, plan.against) if plan.against else None,
            probe_precision="fp32" if plan.precision == "fp32" else "own",
            probe_cuda="cpu" if config.reference.cuda_on_cpu and not plan.of_target else "",
            probe_budget_mb=config.parity.budget_mb,
        )
        handle, error = None, ""
        try:
            error = await self._reference_error(plan)
            if not error:
                handle = await Launcher().start(spec)
        except PilotageError as err:
            error = str(err)
        started = ev.RunStarted(
            number=number,
            purpose=plan.purpose,
            command=command.text,
            target=config.target.kind if plan.of_target else _reference_device(config),
            chips=config.target.chips if plan.of_target else 0,
            of=plan.of,
            probe_mode=plan.probe,
            parity_steps=parity,
            cwd=str(plan.cwd),
            python=command.python,
            env=dict(handle.stated_env) if handle else dict(command.env),
            pid=handle.pid if handle else 0,
            by=plan.by,
            seed=plan.seed,
            precision=plan.precision,
            against=plan.against,
        )
        try:
            writer.write(started)
        except PilotageError:  # the log is lost: nobody would know of the run
            if handle is not None:
                await end_and_drain(handle)
            raise
        if handle is None:
            writer.write(ev.RunEnded("not started", text=error))
            return None

        def look() -> None:
            writer.write(*self._detecting.new(run_id))
            self._stop_on(plan, run_id, job)

        return Follower(
            handle,
            writer,
            config,
            job,
            look=look,
            stalled=lambda: self._open_finding(run_id, "stall"),
            telemetry=Telemetry(
                plan.cwd, command.python, env=_without_path(command.env), told=self._told
            ),
        )

    async def _reference_error(self, plan: Plan) -> str:
        """Why the reference can't be believed: somebody changed its checkout."""
        files = self._worktree.files
        if plan.cwd != files.reference_cwd:
            return ""
        # The result file is the run's to write, even where the project keeps one.
        own = files.reference_cwd / self._config.metric.file if self._config.metric.file else None
        changes = await asyncio.to_thread(files.reference_changes)
        changed = [path for path in changes if files.reference_root / path != own]
        if not changed:
            return ""
        return (
            f"The reference checkout {files.reference_root} is not the untouched project any more: "
            f"{', '.join(changed[:5])} differ{'s' * (len(changed) == 1)}. Start a new session."
        )

    async def _detect(self, run_id: str, tree: str) -> None:
        await self._journal.emit(*self._detecting.new(run_id), run_id=run_id, tree=tree)

    def _open_finding(self, run_id: str, detector: str) -> str:
        """The id of a run's finding of one detector, while it is open; else ``""``."""
        found = self._journal.state.findings.get(f"{run_id}.{detector}")
        return found.opened.finding_id if found is not None and found.open else ""

    def _stop_on(self, plan: Plan, run_id: str, job: Job) -> None:
        if not plan.stop_on:
            return
        found = [f for f in self.findings_of(run_id) if f.category == plan.stop_on]
        if found:
            job.stop(f"Stopped by the {plan.by} on {found[0].category}: {found[0].opened.title}.")


def _reference_device(config: SessionConfig) -> str:
    return CUDA_ON_CPU if config.reference.cuda_on_cpu else config.reference.device


def _without_path(env: Mapping[str, str]) -> dict[str, str]:
    """A run's environment for a helper of ours: nothing of the project's is imported there."""
    return {name: value for name, value in env.items() if name != "PYTHONPATH"}
