"""Verdicts on records of real runs: the demo project, its route and its faults, under the probe.

``record_demo.py`` made them on torch 2.9.1 and torch_xla 2.9.0 (PJRT on the CPU).
"""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from core.attempts import outcome
from core.findings import detect
from core.verify.evaluate import measure
from core.verify.ranks import WHOLE
from tests.core.scene import Scene

#: Checks of tensors, which these runs did not write yet.
TENSORS = {"L1.batches", "L1.forward", "L1.gradients", "L1.precision"}
#: Checks of what the runs read, save and load, which the probe of then did not record.
NEWER = {
    *("L1.frozen", "L1.dropout", "L1.data", "L1.resume"),
    *("L2.shards", "L3.evaluated", "L3.reduced", "L3.checkpoint"),
}
RECORDED = Path(__file__).parent / "recorded"


@cache
def recording(name: str) -> Any:
    """One recorded run: exit code, seconds, output, records."""
    return json.loads(gzip.decompress((RECORDED / f"{name}.json.gz").read_bytes()))


def play(scene: Scene, name: str, purpose: str, of: str = "", stopped: bool = False) -> str:
    """Put a recorded run into the session; ``stopped``: somebody stopped it."""
    run = recording(name)
    run_id = scene.start(purpose, of)
    steps = [r for r in run["records"] if r["k"] == "step"]
    scene.records(run_id, steps, [r for r in run["records"] if r["k"] != "step"])
    scene.output(run_id, *run["out"])
    scene.output(run_id, *run["err"], stream="stderr")
    reason = "stopped" if stopped else "exited"
    return scene.end(run_id, run["exit_code"], run["duration_s"], reason=reason)


def session(stage: str, *, stopped: bool = False, parity: bool = True) -> tuple[Scene, str]:
    """The session up to the verification of one stage, and its attempt."""
    scene = Scene(criteria={"parity_steps": 16})
    play(scene, "ref", "reference")
    play(scene, "ref.parity", "parity", "reference")
    scene.snapshot(stage)
    attempt = play(scene, stage, "attempt", stopped=stopped)
    if parity:
        play(scene, f"{stage}.parity", "parity", "target")
    for finding in (f for id in scene.state.runs for f in detect(scene.state, id)):
        scene.add(finding, finding.finding_id.split(".")[0])
    results, level = measure(scene.state, stage)
    for result in (*results, level):
        scene.add(result, tree=stage)
    return scene, attempt


def failed(scene: Scene) -> set[str]:
    checks = scene.state.checks
    return {id for id, results in checks.items() if results[-1].body.state == "fail"}


def test_the_faithful_migration_reaches_l3_without_a_finding() -> None:
    scene, attempt = session("faithful")
    state = scene.state
    assert state.findings == {}
    assert failed(scene) <= {"L4.time"}  # how long it took is the recording machine's affair
    assert state.measured_level == 0  # no tensors were compared, and that is no pass
    assert outcome(state, state.runs[attempt]).kind == "passed"
    curve = state.checks["L1.trajectory"][-1].body
    assert curve.evidence["largest relative error"] < 1e-5  # far inside the tolerance of 1e-3
    not_run = {id for id, r in state.checks.items() if r[-1].body.state == "not run"}
    assert not_run == TENSORS | NEWER | {
        "L1.reduce",
        "L2.replicas",
        "L4.cost",
    }  # one process: no ranks to compare


@pytest.mark.parametrize(
    ("stage", "seen_by", "first"),
    [
        ("clip-after-step", {"L1.events", "L1.clip", "L1.update"}, "moved behind"),
        ("schedule-per-epoch", {"L1.schedule", "L1.events", "L3.metric"}, "lr differs from step 2"),
        ("tie-lost", {"L1.ties", "L1.parameters", "L1.optimizer"}, "77980 parameters"),
        ("loss-over-padding", {"L1.first_loss", "L1.trajectory"}, "first loss differs"),
    ],
)
def test_each_silent_fault_stops_the_level_at_l0_by_the_checks_meant_for_it(
    stage: str, seen_by: set[str], first: str
) -> None:
    scene, attempt = session(stage)
    state = scene.state
    assert seen_by <= failed(scene)
    assert state.measured_level == 0
    assert first in state.measurements[-1].text
    assert state.checks["L1.start"][-1].body.state == "pass"
    result = outcome(state, state.runs[attempt])
    assert (result.kind, state.runs[attempt].ok_exit) == ("silent", True)


def test_a_lost_tie_opens_a_finding_too() -> None:
    state = session("tie-lost")[0].state
    assert [(f.category, f.opened.detector) for f in state.findings.values()] == [
        ("C3", "param_count_changed")
    ]


def test_the_untouched_project_fails_loudly_on_cuda() -> None:
    scene, attempt = session("loud", parity=False)
    state = scene.state
    assert state.measured_level == -1
    (finding,) = state.findings.values()
    assert (finding.category, finding.opened.silent) == ("C2", False)
    assert finding.opened.evidence[0].startswith("at /project/inkformer/train.py:")
    assert outcome(state, state.runs[attempt]).kind == "loud"


def test_the_reference_judged_by_itself_passes_l1() -> None:
    scene = Scene(criteria={"parity_steps": 16})
    play(scene, "ref", "reference")
    play(scene, "ref.parity", "parity", "reference")
    scene.snapshot("same")
    play(scene, "ref.parity", "parity", "target")
    results = [r for r in measure(scene.state, "same")[0] if r.level == 1]
    assert {r.state for r in results if r.check not in {*WHOLE, *TENSORS, *NEWER}} == {"pass"}


def test_an_optimizer_made_before_the_move_is_seen_before_it_has_learned_nothing_for_long() -> None:
    scene, attempt = session("optimizer-before-move", stopped=True)
    state = scene.state
    found = {f.opened.detector: f.category for f in state.findings.values()}
    assert found["params_unchanged"] == "C2"
    assert next(iter(found)) == "params_unchanged"  # nearer to the cause than slowness
    assert {"L1.update", "L1.ties"} <= failed(scene)
    evidence = state.findings[f"{attempt}.params_unchanged"].opened.evidence
    assert evidence[0].startswith("AdamW updates 32 of 32 tensors that the model does not use")
    assert outcome(state, state.runs[attempt]).kind == "silent"
    assert state.measured_level == -1  # nobody has seen it run to its end
