"""What the parts of the cockpit screen share: the feed, the choice, the pen, and a voice."""

from __future__ import annotations

from textual.screen import Screen

from core.state import SessionState
from tui.feed import Feed
from tui.pen import Pen
from tui.view import Choice, View
from tui.wording import block

CONFIRM_S = 3.0
"""Seconds a plain confirmation stays."""


class CockpitBase(Screen[str]):
    """State of the screen. It is about looking; the session's own state belongs to the feed."""

    def __init__(self, feed: Feed, session_id: str, pen: Pen | None, read_only: str = "") -> None:
        super().__init__()
        self.feed, self.session_id, self.pen = feed, session_id, pen
        self.read_only = read_only
        self.choice = Choice()
        self.active = "agent"
        self.jump_kind = "any"
        self.past: SessionState | None = None

    def view(self) -> View:
        """What is to be drawn now."""
        raise NotImplementedError

    def draw(self) -> None:
        """Draw every pane that has changed."""
        raise NotImplementedError

    def focus_pane(self, name: str) -> None:
        """Give a pane the focus; where only one pane fits, also the screen."""
        raise NotImplementedError

    def pane_help(self) -> str:
        """The help of the widget in focus, if it has any."""
        raise NotImplementedError

    def say(self, sentence: str, bad: bool = False) -> None:
        """A sentence to the operator; it may quote hostile text, and is never read as markup."""
        self.notify(
            block(sentence),
            severity="error" if bad else "information",
            markup=False,
            timeout=12 if bad else 6,
        )

    def confirm(self, sentence: str) -> None:
        """That what was asked for is done: nothing to act on, so it goes soon."""
        self.notify(block(sentence), markup=False, timeout=CONFIRM_S)
