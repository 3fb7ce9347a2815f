"""Opens the cockpit on a real session file, and waits for what can be seen instead of sleeping."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from core.events import Event
from sessions.log import EventLog
from tests.tui.session_events import Story, demo, write
from tui.app import PilotageApp
from tui.feed import LiveFeed
from tui.pen import Pen
from tui.replay_feed import ReplayFeed
from tui.screens.cockpit import CockpitScreen

AFTER_US = 42_000_000
"""The frozen clock stands so long after the story's last event."""


_FILES: dict[str, bytes] = {}
"""Session files of the named stories: writing one event by event, as it must be, takes a while."""


@dataclass
class Console:
    """A cockpit under test."""

    app: PilotageApp
    pilot: Pilot[Any]
    path: Path
    story: Story
    recorder: dict[str, bool]

    @property
    def screen(self) -> CockpitScreen:
        """The cockpit, whatever dialog lies over it."""
        cockpit = self.app.cockpit
        assert cockpit is not None
        return cockpit

    async def until(self, what: Callable[[], Any], why: str = "") -> Any:
        """Wait until ``what`` holds; fails after 10 s."""
        for _ in range(500):
            if found := what():
                return found
            await asyncio.sleep(0.02)
        raise AssertionError(f"it never happened: {why or what}")

    async def press(self, *keys: str) -> None:
        """Press keys, and let the app handle them."""
        await self.pilot.press(*keys)
        await self.pilot.pause()

    def text(self) -> str:
        """The screen as a person reads it, with the sentences of the toasts unwrapped below."""
        said = [notification.message for notification in self.app._notifications]
        return "\n".join([screen_text(self.app), *said])

    async def shows(self, *words: str) -> None:
        """Wait until all of ``words`` are on the screen."""
        for word in words:
            await self.until(lambda word=word: word in self.text(), f"{word!r} in\n{self.text()}")

    def stored(self, kind: str) -> list[Event]:
        """The events of one kind in the file."""
        with EventLog.read(self.path) as log:
            return list(log.events(kinds=[kind]))

    async def stores(self, kind: str, count: int = 1) -> list[Event]:
        """Wait until so many events of one kind are in the file."""
        return await self.until(
            lambda: (found := self.stored(kind)) if len(self.stored(kind)) >= count else None,
            f"{count} {kind}",
        )

    def append(self, *new: Any) -> None:
        """What another process (the recorder) writes."""
        with EventLog.open(self.path) as log:
            log.append(*new)


def screen_text(app: PilotageApp) -> str:
    """What the compositor would send to the terminal, as plain lines."""
    width, height = app.size
    lines = []
    for strip in app.screen._compositor.render_strips():
        lines.append("".join(segment.text for segment in strip))
    assert len(lines) == height, (len(lines), height, width)
    return "\n".join(lines)


@asynccontextmanager
async def cockpit(
    folder: Path,
    story: Story | str = "waiting",
    *,
    size: tuple[int, int] = (120, 40),
    replay: bool = False,
    alive: bool = True,
    playing: bool = False,
) -> AsyncIterator[Console]:
    """The app on ``story``, with its first state drawn. Clocks are frozen unless it plays."""
    name = story if isinstance(story, str) else ""
    story = demo(story) if isinstance(story, str) else story
    home = folder / story.session_id
    home.mkdir(parents=True)
    path = home / "session.db"
    if name in _FILES:
        path.write_bytes(_FILES[name])
    else:
        write(path, story)
        if name:
            _FILES[name] = path.read_bytes()
    recorder = {"alive": alive}
    now_us = story.now_us + AFTER_US
    pen = None
    feed: Any
    if replay:
        feed = ReplayFeed(path, playing=playing)
    else:
        feed = LiveFeed(path, alive=lambda: recorder["alive"], clock=lambda: now_us)
        pen = Pen(path, clock=lambda: now_us)
    app = PilotageApp(path, replay=replay, feed=feed, pen=pen)
    async with app.run_test(size=size) as pilot:
        console = Console(app, pilot, path, story, recorder)
        await console.until(lambda: app.cockpit and not feed.loading(), "loaded")
        if not replay and not feed.error and app.cockpit and app.cockpit.pen:
            ended = any(new.body.KIND.startswith("agent.f") for new in story.new)
            if not ended:  # a session that is over is only looked at
                await console.stores("operator.attached", 2)
            seq = len(story.new) + (not ended)
            await console.until(lambda: feed.state.seq == seq, "attached")
        await pilot.pause()
        app.cockpit.draw()
        await pilot.pause()
        yield console
