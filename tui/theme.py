"""The cockpit's themes, and the few styles its panes draw with.

A state is always a sign and a word first; the colour only repeats it.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.style import Style
from textual.app import App
from textual.color import Color
from textual.theme import Theme

DARK = Theme(
    name="pilotage-dark",
    primary="#6cb6e0",
    secondary="#8fa9bd",
    accent="#e7b75c",
    warning="#e7b75c",
    error="#f2777a",
    success="#83c995",
    foreground="#d6dfe7",
    background="#10171f",
    surface="#141d27",
    panel="#1e2b38",
    dark=True,
)
LIGHT = Theme(
    name="pilotage-light",
    primary="#0b5f8f",
    secondary="#4d6678",
    accent="#8a5a00",
    warning="#8a5a00",
    error="#b3261e",
    success="#1d6b35",
    foreground="#1b242c",
    background="#fbfcfd",
    surface="#f3f6f8",
    panel="#dfe7ed",
    dark=False,
)
THEMES = (DARK, LIGHT)


@dataclass(frozen=True, slots=True)
class Palette:
    """Rich styles for text that panes draw themselves, taken from the app's theme."""

    plain: Style
    muted: Style
    strong: Style
    ok: Style
    bad: Style
    warn: Style
    accent: Style
    info: Style
    key: Style

    def badge(self, tone: str) -> Style:
        """The style of a state badge, for a tone of :class:`tui.status.Status`."""
        base = {
            "wait": self.warn,
            "work": self.info,
            "run": self.info,
            "pause": self.warn,
            "done": self.ok,
            "bad": self.bad,
        }.get(tone, self.muted)
        return base + Style(bold=True, reverse=True)


def palette(app: App[object]) -> Palette:
    """The palette of the app's present theme."""
    names = app.theme_variables
    ink, paper = Color.parse(names["foreground"]), Color.parse(names["background"])

    def style(color: Color, bold: bool = False) -> Style:
        return Style(color=color.rich_color, bold=bold or None)

    return Palette(
        plain=style(ink),
        muted=style(paper.blend(ink, 0.62)),
        strong=style(ink, bold=True),
        ok=style(Color.parse(names["success"])),
        bad=style(Color.parse(names["error"]), bold=True),
        warn=style(Color.parse(names["warning"])),
        accent=style(Color.parse(names["accent"])),
        info=style(Color.parse(names["primary"])),
        key=style(Color.parse(names["accent"]), bold=True),
    )
