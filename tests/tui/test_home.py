"""The list of sessions: what it says, and the ways out of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.tui.driving import screen_text
from tests.tui.session_events import demo, write
from tui.app import PilotageApp
from tui.feed import LiveFeed
from tui.replay_feed import ReplayFeed
from tui.screens.home import HomeScreen


@pytest.fixture
def sessions(isolated_environment: Path) -> Path:
    """A home with a finished session, one whose recorder died, a hostile and a broken one."""
    for name, until in (("done-1130-0001", "finished"), ("lost-1130-0002", "refuted")):
        story = demo(until)
        story.session_id = name
        (isolated_environment / name).mkdir()
        write(isolated_environment / name / "session.db", story)
    broken = isolated_environment / "torn-1130-0003"
    broken.mkdir()
    (broken / "session.db").write_bytes(b"not a database")
    return isolated_environment


async def until_shown(pilot: Pilot[Any], *words: str) -> str:
    """Wait until all words are on the screen, and return it."""
    text = ""
    for _ in range(300):
        app: Any = pilot.app
        text = screen_text(app)
        if all(word in text for word in words):
            return text
        await pilot.pause(0.02)
    raise AssertionError(f"{words} never came:\n{text}")


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_it_lists_every_session_with_where_it_stands(
    sessions: Path, size: tuple[int, int]
) -> None:
    async with PilotageApp().run_test(size=size) as pilot:
        text = await until_shown(pilot, "3 sessions", "done-1130-0001", "torn-1130-0003")
        lines = {name: next(x for x in text.splitlines() if name in x) for name in (
            "done-1130-0001", "lost-1130-0002", "torn-1130-0003")}  # fmt: skip
        assert "■ finished" in lines["done-1130-0001"]
        assert lines["done-1130-0001"].split().count("L3") == 2
        assert "✗ RECORDER GONE" in lines["lost-1130-0002"]
        assert "L0" in lines["lost-1130-0002"] and "L3" in lines["lost-1130-0002"]
        assert "✗ unreadable" in lines["torn-1130-0003"]


@pytest.mark.parametrize("width", [100, 120, 160])
async def test_a_long_name_keeps_the_end_that_tells_it_apart(
    isolated_environment: Path, width: int
) -> None:
    for end in ("a7f3", "b8e4"):
        story = demo("finished")
        story.session_id = f"vision-transformer-from-scratch-on-tpu-with-a-name-1130-{end}"
        (isolated_environment / story.session_id).mkdir()
        write(isolated_environment / story.session_id / "session.db", story)
    async with PilotageApp().run_test(size=(width, 30)) as pilot:
        text = await until_shown(pilot, "2 sessions", "-1130-a7f3", "-1130-b8e4")
        [line] = [x for x in text.splitlines() if "-1130-a7f3" in x]
        name = next(word for word in line.split() if word.endswith("-1130-a7f3"))
        assert "…" in name and len(name) >= 34
        assert "measured" in text and "just now" not in line and " ago" in line


async def test_an_empty_home_teaches_the_demo(isolated_environment: Path) -> None:
    async with PilotageApp().run_test(size=(80, 24)) as pilot:
        text = await until_shown(pilot, "There are no sessions yet.", "pilotage demo")
        assert "enter open" not in text


async def test_the_list_has_a_help_of_its_own(sessions: Path) -> None:
    async with PilotageApp().run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, "done-1130-0001", "? help")
        await pilot.press("question_mark")
        await until_shown(pilot, "replay from the beginning", "recorders go on")
        await pilot.press("escape")
        await until_shown(pilot, "enter open")


async def test_enter_opens_and_leaving_comes_back(sessions: Path) -> None:
    app = PilotageApp()
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, "done-1130-0001")
        await pilot.press("enter")
        await until_shown(pilot, "FINISHED")
        assert app.cockpit is not None and isinstance(app.cockpit.feed, LiveFeed)
        await pilot.press("q")
        await until_shown(pilot, "3 sessions")
        assert isinstance(app.screen, HomeScreen)
        await pilot.press("q")
    assert app.return_value == ""


async def test_p_replays(sessions: Path) -> None:
    app = PilotageApp()
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, "done-1130-0001")
        await pilot.press("p")
        await until_shown(pilot, "REPLAY")
        assert app.cockpit is not None and isinstance(app.cockpit.feed, ReplayFeed)


async def test_a_broken_session_is_a_sentence(sessions: Path) -> None:
    app = PilotageApp()
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, "torn-1130-0003")
        await pilot.press("end", "enter")
        await pilot.pause()
        assert isinstance(app.screen, HomeScreen)
        assert any("can't be read as a session" in n.message for n in app._notifications)


async def test_export_writes_the_chosen_table(sessions: Path, tmp_path: Path) -> None:
    app = PilotageApp()
    target = tmp_path / "out.csv"
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, "done-1130-0001")
        await pilot.press("x")
        await until_shown(pilot, "export what?", "interventions")
        await pilot.press("enter")
        await until_shown(pilot, "export to", "done-1130-0001-interventions.csv")
        await pilot.press("ctrl+a", "delete")
        line: Any = app.screen.query_one("#line")
        line.value = str(target)
        await pilot.press("enter")
        for _ in range(200):
            if target.exists():
                break
            await pilot.pause(0.02)
    assert "pointed at the remaining .cuda() calls" in target.read_text()
