"""What the recorder itself watches, as findings: silence, and chips without work."""

from __future__ import annotations

import pytest

from core import events as ev
from core.findings import detect
from tests.core.scene import T0, Scene, step_records


def named(scene: Scene, run_id: str, name: str) -> ev.FindingOpened | None:
    return next((f for f in detect(scene.state, run_id) if f.detector == name), None)


def stalled_scene(**more: object) -> tuple[Scene, str]:
    scene = Scene().references().snapshot("t1")
    run_id = scene.start("attempt")
    scene.output(run_id, "begin")
    fields = {"seconds": 900.0, "limit_s": 900.0, "last_line": "begin", **more}
    scene.add(ev.RunStalled(**fields), run_id)  # type: ignore[arg-type]
    return scene, run_id


def test_a_stalled_run_is_a_silent_finding_with_its_last_signs() -> None:
    scene, run_id = stalled_scene(last_step=41, doing="data", at="train.py:7 in main")
    found = named(scene, run_id, "stall")
    assert found is not None and found.silent and found.category == "C4"
    assert found.evidence == [
        "no output and no step for 900 s",
        "last step: 41",
        "last line: begin",
        "last seen: data at train.py:7 in main",
    ]
    assert "DataLoader" in found.next_step and found.threshold == "900 s"


@pytest.mark.parametrize("sign", ["output", "step", "resumed", "ended"])
def test_a_sign_of_life_ends_it(sign: str) -> None:
    scene, run_id = stalled_scene()
    if sign == "output":
        scene.output(run_id, "on")
    elif sign == "step":
        scene.add(ev.RunStepped(step_records(1, xla=True)), run_id)
    elif sign == "resumed":
        scene.add(ev.RunResumed(901.0), run_id)
    else:
        scene.end(run_id)
    assert named(scene, run_id, "stall") is None
    assert scene.state.runs[run_id].stalled is None and scene.state.runs[run_id].stalls == 1


def test_a_long_compile_is_no_stall() -> None:
    scene, run_id = stalled_scene(doing="compile", alive=True)
    assert named(scene, run_id, "stall") is None
    assert scene.state.runs[run_id].stalled and scene.state.runs[run_id].stalls == 0


def chips_scene(duty: float, minutes: float, steps: bool = True) -> tuple[Scene, str]:
    scene = Scene(target={"kind": "tpu-v5e-1"}).references().snapshot("t1")
    run_id = scene.start("attempt")
    for i in range(int(minutes * 6)):
        if steps:
            record = step_records(1, xla=True)[0] | {"n": i + 1}
            record["wall"] = (T0 + scene.now_us) / 1e6
            scene.add(ev.RunStepped([record]), run_id)
        scene.add(ev.HostSampled(chips=[{"chip": 0, "duty_pct": duty}]), run_id)
        scene.wait(10)
    return scene, run_id


def test_idle_chips_while_steps_go_on() -> None:
    scene, run_id = chips_scene(0.2, 4)
    found = named(scene, run_id, "duty_cycle_zero")
    assert found is not None and found.category == "C2" and found.silent
    assert "0.20 %" in found.evidence[0]


@pytest.mark.parametrize(
    ("duty", "minutes", "steps"), [(60.0, 4, True), (0.2, 1, True), (0.2, 4, False)]
)
def test_busy_chips_short_pauses_and_no_steps_are_none(
    duty: float, minutes: float, steps: bool
) -> None:
    scene, run_id = chips_scene(duty, minutes, steps)
    assert named(scene, run_id, "duty_cycle_zero") is None


@pytest.mark.parametrize("cause", ["out of memory", "probably out of memory"])
def test_what_the_kernel_killed_is_one_loud_finding(cause: str) -> None:
    scene = Scene().references().snapshot("t1")
    run_id = scene.start("attempt")
    scene.output(run_id, "step 1", "step 2")
    text = "Killed by the kernel: the host is out of memory."
    scene.end(run_id, None, reason="signalled", signal="SIGKILL", cause=cause, text=text,
              max_rss_mb=15_000.0)  # fmt: skip
    (found,) = detect(scene.state, run_id)
    assert (found.detector, found.category, found.silent) == ("host_killed", "C6", False)
    assert found.evidence == [text, "largest resident memory: 15,000 MiB"]
    assert found.title.startswith("probably") == cause.startswith("probably")


def test_a_kill_by_somebody_is_not_the_kernels() -> None:
    scene = Scene().references().snapshot("t1")
    run_id = scene.start("attempt")
    scene.end(run_id, None, reason="signalled", signal="SIGKILL", cause="killed", text="Killed.")
    assert named(scene, run_id, "host_killed") is None
