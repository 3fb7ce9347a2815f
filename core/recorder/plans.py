"""Which runs a session needs: of the reference, and of the migrated code beside it.

The reference runs in full once (with several seeds: once with each), and once more as a *parity
run*, in float32 whatever it asks for, that writes its tensors. Where it does ask for half
precision, another parity run computes as it asks. Repeats of the parity run against its own
tensors show how far the reference is from itself. The target has the same runs, fed from these.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from core import records_view as view
from core.body import JSON
from core.config import SessionConfig
from core.recorder.command import Command
from core.runs.probe_setup import Mode
from core.state import SessionState
from core.state_parts import Run
from core.verify.subject import TELLING
from core.workspace import Workspace

OWN = " own"
"""Ends ``of`` of a parity run that computes in the dtype the program asks for."""

REPEAT = "reference repeat"
RENAME = "PILOTAGE_PROBE_RENAME"
"""Carries ``[parity] rename`` to the probe: the target's parameter name by the reference's."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One run to be made. ``against``: the run of the reference whose tensors it is fed."""

    purpose: str
    command: Command
    cwd: Path
    tree: str
    probe: Mode
    of: str = ""
    by: str = "recorder"
    stop_on: str = ""
    capture: bool = False
    against: str = ""
    precision: str = ""
    seed: int | None = None

    @property
    def of_target(self) -> bool:
        """Whether it runs the migrated code."""
        return self.purpose == "attempt" or self.of.startswith("target")


def capture_dir(session_dir: Path, run_id: str) -> Path:
    """Where a run writes its tensors."""
    return session_dir / "runs" / run_id / "capture"


def captured(session_dir: Path, run: Run | None) -> bool:
    """Whether the tensors of a run are there: an index is written last, so it is complete."""
    return run is not None and any(capture_dir(session_dir, run.run_id).glob("rank*/index.json"))


def asks_half(run: Run) -> bool:
    """Whether the program of a parity run asked for half precision (its ``precision`` record)."""
    record = view.record(run, "precision") or {}
    return bool(view.half_requests(record) or view.table(record.get("env")))


def reference_plans(
    state: SessionState, config: SessionConfig, files: Workspace, session_dir: Path
) -> Iterator[Plan]:
    """The runs of the reference that are not on record, each asked for after the one before.

    None where the reference was imported, and none after one that failed: a reference that fails
    has no steps to compare with.
    """
    if any(run.started.bundle for run in state.runs_for("reference")):
        return
    seeds: list[int | None] = [*config.reference.seeds] if takes_seed(config) else [None]

    def plan(purpose: str, of: str = "", seed: int | None = None) -> Plan:
        command = Command.reference(config, files, seed)
        probe: Mode = "parity" if purpose == "parity" else "light"
        return Plan(purpose, command, files.reference_cwd, files.baseline, probe, of, seed=seed)

    for seed in seeds:
        if not _made(state, "reference", "", seed):
            yield plan("reference", seed=seed)
        if not all(run.ok_exit for run in _made(state, "reference", "", seed)[-1:]):
            return
    first = seeds[0]
    if not _made(state, "parity", "reference"):
        yield replace(plan("parity", "reference", first), capture=True, precision="fp32")
    main = _made(state, "parity", "reference")[-1:]
    if not main or not main[0].ok_exit:
        return
    if asks_half(main[0]) and not _made(state, "parity", "reference" + OWN):
        yield replace(plan("parity", "reference" + OWN, first), capture=True, precision="own")
    if not captured(session_dir, main[0]):
        return
    for _ in range(config.reference.repeats - len(_made(state, "parity", REPEAT))):
        yield replace(plan("parity", REPEAT, first), against=main[0].run_id, precision="fp32")


def takes_seed(config: SessionConfig) -> bool:
    """Whether the reference is run once with each seed: it says where the seed goes."""
    return bool(config.reference.seeds) and config.reference.names_seed


def _made(state: SessionState, purpose: str, of: str, seed: int | None = None) -> list[Run]:
    """The runs of one kind on record whose end says something of the code."""
    return [
        run
        for run in state.runs_for(purpose, of)
        if run.ended is not None
        and run.ended.reason in TELLING
        and (seed is None or run.started.seed in (None, seed))
    ]


def target_parity(
    state: SessionState,
    config: SessionConfig,
    files: Workspace,
    session_dir: Path,
    tree: str,
    by: str,
    *,
    own: bool = False,
) -> Plan:
    """A parity run of the migrated code, fed from the reference's latest good one.

    ``own``: computing in the dtype that the code asks for, against the run of the reference that
    did the same where there is one. Without tensors of the reference (a session of an earlier
    release) it is not fed, and computes as it likes.
    """
    command = Command.target(config, files)
    if config.parity.rename:
        env: JSON = {**command.env, RENAME: json.dumps(config.parity.rename, sort_keys=True)}
        command = replace(command, env=env)
    wanted = ["reference" + OWN, "reference"] if own else ["reference"]
    found = next(
        (
            run
            for of in wanted
            for run in reversed(state.runs_for("parity", of))
            if run.ok_exit and captured(session_dir, run)
        ),
        None,
    )
    plan = Plan("parity", command, files.cwd, tree, "parity", "target", by)
    if found is None:
        return plan
    return replace(
        plan,
        of="target" + (OWN if own else ""),
        against=found.run_id,
        precision="own" if own else "fp32",
    )
