"""L0: exit, steps, result, errors."""

from __future__ import annotations

from core.events import CheckEvaluated
from core.verify.evaluate import evaluate
from tests.core.scene import Scene, healthy, step_records


def check(scene: Scene, id: str, tree: str = "t1") -> CheckEvaluated:
    """The result of one check."""
    return next(r for r in evaluate(scene.state, tree) if r.check == id)


def with_attempt(**more: object) -> Scene:
    scene = Scene().references().snapshot("t1")
    scene.run("attempt", **more)  # type: ignore[arg-type]
    return scene


def test_a_healthy_run_passes_every_check_of_l0() -> None:
    results = [r for r in evaluate(healthy().state, "t1") if r.level == 0]
    assert {r.check: r.state for r in results} == {
        "L0.exit": "pass",
        "L0.steps": "pass",
        "L0.result": "pass",
        "L0.errors": "pass",
    }
    assert results[0].runs == ["r3"]
    assert results[0].reference_runs == ["r1"]


def test_without_a_run_on_the_tree_nothing_passes() -> None:
    scene = healthy().snapshot("t2")
    results = evaluate(scene.state, "t2")
    assert {r.state for r in results} == {"not run"}
    assert "has not been run to an end on this tree" in results[0].reason
    assert all(r.reason for r in results)


def test_a_non_zero_exit_and_a_signal_fail() -> None:
    assert check(with_attempt(exit_code=1), "L0.exit").actual == "exit 1"
    killed = with_attempt(exit_code=None, reason="signalled", signal="SIGKILL")
    result = check(killed, "L0.exit")
    assert (result.state, result.actual) == ("fail", "SIGKILL")


def test_why_a_run_was_ended_or_never_began_is_said() -> None:
    limit = with_attempt(
        exit_code=None, reason="time limit", signal="SIGTERM", text="Ended by the limit of 3 s."
    )
    assert check(limit, "L0.exit").actual == "SIGTERM: Ended by the limit of 3 s."
    never = with_attempt(exit_code=None, reason="not started", text="There is no frobnicate.")
    result = check(never, "L0.exit")
    assert result.summary == "it could not be started"
    assert result.actual == "not started: There is no frobnicate."


def test_a_run_that_was_stopped_says_nothing_about_the_code() -> None:
    assert check(with_attempt(exit_code=None, reason="stopped"), "L0.exit").state == "not run"
    assert check(with_attempt(exit_code=None, reason="cut off"), "L0.exit").state == "not run"


def test_the_latest_telling_attempt_is_the_one_judged() -> None:
    scene = with_attempt(exit_code=1)
    scene.run("attempt")
    scene.run("attempt", exit_code=None, reason="stopped")
    result = check(scene, "L0.exit")
    assert (result.state, result.runs) == ("pass", ["r4"])


def test_an_attempt_with_another_command_is_not_judged() -> None:
    scene = Scene().references().snapshot("t1")
    run_id = scene.start(command="python -m inkformer.train --device cpu")
    scene.end(run_id)
    assert check(scene, "L0.exit").state == "not run"


def test_the_projects_own_python_is_the_same_command() -> None:
    scene = Scene().references().snapshot("t1")
    run_id = scene.start(
        command="/venv/bin/python -m inkformer.train --device xla", python="/venv/bin/python"
    )
    scene.end(run_id)
    assert check(scene, "L0.exit").state == "pass"


def test_fewer_steps_than_the_reference_fail() -> None:
    result = check(with_attempt(steps=step_records(39, xla=True)), "L0.steps")
    assert (result.state, result.expected, result.actual) == ("fail", "40 steps", "39 steps")


def test_unknown_steps_are_not_run() -> None:
    result = check(with_attempt(steps=[], signals=[]), "L0.steps")
    assert result.state == "not run"
    no_probe = Scene()
    no_probe.run("reference", steps=[], signals=[])
    no_probe.snapshot("t1").run("attempt")
    assert check(no_probe, "L0.steps").state == "not run"


def test_a_run_that_prints_no_metric_fails_the_result() -> None:
    result = check(with_attempt(lines=("done",)), "L0.result")
    assert result.state == "fail"
    assert "test accuracy" in result.expected
    assert "printed no test accuracy" in result.actual


def test_a_pattern_that_is_none_is_not_run_with_its_error() -> None:
    scene = Scene(metric={"pattern": "accuracy: ("}).references().snapshot("t1")
    scene.run("attempt")
    result = check(scene, "L0.result")
    assert result.state == "not run"
    assert "no regular expression" in result.reason


def test_a_swallowed_traceback_fails_though_the_exit_is_0() -> None:
    trace = ("Traceback (most recent call last):", '  File "train.py", line 3', "ValueError: x")
    result = check(with_attempt(stderr=trace), "L0.errors")
    assert result.state == "fail"
    assert "exit 0" in result.summary
    assert result.evidence["lines"][-1] == "ValueError: x"
