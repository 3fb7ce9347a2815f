"""What became of an attempt."""

from __future__ import annotations

from core import events as ev
from core.attempts import Outcome, findings_of, outcome
from core.findings import detect
from core.verify.evaluate import evaluate, waived
from tests.core.scene import Scene, healthy, step_records


def of(scene: Scene, run_id: str) -> Outcome:
    state = scene.state
    return outcome(state, state.runs[run_id])


def store_checks(scene: Scene, tree: str) -> None:
    for result in evaluate(scene.state, tree):
        scene.add(result, tree=tree)


def test_running_stopped_and_cut_off_are_no_failures() -> None:
    scene = Scene().snapshot("t1")
    run_id = scene.start()
    assert of(scene, run_id).kind == "running"
    scene.end(run_id, None, reason="stopped")
    assert of(scene, run_id).kind == "stopped"
    cut = scene.end(scene.start(), None, reason="cut off")
    assert of(scene, cut).kind == "cut off"
    assert not of(scene, cut).failed


def test_an_error_is_loud_with_its_finding() -> None:
    scene = Scene().references().snapshot("t1")
    error = "RuntimeError: Found no NVIDIA driver on your system."
    run_id = scene.run("attempt", steps=[], signals=[], stderr=(error,), exit_code=1)
    assert of(scene, run_id) == Outcome("loud", "exit 1")
    scene.add(detect(scene.state, run_id)[0], run_id)
    assert of(scene, run_id) == Outcome("loud", "exit 1: C2 the code assumes CUDA")


def test_exit_0_with_a_finding_is_silent_even_after_a_later_run_resolved_it() -> None:
    scene = Scene().references().snapshot("t1")
    steps = step_records(40, xla=True)
    for step in steps:
        step["compiles"] = 1
    run_id = scene.run("attempt", steps=steps)
    scene.add(detect(scene.state, run_id)[0], run_id)
    silent = of(scene, run_id)
    assert silent.kind == "silent"
    assert silent.text == "exit 0, but C4 the graph is compiled again in every step"
    scene.add(ev.FindingResolved(f"{run_id}.recompile", "Run #4 does not show it."))
    assert of(scene, run_id) == silent
    assert silent.failed


def test_a_run_that_was_stopped_for_its_finding_is_a_silent_failure() -> None:
    scene = Scene().references().snapshot("t1")
    run_id = scene.start()
    scene.add(ev.FindingOpened(f"{run_id}.recompile", "recompile", "C4", "recompiles"), run_id)
    scene.end(run_id, None, reason="stopped")
    assert of(scene, run_id) == Outcome("silent", "stopped, with C4 recompiles")


def test_a_finding_the_operator_closed_does_not_count() -> None:
    scene = healthy()
    scene.add(ev.FindingOpened("r3.x", "x", "C4", "x", silent=True), "r3")
    assert of(scene, "r3").kind == "silent"
    scene.add(ev.FindingResolved("r3.x", "expected here", author="operator"))
    assert of(scene, "r3").kind == "unverified"


def test_exit_0_without_any_check_is_unverified_and_with_checks_passed() -> None:
    scene = healthy()
    assert of(scene, "r3").kind == "unverified"
    store_checks(scene, "t1")
    assert of(scene, "r3").kind == "passed"


def test_a_failed_check_of_its_parity_run_makes_it_silent() -> None:
    scene = Scene().references().snapshot("t1")
    run_id = scene.run("attempt")
    steps = step_records(4, xla=True, parity=True)
    for step in steps:
        step["signature"] = "B S C(1) M L Z"
    scene.run("parity", "target", steps=steps, lines=())
    store_checks(scene, "t1")
    result = of(scene, run_id)
    assert result.kind == "silent"
    assert "L1.events failed: clipping has moved behind the optimizer step" in result.text
    scene.snapshot("t2")
    later = scene.run("attempt")
    assert of(scene, later).kind == "unverified"  # another tree's parity says nothing of it


def test_being_slow_is_no_failure() -> None:
    scene = Scene().references().snapshot("t1")
    run_id = scene.run("attempt", seconds=600.0)
    scene.run("parity", "target", lines=())
    store_checks(scene, "t1")
    assert scene.state.checks["L4.time"][-1].body.state == "fail"
    assert of(scene, run_id).kind == "passed"


def test_a_waived_failure_no_longer_fails_the_attempt() -> None:
    scene = Scene().references().snapshot("t1")
    run_id = scene.run("attempt", lines=("test accuracy: 0.5",))
    store_checks(scene, "t1")
    assert of(scene, run_id).kind == "silent"
    scene.add(waived(scene.state.checks["L3.metric"][-1].body, "agreed", "operator"))
    assert of(scene, run_id).kind == "passed"


def test_a_stall_after_which_the_run_went_on_does_not_speak_for_it() -> None:
    scene = Scene().references().snapshot("t1")
    run_id = scene.start("attempt")
    stall = ev.FindingOpened(f"{run_id}.stall", "stall", "C4", "the run has stalled", silent=True)
    scene.add(stall, run_id)
    scene.add(ev.FindingResolved(stall.finding_id, "The run went on after 901 s."), run_id)
    scene.end(run_id)
    state = scene.state
    assert findings_of(state, state.runs[run_id]) == []
    assert outcome(state, state.runs[run_id]).kind == "unverified"


def test_what_stands_behind_the_end_is_in_the_words() -> None:
    scene = Scene().references().snapshot("t1")
    run_id = scene.start("attempt")
    scene.end(run_id, None, reason="signalled", signal="SIGKILL", cause="out of memory")
    state = scene.state
    assert outcome(state, state.runs[run_id]).text.startswith("SIGKILL (out of memory)")
