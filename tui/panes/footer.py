"""The footer: the keys that matter now, from the registry of actions, as many as fit."""

from __future__ import annotations

from rich.text import Text

from core.state import SessionState
from tui.actions import BY_ID, footer_ids
from tui.panes.line import Line
from tui.theme import Palette, palette
from tui.view import View


class Footer(Line):
    """One line. The last place always belongs to ``? help``."""

    def __init__(self) -> None:
        super().__init__("footer")
        self._drawn: tuple[object, ...] = ()

    def draw(self, view: View) -> None:
        """Draw the keys for ``view``, if they have changed."""
        paused = (view.state.paused, view.state.interrupted)
        width = self.size.width or self.app.size.width
        ids = tuple(footer_ids(view))
        stamp = (ids, paused, width, self.app.theme)
        if stamp != self._drawn:
            self._drawn = stamp
            self.show(footer_text(ids, view.state, width, palette(self.app)))


def footer_text(ids: tuple[str, ...], state: SessionState, width: int, colours: Palette) -> Text:
    """The footer in ``width`` cells: whole items only."""
    tail = _item("?", "help", colours)
    text = Text(" ", no_wrap=True)
    for id in ids:
        action = BY_ID[id]
        title = action.title
        if id == "pause":
            title = "resume" if state.paused else "go on" if state.interrupted else "pause"
        item = _item(action.key, title, colours)
        if text.cell_len + item.cell_len + tail.cell_len + 4 > width:
            continue
        text.append_text(item).append("  ")
    return text.append_text(tail)


def _item(key: str, title: str, colours: Palette) -> Text:
    return Text().append(key, colours.key).append(f" {title}", colours.plain)
