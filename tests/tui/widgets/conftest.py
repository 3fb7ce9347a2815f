"""A screen with one widget, and what that widget draws."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from textual.app import App, ComposeResult
from textual.message import Message
from textual.widget import Widget


class Stage(App[None]):
    """Shows one widget and keeps the messages it posts."""

    def __init__(self, widget: Widget) -> None:
        super().__init__()
        self.widget = widget
        self.messages: list[Message] = []

    def compose(self) -> ComposeResult:
        yield self.widget

    def on_mount(self) -> None:
        self.widget.focus()

    def said(self, kind: type[Message]) -> list[Message]:
        return [message for message in self.messages if isinstance(message, kind)]

    def drawn(self, y: int | None = None) -> str:
        """The text of one row as `render_line` gives it, or of all rows."""
        if y is not None:
            return self.widget.render_line(y).text
        return "\n".join(self.widget.render_line(n).text for n in range(self.widget.size.height))


@pytest.fixture
def stage() -> Callable[[Widget], Stage]:
    """Make an app around a widget; its own messages are recorded where they are posted."""

    def make(widget: Widget) -> Stage:
        app = Stage(widget)
        post = widget.post_message

        def recording(message: Message) -> bool:
            if type(message).__module__.startswith("tui."):
                app.messages.append(message)
            return post(message)

        widget.post_message = recording  # type: ignore[method-assign]
        return app

    return make
