"""The operator's clock: the rule by example, and what must hold for every session."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import events as ev
from core.effort import GAPS_S, TAIL_S, Clock, Effort, active_intervals, effort, length
from core.state_parts import Signal
from tests.core.scene import T0, Scene


def beats(*at: float, console: str = "c1", scene: Scene | None = None) -> Scene:
    """A session with heartbeats at these seconds."""
    scene = scene or Scene()
    for second in at:
        scene.now_us = round(second * 1e6)
        scene.add(ev.OperatorHeartbeat(console))
    return scene


def at(scene: Scene, second: float, body: ev.Body) -> Scene:
    scene.now_us = round(second * 1e6)
    scene.add(body)
    return scene


def until(scene: Scene, second: float) -> Effort:
    """The effort of the session up to this second."""
    return effort(scene.state, T0 + round(second * 1e6))


# --- the rule by example ---------------------------------------------------------------------


def test_acts_up_to_the_gap_apart_are_joined_and_the_last_has_a_tail() -> None:
    result = until(beats(0, 60, 240), 3600)
    assert result.active_s == {60: 60 + 30 + 30, 180: 240 + 30, 900: 240 + 30}
    assert result.active == 270


def test_one_act_counts_for_its_tail_which_the_present_cuts() -> None:
    assert until(beats(10), 3600).active == TAIL_S
    assert until(beats(10), 20).active == 10


def test_attaching_is_an_act_and_detaching_cuts() -> None:
    scene = at(Scene(), 0, ev.OperatorAttached("c1"))
    at(scene, 100, ev.OperatorDetached("c1"))
    assert until(scene, 3600).active_s == {60: 30, 180: 100, 900: 100}


def test_resuming_is_an_act_of_the_console_that_resumed() -> None:
    scene = at(Scene(), 0, ev.OperatorAttached("c1"))
    at(scene, 10, ev.OperatorPaused())
    scene.now_us = 20_000_000
    scene.add(ev.OperatorResumed(), source="console:c1")
    assert until(scene, 25).active == 10 + 5
    scene.add(ev.OperatorPaused())
    scene.add(ev.OperatorResumed(), source="console:script")
    assert until(scene, 3600).active == 10  # nobody sits at a script


def test_a_pause_cuts_every_console_and_what_happens_in_it_does_not_count() -> None:
    scene = beats(0)
    at(scene, 5, ev.OperatorHeartbeat("c2"))
    at(scene, 10, ev.OperatorPaused())
    beats(20, 40, scene=scene)
    at(scene, 60, ev.OperatorResumed())
    beats(70, scene=scene)
    assert until(scene, 3600).active == 10 + 30


def test_two_consoles_count_once() -> None:
    scene = Scene()
    for second in range(0, 300, 50):
        beats(second, scene=scene)
        beats(second + 1, console="c2", scene=scene)
    assert until(scene, 3600).active == 251 + 30


def test_a_clock_that_is_set_in_mid_session_makes_no_time() -> None:
    scene = beats(0)
    scene.now_us += 60_000_000
    day = 86_400_000_000
    scene.add(ev.OperatorHeartbeat("c1"), ts_us=T0 + scene.now_us + day)
    assert length(active_intervals(scene.state.signals, clock_of(scene), 180)) == 60 + 30


def test_between_boots_only_the_wall_clock_is_left() -> None:
    scene = beats(0)
    scene.boot = "boot-2"
    scene.now_us = 100_000_000
    event = scene.add(ev.OperatorHeartbeat("c1"))
    assert event.boot_id == "boot-2"
    assert until(scene, 3600).active == 100 + 30


def clock_of(scene: Scene) -> Clock:
    state = scene.state
    return Clock((s.ts_us, s.mono_us, s.boot_id) for s in state.signals)


def test_imported_stamps_without_a_boot_are_on_the_wall_clock() -> None:
    clock = Clock([(5_000_000, 0, "")])
    assert clock.seconds(9_000_000, 0, "") == 9.0


def test_the_cells_and_the_time_the_agent_waited() -> None:
    scene = at(Scene(), 100, ev.AgentStarted("scripted"))
    beats(150, scene=scene)
    at(scene, 300, ev.AgentAsked("a1", "may I?", tool="shell"))
    beats(400, scene=scene)
    at(scene, 420, ev.OperatorDecided("a1", "allow"))
    at(scene, 1000, ev.AgentFinished())
    result = until(scene, 1200)
    assert result.span_s == 1200
    assert result.agent_s == 200 + 580
    assert result.blocked_s == 120
    cells = result.cells
    assert cells.working_active == 30 + 10
    assert cells.idle_active == 20
    assert cells.working_away == 780 - 40
    assert cells.sum == pytest.approx(1200)
    assert result.text == "1 min (1 / 1 / 5 at 60 / 180 / 900 s)"


def test_time_ends_with_the_session() -> None:
    scene = at(Scene(), 10, ev.AgentStarted("scripted"))
    at(scene, 100, ev.AgentFinished())
    assert until(scene, 500).span_s == 500
    at(scene, 110, ev.RecorderStopped())
    assert until(scene, 500).span_s == 110
    assert effort(scene.state) == until(scene, 500)


def test_the_time_between_a_recorders_death_and_its_recovery_is_not_the_agents() -> None:
    scene = at(Scene(), 100, ev.AgentStarted("scripted"))
    at(scene, 160, ev.AgentSaid("on it"))
    run_id = scene.start()
    scene.now_us = 500_000_000
    scene.end(run_id, None, 0, reason="cut off")
    at(scene, 501, ev.RecorderRecovered([run_id], text="cut off"))
    at(scene, 600, ev.AgentStarted("scripted"))
    result = until(scene, 650)
    assert result.agent_s == 60 + 50
    assert [p.phase for p in scene.state.phases] == ["working", "cut off", "working"]


def test_an_empty_session_has_no_time() -> None:
    result = effort(Scene().state)
    assert (result.span_s, result.active, result.cells.sum) == (0, 0, 0)


# --- what must hold for every session --------------------------------------------------------

ACTS: dict[str, ev.Body] = {
    "a-beat": ev.OperatorHeartbeat("a"),
    "b-beat": ev.OperatorHeartbeat("b"),
    "a-attach": ev.OperatorAttached("a"),
    "a-detach": ev.OperatorDetached("a"),
    "pause": ev.OperatorPaused(),
    "resume": ev.OperatorResumed(),
    "start": ev.AgentStarted("scripted"),
    "ask": ev.AgentAsked("q", "?"),
    "allow": ev.OperatorDecided("q", "allow"),
    "finish": ev.AgentFinished(),
    "stop": ev.RecorderStopped(),
    "recorder": ev.RecorderStarted(1),
}
sessions = st.lists(st.tuples(st.sampled_from(sorted(ACTS)), st.integers(0, 1200)), max_size=25)


def played(acts: list[tuple[str, int]], reboot_after: int | None = None) -> Scene:
    scene = Scene()
    for i, (name, seconds) in enumerate(acts):
        if i == reboot_after:
            scene.boot = "boot-2"
        scene.wait(seconds).add(ACTS[name])
    return scene


@given(sessions, st.integers(0, 5000), st.integers(0, 25))
def test_the_cells_sum_to_the_span_and_are_no_negative_time(
    acts: list[tuple[str, int]], later: int, reboot: int
) -> None:
    scene = played(acts, reboot)
    result = until(scene, scene.now_us / 1e6 + later)
    cells = result.cells
    parts = (cells.working_active, cells.working_away, cells.idle_active, cells.idle_away)
    assert min(parts) >= -1e-6
    assert cells.sum == pytest.approx(result.span_s, abs=1e-5)
    assert cells.working_active + cells.idle_active == pytest.approx(result.active, abs=1e-5)
    assert result.agent_s + result.blocked_s <= result.span_s + 1e-5


@given(sessions, st.integers(0, 5000))
def test_a_wider_gap_never_counts_less(acts: list[tuple[str, int]], later: int) -> None:
    scene = played(acts)
    result = until(scene, scene.now_us / 1e6 + later)
    totals = [result.active_s[gap] for gap in GAPS_S]
    assert totals == sorted(totals)
    assert totals[-1] <= result.span_s + 1e-6


@given(sessions, st.integers(0, 12_000), st.sampled_from(["a", "b"]))
def test_one_more_act_never_counts_less(
    acts: list[tuple[str, int]], second: int, console: str
) -> None:
    signals = played(acts).state.signals
    more = Signal(T0 + second * 10**6, 5_000_000 + second * 10**6, "boot-1", console, "beat")
    place = sum(s.ts_us <= more.ts_us for s in signals)
    clock = Clock([(T0, 5_000_000, "boot-1")])
    for gap in GAPS_S:
        before = length(active_intervals(signals, clock, gap))
        after = length(active_intervals([*signals[:place], more, *signals[place:]], clock, gap))
        assert after >= before - 1e-6


@given(sessions, st.integers(0, 25))
def test_more_of_the_same_session_never_lowers_what_was_counted(
    acts: list[tuple[str, int]], cut: int
) -> None:
    scene = played(acts)
    end = scene.now_us / 1e6
    early = played(acts[:cut])
    assert until(early, early.now_us / 1e6).active <= until(scene, end).active + 1e-6
