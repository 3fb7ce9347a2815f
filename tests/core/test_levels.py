"""The ladder: criteria, staleness, and how check states make a level."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import events as ev
from core.errors import PilotageError
from core.events import Event
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


def test_criteria_round_trip() -> None:
    default = Criteria()
    assert Criteria.from_json(default.to_json()) == default
    assert Criteria.from_json({"goal_points": 1}) == default  # 1 is 1.0


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


# Changes of what a result holds for, and whether every check rests on it.
Change = tuple[str, dict[str, dict[str, object]]]
criterion = st.sampled_from([f.name for f in dataclasses.fields(Criteria)])
whole = ("parity_steps", "warmup_steps")
changes = st.one_of(
    st.just(("tree", {})),
    st.just(("command", {"target": {"command": "python other.py"}})),
    st.integers(2, 256).map(lambda n: ("chips", {"target": {"chips": n}})),
    criterion.flatmap(
        lambda name: (st.integers(1, 64) if name in whole else st.floats(0, 10)).map(
            lambda value: (name, {"criteria": {name: value}})
        )
    ),
)
_MEASURED = measured_scene().events


def _failed() -> list[Event]:
    scene = Scene().references().snapshot("t1")
    scene.run("attempt", lines=("test accuracy: 0.5",))
    scene.run("parity", "target", lines=())
    store(scene, "t1")
    return scene.events


_FAILED = _failed()


def reconfigured(change: Change, waive: bool = False) -> Scene:
    """A measured session after a change; with ``waive``, one whose metric failed and was waived."""
    scene = Scene()
    scene.events = list(_FAILED if waive else _MEASURED)
    scene.tree = "t1"
    if waive:
        body = scene.state.checks["L3.metric"][-1].body
        scene.add(waived(body, "agreed", "ana"))
    what, tables = change
    config = {**scene.config}
    for name, table in tables.items():
        config[name] = {**config[name], **table}
    scene.add(ev.SessionOpened("s1", "a session", "/project", config))
    if what == "tree":
        scene.snapshot("t2")
    return scene


@given(changes, st.booleans())
def test_a_change_makes_exactly_the_affected_checks_stale(change: Change, waive: bool) -> None:
    what, _ = change
    scene = reconfigured(change, waive)
    state = scene.state
    now = {s.check.id: s for level in ladder(state).levels for s in level.checks}
    known = Criteria(parity_steps=4)
    same = what in known.to_json() and getattr(Criteria.of(state), what) == getattr(known, what)
    affected = set()
    for id, results in state.checks.items():
        body = results[-1].body
        uses = body.uses or {}
        if body.state in ("pass", "fail", "waived") and not same:
            affected |= {id} if what in ("tree", "command", "chips") or what in uses else set()
    assert {id for id, s in now.items() if s.state == "stale"} == affected
    for id in affected:
        word = {"tree": "code", "command": "command", "chips": "chip"}.get(what, what)
        assert word in now[id].why
    # What is not stale would come out the same if it were measured now.
    again = {r.check: r for r in measure(state, scene.tree)[0]}
    for id, status in now.items():
        if status.state not in ("stale", "not run") and status.result is not None:
            kept, new = status.result.body, again[id]
            assert (kept.state, kept.summary, kept.tolerance) == (
                new.state,
                new.summary,
                new.tolerance,
            )


def test_a_result_of_an_earlier_release_is_bound_to_all_criteria() -> None:
    scene = measured_scene()
    body = scene.state.checks["L3.metric"][-1].body
    early = {**body.payload(), "uses": None, "criteria": Criteria(parity_steps=4).earlier_hash()}
    scene.add(ev.CheckEvaluated(**early))
    assert ladder(scene.state).levels[3].state == "pass"
    config = {**scene.config, "criteria": {"parity_steps": 4, "compiles_per_step": 0.4}}
    scene.add(ev.SessionOpened("s1", "a session", "/project", config))
    for results in scene.state.checks.values():
        del results[:-1]
    state = scene.state
    for results in state.checks.values():
        del results[:-1]  # only what the earlier release said
    (metric,) = (s for s in ladder(state).levels[3].checks if s.check.id == "L3.metric")
    assert (metric.state, "criteria have changed" in metric.why) == ("stale", True)


def test_checks_of_a_later_release_take_no_level_away_from_an_old_session() -> None:
    scene = healthy()
    results, level = measure(scene.state, "t1")
    old = [r for r in results if r.check != "L1.forward"]
    for result in old:
        scene.add(result, tree="t1")
    checks = {k: v for k, v in level.checks.items() if k != "L1.forward"}
    scene.add(dataclasses.replace(level, checks=checks), tree="t1")
    now = ladder(scene.state)
    assert now.measured == 3
    (forward,) = (s for s in now.levels[1].checks if s.check.id == "L1.forward")
    assert forward.state == "not run" and "Verify again" in forward.why
    store(scene, "t1")
    assert ladder(scene.state).levels[1].checks != now.levels[1].checks


def test_a_new_reference_run_makes_what_was_held_against_the_old_one_stale() -> None:
    scene = measured_scene()
    scene.run("reference")
    now = ladder(scene.state)
    assert now.levels[3].state == "stale"
    assert "reference was run again" in now.levels[3].checks[0].why
    # The yardstick of the rest of L1 is the reference's parity run.
    assert {s.check.id for s in now.levels[1].checks if s.state == "stale"} == {"L1.global_batch"}


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
