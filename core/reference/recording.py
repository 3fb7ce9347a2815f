"""Making a bundle: the untouched project run as a session would run it, without a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from core import events as ev
from core import records_view as view
from core.config import SessionConfig
from core.errors import PilotageError, SessionError
from core.events import Event
from core.levels import Criteria
from core.log_protocol import Log
from core.metric import higher_is_better, is_configured
from core.process import RecorderLock
from core.recorder.command import python_of
from core.recorder.journal import Journal
from core.recorder.plans import capture_dir
from core.recorder.runs import Runs
from core.recorder.stopping import runs_stoppable
from core.recorder.worktree import Worktree
from core.redact import redact_payload
from core.reference import facts
from core.reference.bundle import write_bundle
from core.reference.manifest import Manifest, RunFacts
from core.reference.marks import CUDA_ON_CPU, NO_TIME
from core.state import SessionState
from core.state_parts import Run
from core.text import clean
from core.verify.subject import TELLING
from core.version import __version__
from core.workspace import Workspace

Say = Callable[[str], None]

SEED = "PILOTAGE_SEED"
"""The variable that carries a seed to a command that does not name ``{seed}``."""

MAX_OUTPUT_MB = 16.0
"""MB of one run's output that a bundle holds whole; of more, what tells something."""

TELL_S = 10.0
"""Seconds between two words on how far a run is."""

LAST_LINES = 12


class RecordingFailed(PilotageError):
    """The reference itself does not run: nothing was written."""

    exit_code = 1


def with_options(
    config: SessionConfig,
    *,
    seeds: list[int] | None = None,
    cuda_on_cpu: bool = False,
    repeats: int | None = None,
    budget_mb: int | None = None,
) -> SessionConfig:
    """The configuration with what a command line asked for; raises ``ConfigError``.

    Seeds go where the command, or a value of its ``env``, says ``{seed}``; where none does, the
    variable :data:`SEED` carries them. A bundle that the file names is not used: this makes one.
    """
    reference = replace(config.reference, bundle="")
    if seeds:
        reference = replace(reference, seeds=seeds)
    if (seeds or len(reference.seeds) > 1) and not reference.names_seed:
        reference = replace(reference, env={**reference.env, SEED: "{seed}"})
    if cuda_on_cpu:
        reference = replace(reference, cuda_on_cpu=True)
    if repeats is not None:
        reference = replace(reference, repeats=repeats)
    parity = config.parity if budget_mb is None else replace(config.parity, budget_mb=budget_mb)
    output_mb = config.recorder.max_output_mb
    recorder = replace(
        config.recorder, max_output_mb=min(output_mb, MAX_OUTPUT_MB) if output_mb else MAX_OUTPUT_MB
    )
    changed = replace(config, reference=reference, parity=parity, recorder=recorder)
    return SessionConfig.from_json(changed.to_json())


async def record(
    log: Log, session_dir: Path, output: Path, say: Say, keep: bool = False
) -> tuple[Manifest, int]:
    """Run the reference of a new session in full, with each seed, and its parity runs; write the
    bundle ``output``. Returns its manifest and its size in bytes.

    ``say`` gets a line for whatever is worth telling. Unless ``keep``, what the session left in
    the project's repository is taken out again. Raises :class:`RecordingFailed` where a full run
    does not end with exit 0 (a parity run that does not is told, and the bundle has no tensors),
    :class:`PilotageError` where something else is wrong.
    """
    session_dir = session_dir.absolute()
    with RecorderLock(session_dir):
        journal = Journal(log, lambda text: say(f"note: {text}"))
        journal.catch_up()
        opened = journal.state.opened
        if opened is None:
            raise SessionError(f"{session_dir.name} has no session.opened event to go by.")
        config = SessionConfig.from_json(opened.config)
        await journal.emit(ev.RecorderStarted(os.getpid(), socket.gethostname(), __version__))
        journal.listeners.append(_Teller(journal.state, say).hear)
        files = await asyncio.to_thread(
            Workspace.create,
            Path(config.project.path),
            session_dir,
            copy=config.project.copy,
            outputs=config.project.outputs,
            link=config.project.link,
        )
        reason = "recorded"
        try:
            await journal.emit(files.baseline_snapshot(), tree=files.baseline)
            if files.note:
                say(files.note)
            await _make_runs(journal, config, files, session_dir, opened.session_id, say)
            manifest = await asyncio.to_thread(_manifest, journal.state, config, files, session_dir)
            for text in remarks(manifest):
                say(text)
            runs = _reference_runs(journal.state)
            return await asyncio.to_thread(
                write_bundle,
                output,
                manifest,
                runs,
                lambda run: (e for e in log.events(run.seq - 1) if e.run_id == run.run_id),
                lambda run: capture_dir(session_dir, run.run_id),
            )
        except BaseException as err:
            reason = str(err) or type(err).__name__
            raise
        finally:
            journal.giving_up = True
            with contextlib.suppress(PilotageError):
                await journal.emit(ev.RecorderStopped(reason))
            if not keep:
                await asyncio.to_thread(files.dispose)


async def _make_runs(
    journal: Journal,
    config: SessionConfig,
    files: Workspace,
    session_dir: Path,
    session_id: str,
    say: Say,
) -> None:
    runs = Runs(journal, config, Worktree(files, journal), session_dir, session_id, say)
    with runs_stoppable("recording", runs, journal):
        try:
            await runs.prepare()
        finally:
            runs.stop("The recording ended.")
            await runs.settled()
    made = _reference_runs(journal.state)
    for run in made:
        if run.ok_exit:
            continue
        told = run.ended is not None and run.ended.reason in TELLING
        if run.started.purpose == "reference" or not told:
            raise RecordingFailed(_failure(run))
        # The hours of the full runs are worth keeping without it.
        say(_failure(run))
    if not any(run.started.of == "reference" for run in made):
        raise RecordingFailed("The recording was stopped before every run was made.")


def _failure(run: Run) -> str:
    end = run.ended
    how = "has no end" if end is None else f"ended by {end.reason}"
    if end is not None and end.exit_code is not None:
        how = f"ended with exit {end.exit_code}"
    elif end is not None and end.signal:
        how = f"was ended by {end.signal}"
    why = f" {clean(end.text)}" if end is not None and end.text else ""
    what = (
        "The reference" if run.started.purpose == "reference" else "A parity run of the reference"
    )
    lost = "so there is nothing to compare with"
    if run.started.purpose != "reference":
        lost = "so the bundle has no tensors of it"
    text = f"{what} {how}, {lost}: {clean(run.started.command)}.{why}"
    count = len(run.lines)
    last = [clean(run.lines[i].text) for i in range(max(0, count - LAST_LINES), count)]
    return "\n".join([f"{text} Its last lines:", *(f"  {line}" for line in last)]) if last else text


class _Teller:
    """Says in lines how far the runs are."""

    def __init__(self, state: SessionState, say: Say) -> None:
        self._state = state
        self._say = say
        self._next = 0.0

    def hear(self, event: Event) -> None:
        """Look at one event."""
        run = self._state.runs.get(event.run_id)
        if run is None:
            return
        body, name = event.body, f"run {run.number}"
        if isinstance(body, ev.RunStarted):
            self._next = time.monotonic() + TELL_S
            self._say(f"{name}: {title(body.purpose, body.of, body.seed)}: {body.command}")
        elif isinstance(body, ev.RunStepped) and time.monotonic() >= self._next:
            self._next = time.monotonic() + TELL_S
            loss = view.number(body.records[-1].get("loss")) if body.records else None
            said = "" if loss is None else f", loss {loss:.4g}"
            self._say(f"{name}: step {view.steps_done(run) or len(run.steps)}{said}")
        elif isinstance(body, ev.RunEnded):
            code = f"exit {body.exit_code}" if body.exit_code is not None else body.reason
            self._say(f"{name}: {code} after {body.duration_s:.1f} s, {len(run.steps)} steps seen")
        elif isinstance(body, ev.RunResult):
            found = body.problem if body.value is None else f"{body.name} {body.value:g}"
            self._say(f"{name}: {found}")


def title(purpose: str, of: str, seed: int | None = None) -> str:
    """What a run of the reference is, in words."""
    names = {
        "": "in full",
        "reference": "parity run, float32",
        "reference own": "parity run in its own precision",
        "reference repeat": "parity run once more, against its own tensors",
    }
    what = names.get(of, clean(f"{purpose} of {of}"))
    return what if seed is None else f"{what}, seed {seed}"


# --- what the manifest says --------------------------------------------------------------------


def _reference_runs(state: SessionState) -> list[Run]:
    return [run for run in state.runs.values() if run.of_reference]


def _manifest(
    state: SessionState, config: SessionConfig, files: Workspace, session_dir: Path
) -> Manifest:
    made = _reference_runs(state)
    place = {run.run_id: n for n, run in enumerate(made, 1)}
    rows = [_run_facts(run, place, session_dir) for run in made]
    full = next(row for row in rows if row.purpose == "reference")
    reference, metric = config.reference, config.to_json()["metric"]
    seeds = [row.seed for row in rows if row.purpose == "reference" and row.seed is not None]
    python, packages = facts.packages(python_of(config))
    env = view.table(_redacted({"env": {**reference.env}}).get("env"))
    return Manifest(
        pilotage=__version__,
        made=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        project=facts.project_facts(
            config.title, files.project, files.reference_cwd, files.baseline, files.note
        ),
        command=str(_redacted({"c": reference.command}).get("c", "")),
        env={str(k): str(v) for k, v in env.items()},
        python=python,
        packages=packages,
        hardware=facts.hardware(),
        cuda_on_cpu=reference.cuda_on_cpu,
        time=NO_TIME if reference.cuda_on_cpu else "",
        device=CUDA_ON_CPU if reference.cuda_on_cpu else reference.device,
        k=Criteria.from_json(config.criteria).parity_steps,
        precision=_precision(made),
        seeds=seeds,
        seeding=("environment" if SEED in reference.env else "command") if seeds else "",
        minutes=full.seconds / 60,
        metric_name=str(metric["name"] or metric["key"] or "metric")
        if is_configured(metric)
        else "",
        metric=full.metric,
        higher_is_better=higher_is_better(metric),
        budget_mb=config.parity.budget_mb,
        runs=rows,
    )


def _run_facts(run: Run, place: dict[str, int], session_dir: Path) -> RunFacts:
    value = run.result.value if run.result is not None else None
    started = run.started
    capture = capture_dir(session_dir, run.run_id)
    indexes = capture.glob("rank*/index.json")
    ranks = sorted(
        int(number)
        for index in indexes
        if (number := index.parent.name.removeprefix("rank")).isdigit()
    )
    return RunFacts(
        n=place[run.run_id],
        purpose=started.purpose,
        of=started.of,
        seed=started.seed,
        seconds=run.seconds or 0.0,
        exit_code=run.ended.exit_code if run.ended else None,
        steps=view.steps_done(run) or 0,
        metric=value if value is not None and value - value == 0 else None,
        precision=started.precision,
        against=place.get(started.against, 0),
        ranks=ranks,
        why="" if ranks or started.of not in ("reference", "reference own") else _why(run),
    )


def _why(run: Run) -> str:
    end = run.ended
    if not run.ok_exit and end is not None:
        how = f"exit {end.exit_code}" if end.exit_code is not None else end.signal or end.reason
        return f"it ended with {how}, so parity can't be measured."
    if not run.steps:
        return (
            "the probe saw no optimizer step in it, so parity can't be measured. Look whether the "
            "training uses a torch optimizer and runs in the project's Python."
        )
    return "the probe wrote none, so parity can't be measured tensor by tensor."


def _precision(made: list[Run]) -> str:
    """What the program computes in of its own will: ``fp32``, or the half precision it asks for."""
    for run in made:
        record = view.record(run, "precision") if run.started.of == "reference" else None
        if record is not None:
            asked = [str(row.get("what")) for row in view.rows(record.get("requests"))]
            return clean(", ".join(dict.fromkeys(asked)))[:200] or "fp32"
    return ""


def _redacted(data: dict[str, Any]) -> dict[str, Any]:
    found = json.loads(redact_payload(json.dumps(data)))
    return found if isinstance(found, dict) else {}


def remarks(manifest: Manifest) -> list[str]:
    """What the one who recorded should know of the bundle, in sentences."""
    found = []
    if manifest.seeding == "environment":
        values = {run.metric for run in manifest.runs if run.purpose == "reference"}
        text = f"The seeds went into the environment as {SEED}, which the command has to use."
        if len(manifest.seeds) > 1 and len(values) == 1:
            text += " All runs had the same metric, as if it does not."
        found.append(f"{text} Or write {{seed}} into [reference] command.")
    found += [f"Run {run.n} has no tensors: {run.why}" for run in manifest.runs if run.why]
    if manifest.metric_name and manifest.metric is None:
        found.append(f"The run printed no {manifest.metric_name}, so L3 has nothing to compare.")
    if manifest.time:
        found.append(f"This bundle is no measure of time or dollars: {manifest.time}.")
    return found
