"""Real programs, each with one fault that raises no error: each opens its finding and no other.

They run on torch_xla's PJRT CPU under the real launcher and probe (``playing.py``).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.core.detectors.playing import ENV, Played, command, fold, play
from tests.core.scene import Scene

pytestmark = pytest.mark.xla


async def faulty(place: Path, program: str, *arguments: str, **more: object) -> Played:
    """Run a program that is to end well, as the silent ones do."""
    played = await play(place, program, *arguments, **more)  # type: ignore[arg-type]
    assert played.run.ok_exit, [line.text for line in played.run.lines]
    assert len(played.run.steps) >= 12
    return played


@pytest.mark.parametrize(
    ("program", "detector", "category", "evidence", "by_step"),
    [
        (
            "recompile",
            "recompile",
            "C4",
            ("9 in the 9 steps up to step 12", "compiled at recompile.py:20: 12 of the last 12"),
            7,
        ),
        (
            "host_sync",
            "transfer_per_step",
            "C4",
            (
                "13 in the 13 steps up to step 16",
                "read at host_sync.py:14 in report, in 13 of the 13 steps",
            ),
            14,
        ),
        (
            "no_step_boundary",
            "no_step_boundary",
            "C4",
            ("no torch_xla.sync() or mark_step() in these steps",),
            7,
        ),
        ("fallback", "aten_fallback", "C5", ("aten::median",), 1),
        ("model_on_cpu", "model_on_cpu", "C2", ("83 trained parameters on cpu",), 0),
        (
            "optimizer_before_move",
            "params_unchanged",
            "C2",
            ("Adam updates 4 of 4 tensors", "moving the model to xla:0"),
            0,
        ),
        ("nan_mask", "nan", "C5", ("step 6: loss nan", "in step 1, the last finite one"), 6),
        ("constant_loss", "loss_constant", "C2", ("loss 0 in each of 10 readings",), 40),
    ],
)
async def test_a_silent_fault_opens_its_finding_and_no_other(
    tmp_path: Path,
    program: str,
    detector: str,
    category: str,
    evidence: tuple[str, ...],
    by_step: int,
) -> None:
    played = await faulty(tmp_path, program)
    assert played.seen == {(detector, category)}
    assert played.at_step[detector] <= by_step
    # Output, XLA's reports and the probe's records come by three ways, in no fixed order.
    assert set(played.now) == {detector}
    finding = played.now[detector]
    assert finding.silent
    said = " / ".join(finding.evidence)
    assert [part for part in evidence if part not in said] == []
    assert finding.threshold
    assert finding.next_step.endswith(".")
    if program == "model_on_cpu":  # no less on a TPU: there, too, nothing was asked of the runtime
        assert played.again("tpu-v5e-1").seen == {(detector, category)}


async def test_a_runtime_that_took_the_host_is_a_finding_where_a_tpu_was_asked_for(
    tmp_path: Path,
) -> None:
    without = {name: value for name, value in ENV.items() if name != "PJRT_DEVICE"}
    played = await faulty(tmp_path, "defaulted_to_cpu", kind="tpu-v5e-1", env=without)
    assert played.seen == {("pjrt_cpu_fallback", "C1")}
    assert "Defaulting to PJRT_DEVICE=CPU" in played.opened["pjrt_cpu_fallback"].evidence[0]
    # On xla-cpu the host is what was asked for: the same run is a faithful one.
    assert played.again("xla-cpu").seen == set()


async def test_lost_ties_open_their_finding_with_a_reference_and_without(tmp_path: Path) -> None:
    alone = await faulty(tmp_path, "ties_lost")
    assert alone.seen == {("param_count_changed", "C3")}
    assert alone.at_step["param_count_changed"] == 0

    text = command("ties_lost")
    scene = Scene(target={"command": text}, reference={"command": command("ties_lost", "cpu")})
    await play(tmp_path, "ties_lost", "cpu", scene=scene, purpose="reference")
    scene.snapshot("t1")
    compared = fold(scene, scene.start(), alone.bodies)
    assert compared.seen == alone.seen
    evidence = compared.opened["param_count_changed"].evidence
    assert "256 parameters, the reference has 128" in evidence


async def test_a_faithful_migration_opens_none(tmp_path: Path) -> None:
    played = await faulty(tmp_path, "faithful")
    assert played.seen == set()
    # What an evaluation costs belongs to no step: neither to the one before it nor the one after.
    steps, finish = played.run.steps, played.run.signal("finish")
    assert all(step["dt"] > 0 for step in steps)
    assert [step["n"] for step in steps if step["transfers"]] == [10]  # its loss was printed
    assert finish is not None
    assert sum(step["executes"] for step in steps) < 2.5 * len(steps) < finish["executes"]
