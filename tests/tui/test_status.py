"""The agent's state in words: every phase, and who has to act."""

from __future__ import annotations

from typing import Any

import pytest

from core import events as ev
from core.events import Event
from core.state import SessionState
from core.verify.evaluate import measure
from tests.core.scene import healthy
from tests.tui.session_events import Story, demo
from tui.status import STALLED_S, STARTING_S, agent_status, ask_subject


def folded(story: Story) -> SessionState:
    """The state of a story, without a file."""
    state = SessionState()
    for seq, new in enumerate(story.new, 1):
        state.apply(
            Event(seq, new.event_id, new.ts_us or 0, new.ts_us or 0, "boot", new.source, new.body,
                  new.run_id, new.tree)
        )  # fmt: skip
    return state


def status_of(story: Story, after_s: float = 1, recorder: bool | None = True) -> Any:
    """The status of a story some seconds after its last event."""
    state = folded(story)
    return agent_status(state, state.last_ts_us + int(after_s * 1e6), recorder, "ink-1130-a7f3")


def test_waiting_says_for_what_and_how_long() -> None:
    story = demo("waiting")
    status = status_of(story, 42)
    assert status.word == "WAITING ON YOU"
    assert status.detail == "wants to run pip install 'torch_xla[tpu]'"
    assert status.elapsed(story.now_us + 42_000_000) == "0:42"


def test_an_interrupted_agent_says_what_it_waits_for() -> None:
    story = demo("refuted").operator(ev.OperatorInterrupted())
    status = status_of(story, 5)
    assert status.word == "WAITING ON YOU"
    assert status.detail == "interrupted: m sends a message, p goes on"
    assert status.elapsed(story.now_us + 5_000_000) == "0:05"


@pytest.mark.parametrize(
    ("tool", "input", "subject"),
    [
        ("shell", {"command": "rm -r runs/smoke"}, "rm -r runs/smoke"),
        ("edit", {"path": "train.py"}, "edit train.py"),
        ("", {}, "Which seed?"),
    ],
)
def test_what_an_ask_is_about(tool: str, input: dict[str, Any], subject: str) -> None:
    story = demo("refuted").agent(ev.AgentAsked("q", "Which seed?", tool, input))
    ask = folded(story).pending_ask
    assert ask is not None and ask_subject(ask) == subject


def test_a_question_is_quoted() -> None:
    story = demo("refuted").agent(ev.AgentAsked("q", "Which\nseed?"))
    assert status_of(story).detail == "asks: Which seed?"


def test_a_run_in_progress_has_its_number() -> None:
    status = status_of(demo("running"))
    assert (status.word, status.detail) == ("RUN #3", "attempt")


def test_working_names_the_open_call() -> None:
    story = demo("refuted").agent(ev.AgentCalled("c", "edit", {"path": "a.py"}))
    status = status_of(story)
    assert (status.word, status.detail) == ("WORKING", "edit a.py")


def test_no_event_for_long_is_stalled() -> None:
    assert status_of(demo("refuted"), STALLED_S - 1).word == "WORKING"
    status = status_of(demo("refuted"), STALLED_S + 1)
    assert status.word == "STALLED?" and "x interrupts" in status.todo


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (ev.OperatorPaused("lunch"), "PAUSED"),
        (ev.AgentFinished("done", "All is well."), "FINISHED"),
        (ev.AgentFailed("The model refused."), "FAILED"),
        (ev.RecorderStopped("asked to"), "STOPPED"),
    ],
)
def test_phases(body: ev.Body, word: str) -> None:
    assert status_of(demo("refuted").add(body)).word == word


def test_the_end_says_why() -> None:
    assert status_of(demo("refuted").agent(ev.AgentFailed("It ran out."))).detail == "It ran out."


@pytest.mark.parametrize("until", ["reference", "running", "refuted", "waiting"])
def test_a_dead_recorder_is_said_whatever_the_agent_did(until: str) -> None:
    status = status_of(demo(until), recorder=False)
    assert status.word == "RECORDER GONE"
    assert status.todo == "R restarts it (or: pilotage run --resume ink-1130-a7f3)"


def test_an_ended_session_needs_no_recorder() -> None:
    assert status_of(demo("finished"), recorder=False).word == "FINISHED"


def test_a_new_session_is_starting_and_then_gone() -> None:
    story = Story()
    story.add(ev.SessionOpened("s", "t", "/p", {}))
    assert status_of(story, STARTING_S - 1, recorder=False).word == "STARTING"
    assert status_of(story, STARTING_S + 1, recorder=False).word == "RECORDER GONE"
    assert status_of(story, 1, recorder=None).word == "STARTING"


def test_a_recovered_recorder_says_that_the_agent_was_cut_off() -> None:
    story = demo("waiting").add(ev.RecorderStarted(9), ev.RecorderRecovered([], ["c5"], 3))
    assert status_of(story).word == "CUT OFF"


def test_a_replay_knows_no_lock() -> None:
    assert status_of(demo("running"), recorder=None).word == "RUN #3"


def test_code_that_was_only_verified_waits_for_nobody() -> None:
    scene = healthy()
    results, level = measure(scene.state, "t1")
    for body in (*results, level, ev.RecorderStopped("verified")):
        scene.add(body, tree="t1")
    state = scene.state
    assert agent_status(state, state.last_ts_us, False, "s1").word == "VERIFIED"
