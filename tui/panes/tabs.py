"""The panes by name and number, and the line of tabs shown where only one of them fits."""

from __future__ import annotations

from dataclasses import dataclass

from rich.text import Text

from tui.panes.line import Line
from tui.theme import palette
from tui.view import View


@dataclass(frozen=True, slots=True)
class Pane:
    """A pane: its number key, its title, and the widget in it that takes the focus."""

    number: int
    title: str
    focus: str


PANES = {
    "diff": Pane(1, "diff", "#diff-view"),
    "agent": Pane(2, "agent", "#agent-rows"),
    "run": Pane(3, "run", "#log"),
    "levels": Pane(4, "levels", "#level-rows"),
    "timeline": Pane(5, "timeline", "#strip"),
}


class TabLine(Line):
    """``1 diff  [2 agent]  3 run  4 levels``: brackets, not only a colour, mark the open one."""

    def __init__(self) -> None:
        super().__init__("tabs")
        self._drawn: tuple[object, ...] = ()

    def draw(self, view: View) -> None:
        """Draw the tabs; one where something waits for the operator has a sign."""
        waiting = view.state.pending_ask is not None and view.acting
        failing = any(level.state == "fail" for level in view.ladder.levels)
        stamp = (view.pane, waiting, failing, self.app.theme)
        if stamp == self._drawn:
            return
        self._drawn = stamp
        colours = palette(self.app)
        text = Text(" ", no_wrap=True)
        for name, pane in PANES.items():
            if name == "timeline":
                continue
            note = {"agent": "?" * waiting, "levels": "✗" * failing}.get(name, "")
            label = f"{pane.number} {pane.title}{' ' + note if note else ''}"
            if name == view.pane:
                text.append(f"[{label}]", colours.key)
            else:
                text.append(f" {label} ", colours.warn if note else colours.muted)
            text.append(" ")
        self.show(text)
