"""The help screen: every action of the registry with its key, and the keys of the pane in focus."""

from __future__ import annotations

from rich.text import Text

from tui.actions import ACTIONS, GROUP_TITLES, GROUPS, SHOWN
from tui.panes.rows import Row
from tui.screens.dialogs import Detail
from tui.theme import Palette
from tui.view import View

SIGNS = (
    ("✓", "pass"),
    ("✗", "FAIL"),
    ("·", "not run: nothing was measured, which is no pass"),
    (
        "~",
        "stale: measured, but on other code, command, criteria or reference; what it was stands behind it",
    ),
    ("w", "waived by you, with a reason"),
)
LISTS = (
    ("↑ ↓", "move"),
    ("enter", "detail: the evidence of a check, the result of a tool call; folds a level"),
    ("g", "move all panes to the moment of the row"),
    ("tab", "the next pane"),
    ("mouse", "works where the terminal has one; nothing needs it"),
)


def help_rows(view: View, pane_help: str, colours: Palette) -> list[Row]:
    """All actions by group; one that can't be done now says why."""
    rows: list[Row] = []
    if pane_help:
        rows.append(Row(Text("This pane", colours.strong)))
        rows += _pane_rows(pane_help, colours)
        rows.append(Row(Text()))
    for group in GROUPS:
        actions = [a for a in ACTIONS if a.group == group and (a.replay if view.replay else a.live)]
        if not actions:
            continue
        rows.append(Row(Text(GROUP_TITLES[group], colours.strong)))
        for action in actions:
            keys = ", ".join(SHOWN.get(k, k) for k in action.keys)
            text = Text().append(action.help, colours.muted)
            if reason := action.blocked(view):
                text.append(f"\nnot now: {reason}", colours.warn)
            rows.append(_row(keys, action.title, text, colours))
        rows.append(Row(Text()))
    rows.append(Row(Text("In every list", colours.strong)))
    rows += [_row(k, "", Text(words, colours.muted), colours) for k, words in LISTS]
    rows.append(Row(Text()))
    rows.append(Row(Text("Signs", colours.strong)))
    rows += [_row(k, "", Text(words, colours.muted), colours) for k, words in SIGNS]
    return rows


def _row(keys: str, title: str, text: Text, colours: Palette) -> Row:
    lead = Text().append(f"  {keys:<7}", colours.key)
    if title:
        lead.append(f"{title:<20} ", colours.plain)
    return Row(text, lead=lead)


def _pane_rows(pane_help: str, colours: Palette) -> list[Row]:
    """The Markdown of a widget's help as rows: paragraphs, and tables of keys."""
    rows: list[Row] = []
    paragraph: list[str] = []
    for line in [*pane_help.replace("**", "").splitlines(), ""]:
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if len(cells) == 2 and not set(cells[0]) <= {"-"} and cells[0] not in ("key", "sign"):
                lead = Text().append(f"  {cells[0]:<32} ", colours.key)
                rows.append(Row(Text(cells[1], colours.muted), lead=lead))
        elif line and not line.startswith("#"):
            paragraph.append(line)
        elif paragraph:
            rows.append(Row(Text(" ".join(paragraph), colours.muted), lead=Text("  ")))
            paragraph = []
    return rows


class Help(Detail):
    """The help, over whatever it was asked in."""

    def __init__(self, rows: list[Row]) -> None:
        super().__init__("keys", rows, can_go=False)
