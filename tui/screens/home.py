"""The list of sessions: what there is, where each stands, and the way into it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Static

from core.errors import PilotageError
from core.state_parts import level_name
from tui.panes.rows import Row, RowList
from tui.screens.dialogs import Choose, Detail, Prompt
from tui.theme import Palette, palette
from tui.wording import ago, count, middle, one_line

if TYPE_CHECKING:
    from sessions.catalog import Listed

LOOK_S = 3.0
"""Seconds between two looks at the sessions."""

WIDE = 100
"""Cells from which a session's name has 34 of them."""

ROOMY = 118
"""Cells from which attempts, interventions and cost have columns of their own."""

EMPTY = """There are no sessions yet.

  pilotage demo      plays a whole migration on this machine: an agent,
                     real runs, measured levels. No key, no TPU needed.
  pilotage replay demo
                     plays a recorded one, without torch.
  pilotage run       starts a session on your own project.
  pilotage doctor    says what is here and what is missing.

Sessions are kept in
{home}
"""

HELP = (
    ("↑ ↓", "move"),
    ("enter", "open the cockpit: live where a recorder is at work, else at the last event"),
    ("p", "replay from the beginning"),
    ("x", "export a table: CSV, JSON Lines or Markdown, by the ending of the file's name"),
    ("T", "dark or light"),
    ("^p", "the palette"),
    ("q", "quit; recorders go on"),
    ("", ""),
    ("", "measured: the highest level whose checks all held. claimed: what the agent said."),
    ("", "What is not known is a dash or a word, never a zero."),
)
"""Keys of the list, and words for its columns."""

STATES = {
    "working": ("▶", "working", "info"),
    "waiting": ("?", "WAITS FOR YOU", "warn"),
    "paused": ("‖", "paused", "warn"),
    "finished": ("■", "finished", "ok"),
    "failed": ("✗", "FAILED", "bad"),
    "stopped": ("■", "stopped", "muted"),
    "cut off": ("✗", "RECORDER GONE", "bad"),
    "idle": ("·", "not started", "muted"),
    "unreadable": ("✗", "unreadable", "bad"),
}


class HomeScreen(Screen[None]):
    """All sessions, the latest activity first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "replay", "replay", show=False),
        Binding("x", "export", "export", show=False),
        Binding("question_mark", "help", "help", show=False),
        Binding("T", "app.toggle_theme", "dark/light", show=False),
        Binding("q", "app.leave", "quit", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._listed: list[Listed] | None = None
        self._stamp: object = None

    def compose(self) -> ComposeResult:
        """Title, list, what to do where it is empty, keys."""
        yield Static(id="home-head", markup=False)
        yield Static(id="home-columns", markup=False)
        yield RowList(id="sessions")
        yield Static(id="home-empty", markup=False)
        yield Static(id="home-keys", markup=False)

    def on_mount(self) -> None:
        """Look now, and again every few seconds."""
        colours = palette(self.app)
        head = Text().append(" pilotage ", colours.badge("work"))
        self.query_one("#home-head", Static).update(head.append("  reading the sessions …"))
        self.query_one("#home-empty").display = False
        self.look()
        self.set_interval(LOOK_S, self.look)

    def on_screen_resume(self) -> None:
        """Back from a session: its line may have changed."""
        if self._listed is not None:
            self.look()

    def on_resize(self) -> None:
        """Other columns fit."""
        if self._listed is not None:
            self._draw(self._listed)

    @work(exclusive=True, group="look")
    async def look(self) -> None:
        """Read the list, in a thread, and draw it."""
        from sessions.catalog import listing

        try:
            listed = await asyncio.to_thread(listing)
        except PilotageError as err:
            self.notify(str(err), severity="error", markup=False)
            return
        self._listed = listed
        self._draw(listed)

    def _draw(self, listed: list[Listed]) -> None:
        from sessions.home import home

        colours = palette(self.app)
        now_us = time.time_ns() // 1000
        width = self.size.width
        stamp = (listed, [ago(e.last_ts_us or 0, now_us) for e in listed], width, self.app.theme)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        self.query_one("#home-head", Static).update(_head(listed, colours))
        self.query_one("#home-keys", Static).update(_keys(bool(listed), colours))
        columns = self.query_one("#home-columns", Static)
        columns.display = bool(listed)
        names = _columns(width)
        line = "".join(f"{name:<{size}}" for name, size in names)
        columns.update(Text("   " + line, colours.muted, no_wrap=True))
        rows = self.query_one("#sessions", RowList)
        shown = [session_row(e, now_us, width, colours) for e in listed]
        rows.set_rows([row for each in shown for row in (each, Row(Text()))])
        rows.display = bool(listed)
        if listed and not any(e.path == rows.cursor for e in listed):
            rows.cursor = listed[0].path
        if listed and self.focused is None:
            rows.focus()
        empty = self.query_one("#home-empty", Static)
        empty.display = not listed
        if not listed:
            empty.update(EMPTY.format(home=home()))

    def _current(self) -> Listed | None:
        cursor = self.query_one("#sessions", RowList).cursor
        return next((e for e in self._listed or () if e.path == cursor), None)

    # --- into a session ----------------------------------------------------------------------

    def _open(self, replay: bool) -> None:
        entry = self._current()
        if entry is None:
            return
        if entry.problem:
            self.notify(one_line(entry.problem, 600), severity="error", markup=False)
            return
        self.app.open_session(Path(entry.path), replay=replay)  # type: ignore[attr-defined]

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        """Enter: the cockpit."""
        event.stop()
        self._open(replay=False)

    def action_replay(self) -> None:
        """The same screen, played back."""
        self._open(replay=True)

    def action_help(self) -> None:
        """The keys of this list, and what else there is."""
        colours = palette(self.app)
        rows = [
            Row(Text(words, colours.muted), lead=Text(f"  {key:<7}", colours.key))
            for key, words in HELP
        ]
        self.app.push_screen(Detail("help", rows, can_go=False))

    @work(group="export")
    async def action_export(self) -> None:
        """Write one of the tables of a session to a file."""
        from sessions.export import EXPORTS, export_file

        entry = self._current()
        if entry is None or entry.problem:
            return
        colours = palette(self.app)
        rows = [
            Row(Text(export.doc, colours.muted), name, Text(f"{name:<15}", colours.strong))
            for name, export in EXPORTS.items()
        ]
        what = await self.app.push_screen_wait(Choose("export what?", rows, "interventions"))
        if what is None:
            return
        proposed = f"{entry.session_id}-{what}.csv"
        name = await self.app.push_screen_wait(
            Prompt("export to", "A file name that ends in .csv, .jsonl or .md.", value=proposed)
        )
        if not name:
            return
        fmt = {".jsonl": "jsonl", ".md": "markdown"}.get(Path(name).suffix, "csv")
        target = Path(name).expanduser()
        try:
            about = await asyncio.to_thread(export_file, Path(entry.path), what, fmt, target)
        except (PilotageError, OSError) as err:
            self.notify(str(err), severity="error", markup=False)
            return
        self.notify(f"{count(about.rows, 'row')} written to {target.absolute()}", markup=False)


def _head(listed: list[Listed], colours: Palette) -> Text:
    live = sum(e.recording for e in listed)
    waiting = sum(e.state == "waiting" for e in listed)
    head = Text().append(" pilotage ", colours.badge("work"))
    head.append(f"  {count(len(listed), 'session')}", colours.strong)
    head.append(f"   {live} recording" if live else "", colours.info)
    return head.append(f"   {waiting} waiting on you" if waiting else "", colours.warn)


def _keys(some: bool, colours: Palette) -> Text:
    keys = [("enter", "open"), ("p", "replay"), ("x", "export")] if some else []
    text = Text(" ")
    for key, words in [*keys, ("^p", "palette"), ("?", "help"), ("q", "quit")]:
        text.append(key, colours.key).append(f" {words}   ", colours.plain)
    return text


def _columns(width: int) -> list[tuple[str, int]]:
    """Names and widths of the columns in a terminal of ``width`` cells; the last takes the rest."""
    name = 31 if width < WIDE else 35 + max(0, min(width - ROOMY - 2, 20))
    columns = [("state", 14), ("session", name), ("measured", 9), ("claimed", 8)]
    if width >= ROOMY:
        columns += [("attempts", 9), ("interventions", 14), ("agent $", 14)]
    return [*columns, ("last", 1)]


def session_row(entry: Listed, now_us: int, width: int, colours: Palette) -> Row:
    """One session in two lines. State is a sign and a word; the colour repeats it."""
    columns, roomy = _columns(width), width >= ROOMY
    sign, word, tone = STATES.get(entry.state, ("·", one_line(entry.state, 14), "muted"))
    style = getattr(colours, tone)
    lead = Text().append(f"{sign} ", style)
    values = [
        (word, style),
        (middle(entry.session_id, columns[1][1] - 1), colours.strong),
        (level_name(entry.measured_level), colours.strong),
        (level_name(entry.claimed_level), colours.plain),
    ]
    cost = one_line(entry.cost, 20) or "unknown"
    if roomy:
        values += [
            (str(entry.attempts), colours.plain),
            (str(entry.interventions), colours.plain),
            (cost, colours.plain),
        ]
    last = ago(entry.last_ts_us, now_us) if entry.last_ts_us else "–"
    values.append((last, colours.muted))
    text = Text()
    if entry.problem:
        text.append(f"{word:<{columns[0][1]}}", style)
        text.append(one_line(entry.session_id, 40), colours.strong)
        text.append(f"\n{one_line(entry.problem, 600)}", colours.muted)
        return Row(text, entry.path, lead)
    for (value, look), (_, size) in zip(values, columns, strict=True):
        text.append(f"{value:<{size}}", look)
    more = [one_line(entry.title, 60), one_line(entry.project, 100)]
    if not roomy:
        more.insert(1, f"{count(entry.attempts, 'attempt')}, {cost}")
    text.append("\n" + " · ".join(m for m in more if m), colours.muted)
    return Row(text, entry.path, lead)
