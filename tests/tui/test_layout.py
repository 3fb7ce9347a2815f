"""What is where at 80x24, 120x40, 200x50, and that nothing is out of reach."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.state import fold
from tests.tui.driving import cockpit, screen_text
from tests.tui.session_events import demo
from tui.actions import ACTIONS, BY_ID, footer_ids
from tui.panes.tabs import PANES
from tui.screens.cockpit import CockpitScreen
from tui.view import Choice, View

SIZES = [(80, 24), (120, 40), (200, 50)]


def visible(screen: CockpitScreen) -> list[str]:
    """The panes that take up room."""
    return [n for n in PANES if screen.query_one(f"#{n}").region.area > 0]


async def test_at_80x24_the_panes_are_tabs(tmp_path: Path) -> None:
    async with cockpit(tmp_path, size=(80, 24)) as c:
        for key, name in zip("1234", ("diff", "agent", "run", "levels"), strict=True):
            await c.press(key)
            assert visible(c.screen) == [name, "timeline"]
            assert f"[{key} {name}" in c.text()
        # The strip is always there; going to it keeps the pane above.
        await c.press("5")
        assert visible(c.screen) == ["levels", "timeline"]


async def test_a_short_terminal_has_tabs_too(tmp_path: Path) -> None:
    async with cockpit(tmp_path, size=(200, 24)) as c:
        assert visible(c.screen) == ["agent", "timeline"]


async def test_at_120x40_two_columns(tmp_path: Path) -> None:
    async with cockpit(tmp_path, size=(120, 40)) as c:
        assert visible(c.screen) == list(PANES)
        diff, agent, run, levels = (
            c.screen.query_one(f"#{n}").region for n in ("diff", "agent", "run", "levels")
        )
        assert diff.x == agent.x < run.x == levels.x
        assert diff.y == run.y < agent.y == levels.y


async def test_at_200x50_three_columns(tmp_path: Path) -> None:
    async with cockpit(tmp_path, size=(200, 50)) as c:
        assert visible(c.screen) == list(PANES)
        diff, agent, run, levels = (
            c.screen.query_one(f"#{n}").region for n in ("diff", "agent", "run", "levels")
        )
        assert diff.x == agent.x < run.x < levels.x
        assert run.y == levels.y and run.height == levels.height > agent.height


async def test_zoom_gives_a_pane_the_screen_and_back(tmp_path: Path) -> None:
    async with cockpit(tmp_path) as c:
        await c.press("3", "z")
        assert visible(c.screen) == ["run", "timeline"]
        await c.press("4")
        assert visible(c.screen) == ["levels", "timeline"]
        await c.press("escape")
        assert visible(c.screen) == list(PANES)


async def test_resizing_keeps_everything(tmp_path: Path) -> None:
    async with cockpit(tmp_path) as c:
        for size in [(80, 24), (200, 50), (60, 15), (40, 10), (120, 40)]:
            await c.pilot.resize_terminal(*size)
            await c.pilot.pause()
            screen_text(c.app)
        await c.shows("WAITING ON YOU", "L1", "diff · since baseline")


@pytest.mark.parametrize("size", SIZES)
async def test_tab_reaches_every_pane(tmp_path: Path, size: tuple[int, int]) -> None:
    async with cockpit(tmp_path, size=size) as c:
        reached = set()
        for _ in range(8):
            await c.press("tab")
            reached.add(c.screen.active)
        assert reached == ({*PANES} if size[0] > 100 else {"agent", "timeline"})


@pytest.mark.parametrize("size", SIZES)
async def test_every_action_works_from_the_keyboard(tmp_path: Path, size: tuple[int, int]) -> None:
    async with cockpit(tmp_path, size=size) as c:
        called: list[str] = []
        real = c.screen.action_do

        async def note(id: str, other_key: bool = False) -> None:
            called.append(id)
            await real(id, other_key)

        c.screen.action_do = note  # type: ignore[method-assign]
        for action in ACTIONS:
            if action.id == "detach" or not action.live:
                continue
            c.screen.focus_pane("timeline" if action.id in ("start", "end") else "agent")
            await c.press(action.keys[0])
            if action.id == "palette":
                assert c.app.screen is not c.screen
            else:
                assert called[-1:] == [action.id]
            while c.app.screen is not c.screen:
                await c.press("escape")
        await c.press("q")
        assert called[-1] == "detach"


def test_the_registry_is_whole() -> None:
    keys: dict[tuple[str, bool], str] = {}
    for action in ACTIONS:
        assert action.id == "palette" or hasattr(CockpitScreen, f"act_{action.id}"), action.id
        assert action.help.endswith(".") and action.title, action.id
        for key in action.keys:
            for replay in (False, True):
                if action.replay if replay else action.live:
                    other = keys.setdefault((key, replay), action.id)
                    assert other == action.id, f"{key} means {other} and {action.id}"


@pytest.mark.parametrize("until", ["reference", "running", "refuted", "waiting", "finished"])
@pytest.mark.parametrize("replay", [False, True])
def test_the_footer_offers_only_what_can_be_done(until: str, replay: bool, tmp_path: Path) -> None:
    from sessions.log import EventLog
    from tests.tui.session_events import write

    with EventLog.read(write(tmp_path / "s.db", demo(until))) as log:
        state = fold(log.events())
    view = View(state, state.last_ts_us, "s", replay, True, Choice())
    ids = footer_ids(view)
    assert ids and all(not BY_ID[i].blocked(view) for i in ids)
    assert ("approve" in ids) == (until == "waiting" and not replay)
