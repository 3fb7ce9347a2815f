"""The Textual app around the screens, and the two ways the command line opens it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from textual import events
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.system_commands import SystemCommandsProvider

from core.errors import PilotageError
from core.invocation import command
from tui.feed import Feed, LiveFeed
from tui.palette import ActionProvider
from tui.pen import Pen
from tui.replay_feed import ReplayFeed
from tui.screens.cockpit import CockpitScreen
from tui.screens.home import HomeScreen
from tui.theme import DARK, LIGHT, THEMES


class PilotageApp(App[str]):
    """One session, or the list of all. The exit value is a sentence to print."""

    TITLE = "pilotage"
    CSS_PATH: ClassVar[list[str]] = [  # type: ignore[assignment]
        "app.tcss",
        "screens/cockpit.tcss",
        "screens/dialogs.tcss",
        "screens/home.tcss",
    ]
    COMMANDS = {SystemCommandsProvider, ActionProvider}  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "leave", "leave", show=False, priority=True),
    ]

    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012
        (0, "-narrow"),
        (100, "-medium"),
        (150, "-wide"),
    ]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall")]  # noqa: RUF012

    def __init__(
        self,
        path: Path | None = None,
        *,
        replay: bool = False,
        feed: Feed | None = None,
        pen: Pen | None = None,
    ) -> None:
        super().__init__()
        self.path, self._replay, self._feed, self._pen = path, replay, feed, pen
        self._told_beat = False

    def on_mount(self) -> None:
        """Themes, then the first screen."""
        for theme in THEMES:
            self.register_theme(theme)
        light = os.environ.get("PILOTAGE_THEME", "").lower() == "light"
        self.theme = (LIGHT if light else DARK).name
        if self.path is None:
            self.push_screen(HomeScreen())
        else:
            self.open_session(self.path, replay=self._replay, feed=self._feed, pen=self._pen)

    # --- screens -----------------------------------------------------------------------------

    def open_session(
        self, path: Path, *, replay: bool = False, feed: Feed | None = None, pen: Pen | None = None
    ) -> None:
        """The cockpit on a session file."""
        if feed is None:
            feed = ReplayFeed(path) if replay else LiveFeed(path)
        read_only = ""
        if not replay and not os.access(path, os.W_OK):
            read_only = f"{path} can't be written by you: this console only watches."
        pen = None if replay or read_only else pen or Pen(path)
        self.push_screen(CockpitScreen(feed, path.parent.name, pen, read_only))

    @property
    def cockpit(self) -> CockpitScreen | None:
        """The cockpit, if one is open (it may lie under a dialog)."""
        for screen in reversed(self.screen_stack):
            if isinstance(screen, CockpitScreen):
                return screen
        return None

    async def action_leave(self) -> None:
        """Leave the cockpit for the list it was opened from, or leave the program."""
        cockpit = self.cockpit
        if cockpit is None:
            self.exit("")
            return
        if cockpit.pen is not None:
            await cockpit.pen.detach()
        if any(isinstance(screen, HomeScreen) for screen in self.screen_stack):
            while self.screen is not cockpit:
                await self.pop_screen()
            await self.pop_screen()
            return
        self.exit(parting(cockpit))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Of the framework's own commands only the themes: the others are actions of ours."""
        yield SystemCommand("theme", "Choose the colours", self.action_change_theme)

    async def action_quit(self) -> None:
        """Every way out says goodbye to the log first."""
        await self.action_leave()

    def action_toggle_theme(self) -> None:
        """Dark or light."""
        self.theme = LIGHT.name if self.current_theme.dark else DARK.name

    # --- signs of the operator ---------------------------------------------------------------

    async def on_event(self, event: events.Event) -> None:
        """Note that somebody is here, then handle the event as ever."""
        signal = _signal(event)
        cockpit = self.cockpit if signal else None
        pen = cockpit.pen if cockpit is not None else None
        if pen is not None and pen.attached and not pen.closed and pen.due():
            self.run_worker(self._beat(pen, signal), group="presence", exit_on_error=False)
        await super().on_event(event)

    async def _beat(self, pen: Pen, signal: str) -> None:
        try:
            await pen.beat(signal)
        except PilotageError as err:
            cockpit = self.cockpit
            if cockpit is not None and not self._told_beat:
                self._told_beat = True
                cockpit.say(f"Your time here can't be recorded: {err}", bad=True)


def _signal(event: events.Event) -> str:
    if isinstance(event, events.InputEvent) and event.is_forwarded:
        return ""
    if isinstance(event, events.Key):
        return "key"
    if isinstance(event, events.MouseDown | events.MouseScrollUp | events.MouseScrollDown):
        return "mouse"
    if isinstance(event, events.Paste):
        return "paste"
    return "focus" if isinstance(event, events.AppFocus) else ""


def parting(cockpit: CockpitScreen) -> str:
    """What the shell prints after leaving: whether something goes on, and how to come back."""
    name, pilotage = cockpit.session_id, command()
    if cockpit.feed.replay:
        return ""
    if cockpit.feed.recorder():
        return f"Detached. The recorder goes on: `{pilotage} attach {name}` comes back."
    if cockpit.feed.state.agent_end is not None:
        return (
            f"The session is over: `{pilotage} replay {name}` plays it, and `{pilotage} export "
            f"{name}` writes its interventions."
        )
    return f"No recorder runs for this session: `{pilotage} run --resume {name}` starts one."


def run_console(
    path: Path | str, replay: bool = False, *, speed: float = 4.0, position: int | None = None
) -> None:
    """Open the cockpit on a session file until the operator leaves; prints a parting sentence.

    ``speed`` and ``position`` (an event's number, at which the clock is held) are those of a
    replay. Raises :class:`PilotageError` (a sentence) where there is no such file.
    """
    file = Path(path)
    if not file.is_file():
        raise PilotageError(f"There is no session file {file}.")
    feed = ReplayFeed(file, speed=speed, position=position) if replay else None
    sentence = PilotageApp(file, replay=replay, feed=feed).run()
    if sentence:
        print(sentence)


def run_home() -> None:
    """Open the list of sessions until the operator leaves."""
    PilotageApp().run()
