"""Verdicts on records of real runs of four processes: the fault project ``ddp4`` under the probe.

``record_ranks.py`` made them on torch 2.9.1 and torch_xla 2.9.0 (gloo, and SPMD over four virtual
CPU devices).
"""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from core.events import CheckEvaluated
from core.verify.evaluate import evaluate
from tests.core.scene import Scene

RECORDED = Path(__file__).parent / "recorded_ranks"
SETTINGS: dict[str, Any] = {
    "target": {"chips": 4},
    "metric": {"pattern": "test accuracy: ([0-9.]+)"},
    "criteria": {"parity_steps": 18, "transfers_per_step": 1.5},
}


@cache
def recording(name: str) -> Any:
    """One recorded run: exit code, seconds, output, records."""
    return json.loads(gzip.decompress((RECORDED / f"{name}.json.gz").read_bytes()))


def play(scene: Scene, name: str, purpose: str, of: str = "", **more: Any) -> str:
    """Put a recorded run into the session."""
    run = recording(name)
    run_id = scene.start(purpose, of, **more)
    steps = [r for r in run["records"] if r["k"] == "step"]
    scene.records(run_id, steps, [r for r in run["records"] if r["k"] != "step"])
    scene.output(run_id, *run["out"])
    return scene.end(run_id, run["exit_code"], run["duration_s"])


@cache
def verified(variant: str) -> dict[str, CheckEvaluated]:
    """Every check of one variant, by id."""
    scene = Scene(**SETTINGS)
    play(scene, "ref", "reference")
    against = play(scene, "ref.parity", "parity", "reference")
    scene.snapshot(variant)
    play(scene, variant, "attempt")
    play(scene, f"{variant}.parity", "parity", "target", against=against)
    return {r.check: r for r in evaluate(scene.state, variant)}


def failing(variant: str) -> set[str]:
    return {id for id, r in verified(variant).items() if r.state == "fail" and r.level < 4}


@pytest.mark.parametrize("variant", ["processes", "spmd"])
def test_faithful_migrations_to_four_devices_fail_nothing(variant: str) -> None:
    assert failing(variant) == set()
    found = verified(variant)
    judged = {id for id, r in found.items() if r.level == 1 and r.state == "pass"}
    assert {
        "L1.start", "L1.batches", "L1.forward", "L1.gradients", "L1.grad_norm", "L1.clip",
        "L1.update", "L1.trajectory", "L1.events", "L1.schedule", "L1.global_batch",
    } <= judged  # fmt: skip
    assert found["L2.chips"].summary == "4 of 4 chip(s)"
    assert found["L3.samples"].state == found["L3.budget"].state == "pass"
    if variant == "processes":
        assert found["L1.forward"].evidence["ranks"] == 4
        assert found["L1.reduce"].state == found["L2.replicas"].state == "pass"


def test_a_clip_that_was_changed_is_refuted_at_l1_with_its_coefficient_although_all_looks_well() -> (
    None
):
    """Exit 0, as many steps, a metric as good as the reference's: only the clip gives it away."""
    found = verified("clip-times-world")
    assert {r.state for r in found.values() if r.level == 0} == {"pass"}
    assert found["L3.metric"].state == "pass"
    clip = found["L1.clip"]
    assert clip.state == "fail"
    assert "L1.clip" in failing("clip-times-world")
    assert "clip coefficient 1 instead of 0.895" in clip.summary
    assert "in step 1" in clip.summary
    assert "clip_grad_norm_(2)" in clip.actual


def test_a_clip_on_each_process_before_the_reduce_is_refuted_at_l1() -> None:
    found = verified("clip-before-reduce")
    assert {r.state for r in found.values() if r.level == 0} == {"pass"}
    assert "before they are averaged" in found["L1.events"].summary
    assert found["L1.reduce"].state == "fail"
    assert {"L1.events", "L1.clip", "L1.reduce"} <= failing("clip-before-reduce")
