"""Every act of the operator, by its key, on a real log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input, TextArea

from core import events as ev
from core.errors import SessionError
from core.events import NewEvent
from tests.tui.driving import AFTER_US, Console, cockpit
from tests.tui.session_events import TREES, demo
from tui.actions import READY_S
from tui.panes.rows import RowList
from tui.screens.dialogs import Confirm, EditInput, Prompt
from tui.screens.intervention import InterventionForm


def seen_for(console: Console, seconds: float) -> None:
    """Let the ask have been on the screen for so long."""
    start = console.screen.monotonic()
    console.screen._shown_since = {"a1": start - seconds}


async def test_the_header_says_who_waits_for_whom(tmp_path: Path) -> None:
    async with cockpit(tmp_path) as c:
        await c.shows(
            "WAITING ON YOU", "0:42", "wants to run pip install 'torch_xla[tpu]'",
            "measured L0", "claimed L3 refuted",
        )  # fmt: skip


async def test_approve_writes_the_decision(tmp_path: Path) -> None:
    async with cockpit(tmp_path) as c:
        seen_for(c, READY_S + 0.1)
        await c.press("a")
        [event] = await c.stores("operator.decided")
        assert (event.body.ask_id, event.body.decision) == ("a1", "allow")
        assert event.source == c.screen.pen.source
        await c.shows("approved by")
        assert "WAITING ON YOU" not in c.text()
        await c.shows("Approved: pip install 'torch_xla[tpu]'.")
        assert all(n.timeout <= 3 for n in c.app._notifications)


async def test_approve_refuses_what_has_just_come(tmp_path: Path) -> None:
    async with cockpit(tmp_path) as c:
        seen_for(c, READY_S - 0.3)
        await c.press("a")
        await c.shows("Not approved: this had been on the screen for less than a second")
        assert not c.stored("operator.decided")


async def test_an_ask_behind_a_dialog_is_not_on_the_screen(tmp_path: Path) -> None:
    async with cockpit(tmp_path) as c:
        assert c.screen._shown_since
        await c.press("m")
        c.screen.draw()
        assert not c.screen._shown_since
        await c.press("escape")
        c.screen.draw()
        assert c.screen.monotonic() - c.screen._shown_since["a1"] < READY_S


async def test_deny_asks_for_a_reason(tmp_path: Path) -> None:
    async with cockpit(tmp_path) as c:
        await c.press("d")
        assert isinstance(c.app.screen, Prompt)
        await c.press(*"not here", "enter")
        [event] = await c.stores("operator.decided")
        assert (event.body.decision, event.body.reason) == ("deny", "not here")
        await c.shows("denied by", "not here")


async def test_deny_can_be_left(tmp_path: Path) -> None:
    async with cockpit(tmp_path) as c:
        await c.press("d", "escape")
        assert not c.stored("operator.decided")
        await c.shows("WAITING ON YOU")


async def test_edit_allows_the_changed_input(tmp_path: Path) -> None:
    async with cockpit(tmp_path) as c:
        await c.press("e")
        assert isinstance(c.app.screen, EditInput)
        area = c.app.screen.query_one(TextArea)
        assert json.loads(area.text) == {"command": "pip install 'torch_xla[tpu]'"}
        area.text = '{"command": '
        await c.press("ctrl+s")
        await c.shows("That is no JSON")
        area.text = '["pip"]'
        await c.press("ctrl+s")
        await c.shows("has to be a JSON object")
        area.text = '{"command": "pip list"}'
        await c.press("ctrl+s")
        [event] = await c.stores("operator.decided")
        assert (event.body.decision, event.body.input) == ("edit", {"command": "pip list"})
        await c.shows("edited by")


async def test_a_question_is_answered_in_words(tmp_path: Path) -> None:
    story = demo("refuted")
    story.agent(ev.AgentAsked("q1", "Which seed shall I use?"))
    async with cockpit(tmp_path, story) as c:
        await c.shows("asks: Which seed shall I use?")
        await c.press("e", *"42", "enter")
        [event] = await c.stores("operator.decided")
        assert (event.body.decision, event.body.reason) == ("edit", "42")
        assert event.body.input == {"answer": "42"}


async def test_an_answer_given_elsewhere_is_not_given_twice(tmp_path: Path) -> None:
    async with cockpit(tmp_path) as c:
        await c.press("d")
        c.append(NewEvent(ev.OperatorDecided("a1", "allow"), "console:other"))
        await c.until(lambda: c.screen.feed.state.pending_ask is None)
        await c.press("enter")
        await c.shows("answered already")
        assert len(c.stored("operator.decided")) == 1


async def test_message_is_queued_then_delivered(tmp_path: Path) -> None:
    async with cockpit(tmp_path) as c:
        await c.press("m", *"use drop_last", "enter")
        [_, event] = await c.stores("operator.messaged", 2)
        assert event.body.text == "use drop_last"
        await c.shows("use drop_last  queued", "1 message queued")
        c.append(NewEvent(ev.OperatorDelivered(event.body.message_id), "recorder"))
        await c.shows("use drop_last  delivered")


async def test_an_interrupted_agent_waits_for_a_word_or_to_go_on(tmp_path: Path) -> None:
    async with cockpit(tmp_path, "refuted") as c:
        await c.press("x")
        await c.stores("operator.interrupted")
        await c.shows(
            "WAITING ON YOU  0:00 (interrupted: m sends a message, p goes on)", "m message  p go on"
        )
        await c.press("p")
        await c.stores("operator.resumed")
        await c.until(lambda: "WAITING ON YOU" not in c.text())
        assert not c.stored("operator.paused")
        await c.shows("p pause")


@pytest.mark.parametrize("cut", [False, True])
async def test_a_session_that_is_over_is_looked_at_without_a_trace(
    tmp_path: Path, cut: bool
) -> None:
    story = demo("finished")
    if cut:  # its recorder died before it could say goodbye
        story.new.pop()
    async with cockpit(tmp_path, story, alive=False) as c:
        await c.shows("FINISHED")
        before = c.path.read_bytes()
        await c.press("1", "2", "3", "4", "r", "escape", "question_mark", "escape")
        assert c.path.read_bytes() == before
        # What is written on purpose still is.
        await c.press("k", *"done", "enter")
        await c.stores("marker.placed", 2)
        await c.press("q")
    assert len(c.stored("operator.attached")) == 1  # the story's own
    assert not c.stored("operator.detached")
    assert len(c.stored("operator.heartbeat")) == 2


async def test_a_session_that_goes_on_again_is_attached_to(tmp_path: Path) -> None:
    async with cockpit(tmp_path, "finished", alive=False) as c:
        c.recorder["alive"] = True
        c.append(NewEvent(ev.RecorderStarted(9), "recorder"))
        c.append(NewEvent(ev.AgentStarted("scripted"), "agent"))
        await c.stores("operator.attached", 2)


@pytest.mark.parametrize(
    ("key", "kind", "action"),
    [("x", "operator.interrupted", ""), ("v", "operator.requested", "verify")],
)
async def test_one_key_acts(tmp_path: Path, key: str, kind: str, action: str) -> None:
    async with cockpit(tmp_path) as c:
        await c.press(key)
        [event] = await c.stores(kind)
        assert getattr(event.body, "action", "") == action
        assert event.body.author == c.screen.pen.author


async def test_pause_and_resume(tmp_path: Path) -> None:
    async with cockpit(tmp_path, "running") as c:
        await c.shows("RUN #3")
        await c.press("p")
        await c.stores("operator.paused")
        await c.shows("PAUSED", "p resume", "Paused: it ends")
        await c.press("p")
        await c.until(lambda: "Paused: it ends" not in c.text())
        await c.stores("operator.resumed")
        await c.shows("RUN #3")


async def test_stop_asks_first(tmp_path: Path) -> None:
    async with cockpit(tmp_path, "running") as c:
        await c.press("s")
        assert isinstance(c.app.screen, Confirm)
        await c.shows("Run #3 is in progress")
        await c.press("n")
        assert not c.stored("operator.requested")
        await c.press("s", "y")
        [event] = await c.stores("operator.requested")
        assert event.body.action == "stop session"


async def test_an_intervention_has_the_moment_of_the_key(tmp_path: Path) -> None:
    async with cockpit(tmp_path, "running") as c:
        await c.press("i")
        [_, event] = await c.stores("intervention.recorded", 2)
        stamp = event.body
        assert stamp.at_ts_us == event.ts_us == c.story.now_us + AFTER_US
        assert (stamp.at_tree, stamp.at_run, stamp.at_level) == (TREES[1], "r3", -1)
        assert event.tree == TREES[1] and event.run_id == "r3"
        assert not stamp.text, "the words come later"
        await c.until(lambda: isinstance(c.app.screen, InterventionForm))
        # The session goes on meanwhile; the stamp does not.
        c.append(NewEvent(ev.RunEnded("exited", 0), "recorder", "r3"))
        await c.press(*"removed a cuda call", "tab", "g", "down", "f")
        await c.press("down", "3", "down", "h", "down", "y", "down", *"2,5", "ctrl+s")
        amended = (await c.stores("intervention.amended", 2))[-1].body
        assert amended.intervention_id == stamp.intervention_id
        assert amended.changes == {
            "text": "removed a cuda call", "kind": "guidance", "trigger": "failed run",
            "category": "C3", "necessity": "helpful", "subset": True, "minutes_claimed": 2.5,
        }  # fmt: skip


async def test_an_intervention_left_with_escape_is_kept(tmp_path: Path) -> None:
    async with cockpit(tmp_path) as c:
        await c.press("i")
        await c.until(lambda: isinstance(c.app.screen, InterventionForm))
        await c.press("escape")
        await c.shows("kept without words. u voids it.")
        assert len(c.stored("intervention.amended")) == 1, "nothing guessed was saved"
        id = c.stored("intervention.recorded")[-1].body.intervention_id
        await c.press("u")
        assert (await c.stores("intervention.voided"))[0].body.intervention_id == id
        await c.until(lambda: c.screen.feed.state.interventions[id].voided)
        await c.press("u")
        assert (await c.stores("intervention.restored"))[0].body.intervention_id == id


async def test_minutes_that_are_none_are_asked_again(tmp_path: Path) -> None:
    async with cockpit(tmp_path) as c:
        await c.press("i")
        await c.until(lambda: isinstance(c.app.screen, InterventionForm))
        c.app.screen.query_one("#minutes", Input).value = "a few"
        await c.press("ctrl+s")
        await c.shows("'a few' is no number of minutes")
        assert isinstance(c.app.screen, InterventionForm)


async def test_mark_names_the_moment_of_the_key(tmp_path: Path) -> None:
    async with cockpit(tmp_path) as c:
        await c.press("k", *"before lunch", "enter")
        [event] = await c.stores("marker.placed")
        assert event.body.text == "before lunch"
        assert event.ts_us == c.story.now_us + AFTER_US


async def test_detaching_is_recorded_and_says_that_the_recorder_goes_on(tmp_path: Path) -> None:
    async with cockpit(tmp_path) as c:
        await c.press("q")
        [event] = await c.stores("operator.detached")
        assert event.source == f"console:{event.body.console_id}"
        assert "The recorder goes on" in (c.app.return_value or "")
        assert c.story.session_id in (c.app.return_value or "")


async def test_heartbeats_are_rare(tmp_path: Path) -> None:
    async with cockpit(tmp_path) as c:
        own = [e for e in c.stored("operator.heartbeat") if e.source == c.screen.pen.source]
        assert not own
        await c.press("1", "2", "3", "4", "5", "1")
        await c.stores("operator.heartbeat", 2)
        c.screen.pen._last_beat -= 15
        await c.press("2", "3")
        beats = await c.stores("operator.heartbeat", 3)
        own = [e for e in beats if e.source == c.screen.pen.source]
        assert len(own) == 2 and own[0].body.signal == "key"


async def test_without_a_recorder_the_header_says_what_to_do(tmp_path: Path) -> None:
    async with cockpit(tmp_path, alive=False) as c:
        await c.shows(
            "RECORDER GONE", "R restarts it", f"pilotage run --resume {c.story.session_id}"
        )
        await c.press("m")
        await c.shows("The recorder is gone, so nobody would act on it.")
        assert not isinstance(c.app.screen, Prompt)
        # What needs no recorder still works.
        await c.press("i")
        await c.stores("intervention.recorded", 2)


async def test_restart_starts_the_recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Path] = []

    monkeypatch.setattr("sessions.opening.start", started.append)
    async with cockpit(tmp_path, alive=False) as c:
        await c.press("R")
        await c.shows("The recorder is back.")
        assert started == [c.path]


async def test_a_recorder_that_does_not_start_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(path: Path) -> None:
        raise SessionError("The recorder of x did not start. Its log says why.")

    monkeypatch.setattr("sessions.opening.start", start)
    async with cockpit(tmp_path, alive=False) as c:
        await c.press("R")
        await c.shows("did not start. Its log says why.")


async def test_a_disk_that_refuses_is_a_sentence_and_the_words_stay(tmp_path: Path) -> None:
    async with cockpit(tmp_path) as c:
        await c.press("i")
        await c.until(lambda: isinstance(c.app.screen, InterventionForm))
        pen = c.screen.pen
        real = pen._append

        def refuse(new: Any) -> Any:
            raise SessionError("The disk is full. Free some space, then try again.")

        pen._append = refuse
        await c.press(*"precious", "ctrl+s")
        await c.until(lambda: isinstance(c.app.screen, Confirm))
        await c.shows("The disk is full.", "could not be saved")
        pen._append = real
        await c.press("y")
        assert (await c.stores("intervention.amended", 2))[-1].body.changes["text"] == "precious"


async def test_a_file_one_may_not_write_is_only_watched(tmp_path: Path) -> None:
    from tui.app import PilotageApp
    from tui.feed import LiveFeed
    from tui.screens.cockpit import CockpitScreen

    async with cockpit(tmp_path) as c:
        feed = LiveFeed(c.path, alive=lambda: True)
        app: PilotageApp = c.app
        await app.push_screen(CockpitScreen(feed, "x", None, "It can't be written by you."))
        await c.shows("READ ONLY")
        before = len(c.stored("intervention.recorded"))
        await c.press("i")
        await c.shows("It can't be written by you.")
        assert len(c.stored("intervention.recorded")) == before


async def test_nothing_to_answer_is_said(tmp_path: Path) -> None:
    async with cockpit(tmp_path, "running") as c:
        await c.press("a")
        await c.shows("The agent waits for nothing")


async def test_the_edit_key_is_left_to_the_log_where_nothing_is_asked(tmp_path: Path) -> None:
    async with cockpit(tmp_path, "running") as c:
        await c.press("r", "down", "down", "enter", "3")
        log = c.screen.query_one("#log")
        await c.until(lambda: c.screen.focused is log)
        await c.press("e")
        assert log.cursor == log.first_error()


async def test_letters_belong_to_a_search_while_it_is_typed(tmp_path: Path) -> None:
    async with cockpit(tmp_path) as c:
        await c.press("3", "slash", *"xim")
        assert not c.stored("operator.interrupted")
        assert len(c.stored("intervention.recorded")) == 1
        await c.press("escape")


async def test_help_lists_every_key(tmp_path: Path) -> None:
    async with cockpit(tmp_path, size=(120, 50)) as c:
        await c.press("question_mark")
        rows = c.app.screen.query_one(RowList).plain_text()
        for words in ("approve", "restart recorder", "not now: The recorder is alive", "stale"):
            assert words in rows


async def test_the_palette_knows_the_actions(tmp_path: Path) -> None:
    async with cockpit(tmp_path) as c:
        await c.press("ctrl+p")
        await c.shows("approve  (a)")
        for theirs in ("Screenshot", "Maximize", "Quit", "Keys"):
            assert theirs not in c.text()
        await c.press(*"diff basis")
        await c.shows("diff basis  (b)")
        await c.press("enter")
        await c.shows("diff · last step")


async def test_a_failed_check_is_waived_with_a_reason_and_shown_as_such(tmp_path: Path) -> None:
    async with cockpit(tmp_path) as c:
        await c.press("4", "w")
        await c.shows("Choose a check in the level pane first")
        await c.press("down", "down", "down", "w")
        await c.shows("waive L1.clip", "L1.clip fail")
        await c.press(*"clipping is off", "enter")
        await c.shows("Waived: L1.clip")
        bodies = [e.body for e in c.stored("check.evaluated")]
        (body,) = [b for b in bodies if isinstance(b, ev.CheckEvaluated) and b.state == "waived"]
        assert (body.check, body.reason) == ("L1.clip", "clipping is off")
        assert body.evidence["measured"] == "fail"
