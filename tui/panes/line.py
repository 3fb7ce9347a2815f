"""Text of a few lines that is drawn anew without laying the whole screen out anew."""

from __future__ import annotations

from rich.text import Text
from textual.widgets import Static


class Line(Static):
    """A ``Static`` for Rich text. Only another number of lines costs a layout of the screen.

    A layout repaints every cell; once a second, over SSH, that is most of what an idle
    cockpit would send.
    """

    def __init__(self, id: str) -> None:
        super().__init__(id=id, markup=False)
        self._height = -1

    def show(self, text: Text) -> None:
        """Draw ``text``."""
        height = text.plain.count("\n")
        self.update(text, layout=height != self._height)
        self._height = height
