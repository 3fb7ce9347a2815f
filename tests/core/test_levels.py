"""The ladder: criteria, staleness, and how check states make a level."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import events as ev
from core.errors import PilotageError
from core.levels import CHECKS, STATES, Criteria, aggregate, highest, ladder, reached
from core.verify.evaluate import measure, waived
from tests.core.scene import Scene, healthy

ALL_PASS = dict.fromkeys(CHECKS, "pass")


def measured_scene(tree: str = "t1", **config: object) -> Scene:
    """A healthy session whose checks have been evaluated and stored."""
    scene = healthy(tree, **config)
    store(scene, tree)
    return scene


def store(scene: Scene, tree: str) -> None:
    results, level = measure(scene.state, tree)
    for result in results:
        scene.add(result, tree=tree)
    scene.add(level, tree=tree)


# --- criteria --------------------------------------------------------------------------------


def test_criteria_round_trip_and_their_hash_sees_every_change() -> None:
    default = Criteria()
    assert Criteria.from_json(default.to_json()) == default
    for field in dataclasses.fields(Criteria):
        changed = dataclasses.replace(default, **{field.name: getattr(default, field.name) * 2 + 1})
        assert changed.hash() != default.hash(), field.name
    assert Criteria.from_json({"goal_points": 1}).hash() == default.hash()  # 1 is 1.0


@pytest.mark.parametrize(
    "table",
    [{"gaol_points": 1}, {"goal_points": -1}, {"goal_points": "1"}, {"parity_steps": 2.5}],
)
def test_criteria_refuse_what_they_do_not_know(table: dict[str, object]) -> None:
    with pytest.raises(PilotageError, match=next(iter(table))):
        Criteria.from_json(table)
    assert Criteria.from_json(table, strict=False) == Criteria()


# --- how states make a level -----------------------------------------------------------------


def test_the_level_is_the_last_before_the_first_gap() -> None:
    assert highest(ALL_PASS) == 4
    assert highest({}) == -1
    assert highest({**ALL_PASS, "L2.device": "fail"}) == 1
    assert highest({**ALL_PASS, "L0.exit": "stale"}) == -1
    assert highest({**ALL_PASS, "L1.clip": "not run"}) == 0
    assert highest({**ALL_PASS, "L1.clip": "waived"}) == 4


def test_an_optional_check_holds_back_when_it_failed_not_when_it_could_not_run() -> None:
    assert highest({**ALL_PASS, "L4.cost": "not run"}) == 4
    assert highest({**ALL_PASS, "L4.cost": "fail"}) == 3
    assert highest({**ALL_PASS, "L3.samples": "stale"}) == 2
    assert highest({**ALL_PASS, "L4.time": "not run"}) == 3
    assert highest(ALL_PASS, top=3) == 3


def test_a_level_that_was_only_waived_is_not_reached() -> None:
    waived_l0 = {k: "waived" if k.startswith("L0") else "pass" for k in CHECKS}
    assert highest(waived_l0) == -1


states = st.lists(st.sampled_from(STATES), min_size=len(CHECKS), max_size=len(CHECKS))


@given(states)
def test_nothing_but_pass_and_waived_carries_a_level(values: list[str]) -> None:
    by_id = dict(zip(CHECKS, values, strict=True))
    level = highest(by_id)
    for check in CHECKS.values():
        if check.level <= level:
            allowed = {"pass", "waived"} | ({"not run"} if check.optional else set())
            assert by_id[check.id] in allowed


@given(states, st.sampled_from(list(CHECKS)), st.sampled_from(["fail", "stale", "not run"]))
def test_losing_a_pass_never_raises_the_level(values: list[str], id: str, worse: str) -> None:
    by_id = dict(zip(CHECKS, values, strict=True))
    assert highest({**by_id, id: worse}) <= highest({**by_id, id: "pass"})


@given(states)
def test_a_level_is_reached_exactly_when_its_shown_state_says_so(values: list[str]) -> None:
    pairs = [(c, v) for c, v in zip(CHECKS.values(), values, strict=True) if c.level == 1]
    shown = aggregate(pairs)
    assert shown in STATES
    if reached(pairs):
        assert shown in ("pass", "waived")
    if shown == "pass":
        assert reached(pairs)


# --- the ladder of a session -----------------------------------------------------------------


def test_before_anything_is_measured_every_level_is_not_run() -> None:
    now = ladder(Scene().snapshot("t1").state)
    assert [lv.state for lv in now.levels] == ["not run"] * 5
    assert (now.measured, now.claimed, now.refuted) == (-1, None, False)
    assert now.levels[0].checks[0].why == "Nothing has been measured yet."


def test_a_measured_session_shows_its_level_and_the_note_of_its_target() -> None:
    now = ladder(measured_scene().state)
    assert now.measured == 3
    assert [lv.state for lv in now.levels] == ["pass"] * 5
    assert now.note == "xla-cpu, no TPU figure"
    # What the host's own CPU takes is shown, and says nothing of whether a TPU is worth it.
    assert [lv.reached for lv in now.levels] == [True, True, True, True, False]
    assert now.text == "nothing claimed, measured L3 [xla-cpu, no TPU figure]"


def test_claim_and_measurement_are_two_columns() -> None:
    scene = Scene().references().snapshot("t1")
    scene.run("attempt", exit_code=1)
    scene.add(ev.AgentClaimed(3, "done", "c1"))
    before = ladder(scene.state)
    assert [lv.claimed for lv in before.levels] == [True, True, True, True, False]
    assert not before.refuted  # nothing has been measured, so nothing is refuted
    store(scene, "t1")
    after = ladder(scene.state)
    assert after.refuted
    assert after.text.startswith("claimed L3, measured none: L0.exit fail (ended with exit 1)")


def test_a_new_tree_makes_everything_stale_and_going_back_revives_it() -> None:
    scene = measured_scene().snapshot("t2222222222")
    now = ladder(scene.state)
    assert [lv.state for lv in now.levels] == ["stale"] * 5
    assert now.measured == -1
    assert "measured on tree t1, now t222222." in now.levels[0].checks[0].why
    scene.snapshot("t1")
    assert ladder(scene.state).measured == 3


def test_a_new_tree_on_which_checks_could_not_run_shows_stale_not_pass() -> None:
    scene = measured_scene().snapshot("t2")
    store(scene, "t2")
    now = ladder(scene.state)
    assert [lv.state for lv in now.levels] == ["not run"] * 5
    assert now.measured == -1


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"criteria": {"goal_points": 0.5}}, "criteria have changed"),
        ({"target": {"command": "python other.py"}}, "target command has changed"),
        ({"target": {"chips": 4}}, "Measured on 1 chip(s), asked for are 4"),
    ],
)
def test_other_criteria_command_or_chips_make_results_stale(
    config: dict[str, dict[str, object]], words: str
) -> None:
    scene = measured_scene()
    changed = {**scene.config}
    for name, table in config.items():
        changed[name] = {**changed[name], **table}
    scene.add(ev.SessionOpened("s1", "a session", "/project", changed))
    now = ladder(scene.state)
    assert {lv.state for lv in now.levels} == {"stale"}
    assert words in now.levels[0].checks[0].why


def test_a_new_reference_run_makes_what_was_held_against_the_old_one_stale() -> None:
    scene = measured_scene()
    scene.run("reference")
    now = ladder(scene.state)
    assert now.levels[3].state == "stale"
    assert "reference was run again" in now.levels[3].checks[0].why
    assert now.levels[1].state == "pass"  # its yardstick is the reference's parity run


def test_a_reference_run_that_failed_changes_nothing() -> None:
    scene = measured_scene()
    scene.run("reference", exit_code=1)
    assert ladder(scene.state).measured == 3


def test_a_waived_check_is_shown_as_waived_and_never_as_pass() -> None:
    scene = Scene().references().snapshot("t1")
    scene.run("attempt", lines=("test accuracy: 0.5",))
    scene.run("parity", "target", lines=())
    store(scene, "t1")
    failed = scene.state.checks["L3.metric"][-1].body
    scene.add(waived(failed, "agreed", "operator"))
    now = ladder(scene.state)
    assert now.levels[3].state == "waived"
    assert now.measured == 3


def test_a_state_of_a_later_release_is_not_a_pass() -> None:
    scene = measured_scene()
    body = scene.state.checks["L0.exit"][-1].body
    scene.add(ev.CheckEvaluated(**{**body.payload(), "state": "excellent"}))
    assert ladder(scene.state).levels[0].state == "not run"
