"""A round of checks: identity, waivers, and the level that follows."""

from __future__ import annotations

import json

from core.criteria import hash_of
from core.events import encode_payload
from core.levels import CHECKS
from core.verify.evaluate import evaluate, measure, measured, waived
from tests.core.scene import COMMAND, Scene, healthy


def test_results_come_in_the_order_of_the_ladder_with_what_they_hold_for() -> None:
    scene = healthy()
    results = evaluate(scene.state, "t1")
    assert [r.check for r in results] == list(CHECKS)
    assert {(r.tree, r.command, r.chips) for r in results} == {("t1", COMMAND, 1)}
    uses = {r.check: r.uses for r in results}
    assert uses["L0.exit"] == {}
    assert uses["L3.metric"] == {"goal_points": 1.0}
    assert uses["L2.recompiles"] == {"compiles_per_step": 0.5, "warmup_steps": 3}
    assert "parity_steps" in uses["L1.trajectory"]  # type: ignore[operator]
    for result in results:
        assert result.criteria == hash_of(result.uses or {})


def test_evaluating_is_pure_and_its_results_can_be_stored() -> None:
    scene = healthy()
    first = evaluate(scene.state, "t1")
    assert evaluate(scene.state, "t1") == first
    for result in first:
        json.loads(encode_payload(result))


def test_a_healthy_session_on_the_host_measures_l3_and_says_what_it_is() -> None:
    results, level = measure(healthy().state, "t1")
    assert level.level == 3
    assert level.checks["L4.time"] == "pass"  # shown, and not counted
    assert level.tree == "t1"
    assert level.checks == {r.check: r.state for r in results}
    assert level.text == "L3 [xla-cpu, no TPU figure]"


def test_an_empty_session_measures_none() -> None:
    scene = Scene().snapshot("t1")
    level = measured(evaluate(scene.state, "t1"))
    assert level.level == -1
    assert level.text.startswith("none; L0.exit not run and 3 more: The target command")


def test_a_failure_stops_the_level_below_it_and_is_named() -> None:
    scene = Scene().references().snapshot("t1")
    scene.run("attempt", lines=("test accuracy: 0.5",))
    scene.run("parity", "target", lines=())
    level = measured(evaluate(scene.state, "t1"))
    assert level.level == 2
    assert "L3.metric fail: test accuracy 0.5, 45.00 points worse" in level.text


def test_a_waiver_holds_for_its_tree_until_the_check_passes() -> None:
    scene = Scene().references().snapshot("t1")
    scene.run("attempt", lines=("test accuracy: 0.5",))
    scene.run("parity", "target", lines=())
    failed = next(r for r in evaluate(scene.state, "t1") if r.check == "L3.metric")
    scene.add(waived(failed, "another split was agreed on", "the operator"))
    again = next(r for r in evaluate(scene.state, "t1") if r.check == "L3.metric")
    assert (again.state, again.author) == ("waived", "the operator")
    assert again.reason == "another split was agreed on"
    assert again.evidence["measured"] == "fail"
    assert measured(evaluate(scene.state, "t1")).level == 4

    scene.snapshot("t2").run("attempt", lines=("test accuracy: 0.5",))
    assert next(r for r in evaluate(scene.state, "t2") if r.check == "L3.metric").state == "fail"

    scene.run("attempt", lines=("test accuracy: 0.95",))
    passed = next(r for r in evaluate(scene.state, "t2") if r.check == "L3.metric")
    assert passed.state == "pass"


def test_a_level_that_is_wholly_waived_is_not_reached() -> None:
    results = evaluate(healthy().state, "t1")
    waivers = [waived(r, "agreed", "op") if r.level == 0 else r for r in results]
    assert measured(waivers).level == -1
