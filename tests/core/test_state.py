"""The fold: order, prefixes, unknown kinds, and what each group of events leaves behind."""

from __future__ import annotations

import copy
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import events as ev
from core.events import Event, decode_body
from core.state import PHASES, SessionState, fold
from core.state_parts import MOMENT_KINDS, level_name
from tests.core.arbitrary import logs
from tests.core.scene import T0, Scene, healthy

# --- any session ------------------------------------------------------------------------------


@given(logs(), st.integers(0, 30))
def test_folding_a_prefix_and_going_on_equals_folding_it_all(log: list[Event], cut: int) -> None:
    state = fold(log[:cut])
    for event in log[cut:]:
        state.apply(event)
    assert repr(state) == repr(fold(log))  # repr: a NaN is not equal to itself


@given(logs())
def test_folding_changes_no_event(log: list[Event]) -> None:
    before = copy.deepcopy(log)
    fold(log)
    assert repr(log) == repr(before)


@given(logs())
def test_every_state_is_one_that_views_can_draw(log: list[Event]) -> None:
    state = SessionState()
    for event in log:
        state.apply(event)
        assert state.phase in PHASES
        assert state.seq == event.seq
        ask = state.pending_ask
        assert (state.phase != "waiting") or ask is not None or state.interrupted
    assert all(m.kind in MOMENT_KINDS for m in state.moments)
    assert [m.seq for m in state.moments] == sorted(m.seq for m in state.moments)
    for earlier, later in zip(state.phases, state.phases[1:], strict=False):
        assert earlier.end_ts_us == later.start_ts_us
    assert all(p.end_ts_us is None for p in state.phases[-1:])


@given(logs())
def test_a_log_that_went_through_storage_folds_the_same(log: list[Event]) -> None:
    import json

    def stored(event: Event) -> Event:
        text = ev.encode_payload(event.body)
        body, extra = decode_body(event.kind, event.v, json.loads(text))
        return dataclasses.replace(event, body=body, extra=extra)

    once = [stored(event) for event in log]
    assert repr(fold(once)) == repr(fold([stored(event) for event in once]))


# --- order and the unknown -------------------------------------------------------------------


def test_events_are_taken_in_order_only() -> None:
    scene = Scene()
    state = scene.state
    for event in scene.events:
        with pytest.raises(ValueError, match="in order"):
            state.apply(event)
    assert state.seq == len(scene.events)


def test_gaps_in_the_sequence_are_fine() -> None:
    event = Scene().events[0]
    assert fold([dataclasses.replace(event, seq=1), dataclasses.replace(event, seq=9)]).seq == 9


def test_an_unknown_kind_only_counts() -> None:
    scene = healthy()
    before = scene.state
    scene.add(ev.Unknown("hull.painted", 3, {"colour": "red"}))
    scene.add(ev.Unknown("hull.painted", 3, {"colour": "blue"}))
    after = scene.state
    assert after.unknown == {"hull.painted": 2}
    after.unknown, after.seq = {}, before.seq
    assert after == before


def test_an_event_about_something_that_is_not_there_changes_nothing_else() -> None:
    scene = Scene()
    before = scene.state
    for body in (
        ev.OperatorDecided("none", "allow"),
        ev.OperatorDelivered("none"),
        ev.AgentReturned("none"),
        ev.FindingResolved("none"),
        ev.FindingRecategorised("none", "C1"),
        ev.InterventionAmended("none", {"text": "x"}),
        ev.InterventionVoided("none"),
        ev.RunOutput("stdout", ["x"]),
        ev.RunEnded("exited", 0),
    ):
        scene.add(body, run_id="none")
    after = scene.state
    after.seq = before.seq
    assert after == before


# --- the agent and the operator --------------------------------------------------------------


def phases(scene: Scene) -> list[str]:
    return [p.phase for p in scene.state.phases]


def test_the_phases_of_an_agent() -> None:
    scene = Scene()
    assert scene.state.phase == "idle"
    scene.add(ev.AgentStarted("scripted"))
    scene.add(ev.AgentAsked("a1", "may I?", tool="shell"))
    scene.add(ev.OperatorDecided("a1", "allow"))
    scene.add(ev.OperatorPaused())
    scene.add(ev.OperatorResumed())
    scene.add(ev.AgentFinished())
    assert phases(scene) == ["working", "waiting", "working", "paused", "working", "finished"]
    assert not scene.state.over
    scene.add(ev.RecorderStopped())
    assert scene.state.over


def test_a_recorder_that_stops_or_dies_takes_its_agent_with_it() -> None:
    scene = Scene()
    scene.add(ev.AgentStarted("scripted"))
    scene.add(ev.RecorderStopped())
    assert scene.state.phase == "stopped"
    crashed = Scene()
    crashed.add(ev.AgentStarted("scripted"))
    crashed.add(ev.AgentCalled("k1", "run"))
    crashed.add(ev.AgentAsked("a1", "may I?"))
    run_id = crashed.start()
    crashed.add(ev.RecorderStarted(101))
    crashed.add(ev.RecorderRecovered([run_id], ["k1"], text="cut off at #1"))
    crashed.end(run_id, None, reason="cut off")
    state = crashed.state
    assert state.phase == "cut off"
    assert state.pending_ask is None
    assert state.runs[run_id].ended is not None and not state.runs[run_id].ok_exit
    call = next(e for e in state.transcript if e.kind == "called")
    assert (call.output, call.ok) == ("cut off", False)
    crashed.add(ev.AgentStarted("scripted"))
    assert crashed.state.phase == "working"


def test_what_was_cut_off_ended_with_its_recorder_not_when_the_next_one_looked() -> None:
    scene = Scene()
    scene.add(ev.RecorderStarted(1))
    scene.add(ev.AgentCalled("c1", "run"))
    scene.add(ev.RunStarted(1, "attempt", "python train.py"), run_id="r1")
    scene.now_us = 25_000_000
    scene.add(ev.RunOutput("stdout", ["alive"]), run_id="r1")
    scene.now_us = 3600_000_000  # an hour later somebody resumes
    scene.add(ev.RunEnded("cut off"), run_id="r1")
    scene.add(ev.RecorderRecovered(["r1"]))
    run = scene.state.runs["r1"]
    call = next(e for e in scene.state.transcript if e.kind == "called")
    assert run.ended_ts_us == call.ended_ts_us == T0 + 25_000_000
    assert run.seconds is None  # at least 25 s: how long exactly, nobody saw


def test_the_first_answer_counts() -> None:
    scene = Scene()
    scene.add(ev.AgentAsked("a1", "may I?"))
    scene.add(ev.OperatorDecided("a1", "deny", author="first"))
    scene.add(ev.OperatorDecided("a1", "allow", author="second"))
    decision = scene.state.asks["a1"].decision
    assert decision is not None and decision.author == "first"


def test_a_message_is_undelivered_until_it_is_delivered() -> None:
    scene = Scene()
    scene.add(ev.OperatorMessaged("m1", "use padding"))
    assert scene.state.messages["m1"].delivered_ts_us is None
    scene.wait(2).add(ev.OperatorDelivered("m1"))
    assert scene.state.messages["m1"].delivered_ts_us == T0 + 2_000_000


def test_a_call_shows_what_it_returned() -> None:
    scene = Scene()
    scene.add(ev.AgentCalled("k1", "read", {"path": "a.py"}))
    scene.add(ev.AgentReturned("k1", False, "no such file"))
    entry = next(e for e in scene.state.transcript if e.kind == "called")
    assert (entry.tool, entry.ok, entry.output) == ("read", False, "no such file")


def test_a_claim_belongs_to_the_tree_it_was_made_of() -> None:
    scene = Scene().snapshot("t1")
    scene.add(ev.AgentClaimed(3, "it works", "c1"))
    scene.snapshot("t2")
    assert scene.state.claims[0].tree == "t1"
    assert scene.state.claimed_level == 3


# --- runs, findings, levels ------------------------------------------------------------------


def test_runs_collect_their_output_and_records() -> None:
    state = healthy().state
    run = state.runs["r3"]
    assert run.started.purpose == "attempt"
    assert [line.text for line in run.lines] == ["test accuracy: 0.9500 (950/1000)"]
    assert len(run.steps) == 40
    assert (run.signal("finish") or {})["steps"] == 40
    assert run.signal("nothing") is None
    assert state.running is None
    assert [r.run_id for r in state.attempts] == ["r3"]
    assert [r.run_id for r in state.runs_for("parity", "target")] == ["r4"]


def test_a_finding_keeps_the_detectors_category_and_who_closed_it() -> None:
    scene = Scene()
    scene.add(ev.FindingOpened("f1", "recompile", "C4", "compiles"), run_id="r1")
    scene.add(ev.FindingRecategorised("f1", "C1", author="ana"))
    finding = scene.state.findings["f1"]
    assert (finding.category, finding.opened.category, finding.open) == ("C1", "C4", True)
    scene.add(ev.FindingResolved("f1", "run #2 does not show it"))
    assert not scene.state.findings["f1"].open
    assert not scene.state.findings["f1"].dismissed
    scene.add(ev.FindingResolved("f1", "harmless", author="ana"))
    assert scene.state.findings["f1"].dismissed


def test_the_timeline_shows_a_level_when_it_changes() -> None:
    scene = Scene()
    for level in (0, 0, 2, -1):
        scene.add(ev.LevelMeasured(level))
    labels = [m.label for m in scene.state.moments if m.kind == "level"]
    assert labels == ["L0", "L2", "none"]
    assert scene.state.measured_level == -1
    assert level_name(None) == "-"


# --- interventions ---------------------------------------------------------------------------


def test_an_interrupted_agent_waits_for_the_operator() -> None:
    scene = Scene()
    for body in (ev.RecorderStarted(1), ev.AgentStarted("scripted"), ev.OperatorInterrupted()):
        scene.add(body)
    assert scene.state.phase == "waiting" and scene.state.pending_ask is None
    scene.add(ev.AgentSaid("I wait."))  # words alone are no work
    assert scene.state.phase == "waiting"
    scene.add(ev.OperatorMessaged("m1", "go on"))
    scene.add(ev.OperatorDelivered("m1"))
    assert scene.state.phase == "working"
    scene.add(ev.OperatorInterrupted())
    scene.add(ev.OperatorResumed())
    assert scene.state.phase == "working"


def test_a_claim_is_refuted_once_by_a_failed_check_up_to_its_level() -> None:
    scene = Scene().snapshot("t1")
    scene.add(ev.AgentClaimed(3, "done", "c1"))
    scene.add(ev.LevelMeasured(0, "t1", {"L0.exit": "pass", "L1.clip": "not run"}))
    assert not scene.state.claims[0].refuted_seq  # not measured is not refuted
    scene.add(ev.LevelMeasured(0, "t1", {"L0.exit": "pass", "L4.time": "fail"}))
    assert not scene.state.claims[0].refuted_seq  # nothing was claimed of L4
    scene.add(ev.LevelMeasured(0, "t1", {"L0.exit": "pass", "L1.clip": "fail"}))
    scene.add(ev.LevelMeasured(0, "t1", {"L0.exit": "pass", "L1.clip": "fail"}))
    refuted = [m for m in scene.state.moments if m.kind == "refuted"]
    assert [(m.seq, m.ref) for m in refuted] == [(scene.state.claims[0].refuted_seq, "c1")]
    assert refuted[0].label == "claim L3 refuted: measured L0"


def test_amending_voiding_and_restoring_keep_the_history() -> None:
    scene = Scene()
    scene.add(ev.InterventionRecorded("i1", T0, at_tree="t1", at_level=1, text=""))
    scene.add(ev.InterventionAmended("i1", {"text": "told it to pad", "at_tree": "forged"}))
    scene.add(ev.InterventionVoided("i1", "a mistake", "ana"))
    item = scene.state.interventions["i1"]
    assert (item.text, item.voided, item.recorded.at_tree) == ("told it to pad", True, "t1")
    scene.add(ev.InterventionRestored("i1", "ana"))
    item = scene.state.interventions["i1"]
    assert not item.voided
    assert [h["what"] for h in item.history] == ["recorded", "amended", "voided", "restored"]
    moment = next(m for m in scene.state.moments if m.kind == "intervention")
    assert moment.label == "told it to pad"


def test_of_many_beats_the_last_of_each_process_stays() -> None:
    scene = Scene()
    run_id = scene.start("attempt")
    for n in range(50):
        beats = [{"k": "beat", "pid": pid, "steps": n} for pid in (7, 8)]
        scene.add(ev.RunSignalled([{"k": "hello", "pid": 7}, *beats] if n == 0 else beats), run_id)
    run = scene.state.runs[run_id]
    assert [r["k"] for r in run.signals] == ["hello", "beat", "beat"]
    assert {r["pid"]: r["steps"] for r in run.signals[1:]} == {7: 49, 8: 49}


def test_samples_are_thinned_and_notices_kept_once() -> None:
    scene = Scene()
    run_id = scene.start("attempt")
    for n in range(6000):
        scene.wait(10).add(ev.RunSampled(float(n)), run_id)
        scene.add(ev.HostSampled(load1=float(n), note="no TPU here"), run_id)
    scene.add(ev.RunSignalled([{"k": "unwatched", "text": "pid 7 is not watched"}]), run_id)
    run = scene.state.runs[run_id]
    assert len(run.usage) <= 4096 and len(run.telemetry) <= 4096
    values = [sample.rss_mb for _, sample in run.usage]
    assert values == sorted(values) and values[0] == 0 and values[-1] == 5999
    assert run.notices == ["no TPU here", "pid 7 is not watched"]


def test_output_that_is_not_in_the_log_is_counted() -> None:
    scene = Scene()
    run_id = scene.start("attempt")
    scene.output(run_id, "a")
    scene.add(ev.RunElided(10, 500, "limit", "10 lines are not stored here."), run_id)
    scene.add(ev.RunOutput("stdout", ["b"], "1"), run_id)
    run = scene.state.runs[run_id]
    assert len(run.lines) == 12 and run.lines[11].rank == "1"
    assert (run.elided_lines, run.elided_bytes) == (10, 500)
    assert [body.lines for _, body in run.elided] == [10]
