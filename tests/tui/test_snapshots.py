"""Pictures of the screens, compared cell by cell. `pytest --snapshot-update` accepts new ones.

Clocks are frozen and nothing blinks: what differs, differs because the code does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.tui.driving import AFTER_US, screen_text
from tests.tui.session_events import demo, write
from tui.app import PilotageApp
from tui.feed import LiveFeed
from tui.pen import Pen
from tui.replay_feed import ReplayFeed

CASES: dict[str, tuple[str, tuple[int, int], bool, list[str], str]] = {
    "waiting-80x24": ("waiting", (80, 24), False, [], ""),
    "waiting-120x40": ("waiting", (120, 40), False, [], ""),
    "running-200x50": ("running", (200, 50), False, [], ""),
    "levels-80x24": ("waiting", (80, 24), False, ["4", "down", "down", "down"], ""),
    "intervention-80x24": ("running", (80, 24), False, ["i", "tab"], ""),
    "evidence-120x40": ("waiting", (120, 40), False, ["4", "down", "down", "down", "enter"], ""),
    "replay-120x40": ("finished", (120, 40), True, ["n", "n", "n"], ""),
    "light-120x40": ("finished", (120, 40), False, [], "light"),
}


def opened(
    folder: Path, until: str, replay: bool, keys: list[str]
) -> tuple[PilotageApp, Callable[[Pilot[Any]], Awaitable[None]]]:
    """The app on a story, and what brings it to the state of the picture."""
    story = demo(until)
    home = folder / story.session_id
    home.mkdir()
    path = write(home / "session.db", story)
    now_us = story.now_us + AFTER_US
    feed: Any
    if replay:
        feed, pen = ReplayFeed(path, playing=False), None
    else:
        feed = LiveFeed(path, alive=lambda: True, clock=lambda: now_us)
        pen = Pen(path, clock=lambda: now_us)
    app = PilotageApp(path, replay=replay, feed=feed, pen=pen)

    async def ready(pilot: Pilot[Any]) -> None:
        seq = 1 if replay else len(story.new) + (until != "finished")
        for _ in range(500):
            if feed.state.seq == seq:
                break
            await pilot.pause(0.02)
        assert feed.state.seq == seq
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
        for widget in app.screen.query("Input"):
            widget.cursor_blink = False  # type: ignore[attr-defined]
        if "i" in keys:
            for _ in range(500):
                if feed.state.seq == seq + 1:  # the stamp
                    break
                await pilot.pause(0.02)
        assert app.cockpit is not None
        app.cockpit.draw()
        await settled(app, pilot)

    return app, ready


async def settled(app: PilotageApp, pilot: Pilot[Any]) -> None:
    """Wait until the screen has stayed as it is for half a second."""
    before, same = "", 0
    for _ in range(200):
        await pilot.pause(0.1)
        now = screen_text(app)
        same = same + 1 if now == before else 0
        before = now
        if same == 5:
            return
    raise AssertionError(f"the screen never comes to rest:\n{before}")


@pytest.mark.parametrize("name", CASES)
def test_picture(
    name: str, tmp_path: Path, snap_compare: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    until, size, replay, keys, theme = CASES[name]
    monkeypatch.setenv("PILOTAGE_THEME", theme)
    # Only what is drawn from the text of the story: not how long this machine took for it.
    monkeypatch.setattr("tui.app.PilotageApp._beat", _no_beat)
    app, ready = opened(tmp_path, until, replay, keys)
    assert snap_compare(app, terminal_size=size, run_before=ready)


async def _no_beat(self: PilotageApp, pen: Pen, signal: str) -> None:
    """Heartbeats change the minutes shown by when they come."""
