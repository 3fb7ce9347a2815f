"""Replay in the same screen: the clock, stepping, jumping, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.state import fold
from sessions.log import EventLog
from tests.tui.driving import Console, cockpit
from tui.replay_feed import SPEEDS, ReplayFeed


def feed(c: Console) -> ReplayFeed:
    """The feed under test."""
    found = c.screen.feed
    assert isinstance(found, ReplayFeed)
    return found


async def test_it_says_that_it_is_a_replay(tmp_path: Path) -> None:
    async with cockpit(tmp_path, "finished", replay=True) as c:
        await c.shows("REPLAY ‖ held 4x  0:00 of", "12:00:00")
        await c.press("end")
        await c.shows("REPLAY ■ at the end", "FINISHED", "measured L3  claimed L3")


async def test_a_small_terminal_shows_a_pane_from_the_start(tmp_path: Path) -> None:
    async with cockpit(tmp_path, "finished", replay=True, size=(80, 24)) as c:
        await c.press("end")
        await c.shows("REPLAY", "╭─ agent", "■ finished")


async def test_the_last_event_shows_the_live_end_state(tmp_path: Path) -> None:
    async with cockpit(tmp_path, "finished", replay=True) as c:
        await c.press("end")
        with EventLog.read(c.path) as log:
            assert c.screen.view().state == fold(log.events())


async def test_stepping_moves_one_event(tmp_path: Path) -> None:
    async with cockpit(tmp_path, "finished", replay=True) as c:
        assert feed(c).state.seq == 1
        await c.press("full_stop", "full_stop", "full_stop")
        assert feed(c).state.seq == 4
        await c.press("comma")
        assert feed(c).state.seq == 3
        await c.press("comma", "comma", "comma")
        assert feed(c).state.seq == 1


async def test_home_and_end(tmp_path: Path) -> None:
    async with cockpit(tmp_path, "finished", replay=True) as c:
        await c.press("end")
        assert feed(c).state.seq == len(c.story.new)
        await c.press("home")
        assert feed(c).state.seq == 1
        await c.press("4", "end")  # a list has a last row of its own
        assert feed(c).state.seq == 1


async def test_jumping_goes_to_moments_of_the_chosen_kind(tmp_path: Path) -> None:
    async with cockpit(tmp_path, "finished", replay=True) as c:
        await c.press("j", "down", "enter")
        assert c.screen.jump_kind == "attempt"
        runs = []
        for _ in range(3):
            await c.press("n")
            runs.append(feed(c).state.last_run.number)
        assert runs == [2, 3, 5]
        await c.press("n")
        await c.shows("There is no later attempt.")
        await c.press("N")
        assert feed(c).state.last_run.number == 3


@pytest.mark.parametrize(
    "kind", ["intervention", "level", "finding", "claim", "refuted", "ask", "marker"]
)
async def test_every_kind_can_be_jumped_to(tmp_path: Path, kind: str) -> None:
    async with cockpit(tmp_path, "finished", replay=True) as c:
        c.screen.jump_kind = kind
        await c.press("n")
        state = feed(c).state
        assert kind in [m.kind for m in state.moments if m.seq == state.seq]


async def test_speed_doubles_and_halves_within_bounds(tmp_path: Path) -> None:
    async with cockpit(tmp_path, "finished", replay=True) as c:
        await c.press("right_square_bracket")
        await c.shows("8x")
        for _ in range(9):
            await c.press("plus")
        assert feed(c).speed == SPEEDS[-1] == 64
        for _ in range(12):
            await c.press("left_square_bracket")
        await c.shows("0.5x")


async def test_the_brackets_belong_to_the_diff_while_it_has_the_focus(tmp_path: Path) -> None:
    async with cockpit(tmp_path, "finished", replay=True) as c:
        await c.press("1", "right_square_bracket")
        assert feed(c).speed == 4
        await c.press("minus")
        assert feed(c).speed == 2


async def test_play_moves_with_the_clock_and_stops_at_the_end(tmp_path: Path) -> None:
    async with cockpit(tmp_path, "finished", replay=True) as c:
        replay = feed(c)
        now = [100.0]
        replay._monotonic = lambda: now[0]
        replay.pump()
        await c.press("space")
        assert replay.playing
        now[0] += 1.0
        replay.pump()
        first = replay.state.seq
        assert first > 1
        now[0] += 1.0
        replay.pump()
        assert replay.state.seq > first
        now[0] += 10_000
        replay.pump()
        assert replay.state.agent_end is not None and not replay.playing
        await c.press("space")
        assert replay.playing, "play at the end begins again"
        replay.pump()
        assert replay.state.seq < first


@pytest.mark.parametrize("key", ["a", "d", "e", "m", "x", "p", "v", "s", "i", "k", "u", "R"])
async def test_acts_of_the_operator_are_refused_with_a_reason(tmp_path: Path, key: str) -> None:
    async with cockpit(tmp_path, "finished", replay=True) as c:
        before = c.path.read_bytes()
        await c.press(key)
        await c.shows("This is a replay")
        assert c.path.read_bytes() == before


async def test_the_timeline_shows_what_is_to_come_and_goes_there(tmp_path: Path) -> None:
    async with cockpit(tmp_path, "finished", replay=True) as c:
        strip = c.screen.query_one("#strip")
        assert len(strip._moments) > 10
        await c.press("right")
        assert feed(c).state.moments[-1].seq == strip.cursor_seq


async def test_a_row_moves_the_replay_to_its_moment(tmp_path: Path) -> None:
    async with cockpit(tmp_path, "finished", replay=True) as c:
        await c.press("end", "2", "home", "g")
        assert feed(c).state.transcript[-1].kind == "started"


async def test_replay_writes_nothing(tmp_path: Path) -> None:
    async with cockpit(tmp_path, "finished", replay=True) as c:
        await c.press("n", "n", "end", "q")
        assert len(c.stored("operator.attached")) == 1  # the story's own
        assert not c.stored("operator.detached")


async def test_a_file_that_is_no_session_is_a_sentence(tmp_path: Path) -> None:
    from tui.app import PilotageApp

    path = tmp_path / "session.db"
    path.write_bytes(b"not a database at all")
    app = PilotageApp(path, replay=True)
    async with app.run_test() as pilot:
        for _ in range(200):
            if app._notifications:
                break
            await pilot.pause(0.02)
        [said] = [n.message for n in app._notifications]
        assert "can't be read as a session" in said
