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
from textual.widgets import DataTable, Static

from core.errors import PilotageError
from core.state_parts import level_name
from tui.panes.rows import Row
from tui.screens.dialogs import Choose, Prompt
from tui.theme import Palette, palette
from tui.wording import ago, dollars, one_line

if TYPE_CHECKING:
    from sessions.catalog import Listed

LOOK_S = 3.0
"""Seconds between two looks at the sessions."""

EMPTY = """There are no sessions yet.

  pilotage demo       plays a whole migration on this machine: an agent, real runs,
                      measured levels; needs no key and no TPU
  pilotage run        starts a session on your own project
  pilotage doctor     says what is here and what is missing

Sessions are kept in {home}
"""

STATES = {
    "working": ("▶", "working", "info"),
    "waiting": ("?", "WAITING ON YOU", "warn"),
    "paused": ("‖", "paused", "warn"),
    "finished": ("■", "finished", "ok"),
    "failed": ("✗", "FAILED", "bad"),
    "stopped": ("■", "stopped", "muted"),
    "cut off": ("✗", "RECORDER GONE", "bad"),
    "idle": ("·", "not started", "muted"),
    "unreadable": ("✗", "unreadable", "bad"),
}

COLUMNS = ("state", "session", "title", "measured", "claimed", "attempts", "interv.", "agent $",
           "last activity")  # fmt: skip


class HomeScreen(Screen[None]):
    """All sessions, the latest activity first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "replay", "replay", show=False),
        Binding("x", "export", "export", show=False),
        Binding("question_mark", "help", "help", show=False),
        Binding("q", "app.leave", "quit", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._listed: list[Listed] | None = None
        self._stamp: object = None

    def compose(self) -> ComposeResult:
        """Title, table, what to do where it is empty, keys."""
        yield Static(id="home-head", markup=False)
        yield DataTable(id="sessions", cursor_type="row", zebra_stripes=False)
        yield Static(id="home-empty", markup=False)
        yield Static(id="home-note", markup=False)
        yield Static(id="home-keys", markup=False)

    def on_mount(self) -> None:
        """Look now, and again every few seconds."""
        colours = palette(self.app)
        self.query_one("#home-head", Static).update(
            Text(" pilotage ", colours.badge("work")) + Text("  reading the sessions …")
        )
        keys = Text(" ")
        for key, words in (("enter", "open"), ("p", "replay"), ("x", "export"), ("^p", "palette"),
                           ("q", "quit")):  # fmt: skip
            keys.append(key, colours.key).append(f" {words}   ")
        self.query_one("#home-keys", Static).update(keys)
        self.query_one(DataTable).add_columns(*COLUMNS)
        self.query_one("#home-empty").display = False
        self.look()
        self.set_interval(LOOK_S, self.look)

    def on_screen_resume(self) -> None:
        """Back from a session: its line may have changed."""
        if self._listed is not None:
            self.look()

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
        stamp = (listed, [ago(e.last_ts_us or 0, now_us) for e in listed], self.app.theme)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        live = sum(e.recording for e in listed)
        waiting = sum(e.state == "waiting" for e in listed)
        head = Text(" pilotage ", colours.badge("work"))
        head.append(f"  {len(listed)} session{'s' * (len(listed) != 1)}", colours.strong)
        head.append(f"   {live} recording" if live else "", colours.info)
        head.append(f"   {waiting} waiting on you" if waiting else "", colours.warn)
        self.query_one("#home-head", Static).update(head)
        table = self.query_one(DataTable)
        cursor = table.cursor_row
        table.clear()
        for entry in listed:
            table.add_row(*cells(entry, now_us, colours), key=entry.path)
        table.move_cursor(row=min(cursor, max(0, len(listed) - 1)), scroll=False)
        table.display = bool(listed)
        empty = self.query_one("#home-empty", Static)
        empty.display = not listed
        if not listed:
            empty.update(EMPTY.format(home=home()))
        self._note()

    def _note(self) -> None:
        entry = self._current()
        text = ""
        if entry is not None:
            text = one_line(entry.problem, 600) if entry.problem else one_line(entry.project, 200)
        self.query_one("#home-note", Static).update(text)

    def on_data_table_row_highlighted(self) -> None:
        """What the cursor is on, below the table."""
        self._note()

    def _current(self) -> Listed | None:
        row = self.query_one(DataTable).cursor_row
        return self._listed[row] if self._listed and 0 <= row < len(self._listed) else None

    # --- into a session ----------------------------------------------------------------------

    def _open(self, replay: bool) -> None:
        entry = self._current()
        if entry is None:
            return
        if entry.problem:
            self.notify(one_line(entry.problem, 600), severity="error", markup=False)
            return
        self.app.open_session(Path(entry.path), replay=replay)  # type: ignore[attr-defined]

    def on_data_table_row_selected(self) -> None:
        """Enter: the cockpit."""
        self._open(replay=False)

    def action_replay(self) -> None:
        """The same screen, played back."""
        self._open(replay=True)

    @work(group="export")
    async def action_export(self) -> None:
        """Write one of the tables of a session to a file."""
        from sessions.export import EXPORTS, export_file

        entry = self._current()
        if entry is None or entry.problem:
            return
        rows = [Row(Text(name), name) for name in EXPORTS]
        what = await self.app.push_screen_wait(Choose("export what?", rows, "interventions"))
        if what is None:
            return
        proposed = f"{entry.session_id}-{what}.csv"
        name = await self.app.push_screen_wait(
            Prompt("export to", "A name that ends in .csv or .jsonl.", value=proposed)
        )
        if not name:
            return
        fmt = "jsonl" if name.endswith(".jsonl") else "csv"
        target = Path(name).expanduser()
        try:
            await asyncio.to_thread(export_file, Path(entry.path), what, fmt, target)
        except (PilotageError, OSError) as err:
            self.notify(str(err), severity="error", markup=False)
            return
        self.notify(f"Written: {target.absolute()}", markup=False)


def cells(entry: Listed, now_us: int, colours: Palette) -> list[Text]:
    """The row of one session. State is a sign and a word; the colour repeats it."""
    sign, word, tone = STATES.get(entry.state, ("·", one_line(entry.state, 20), "muted"))
    style = getattr(colours, tone)
    cost = dollars(entry.usd) + ("+" if entry.unpriced_requests and entry.usd is not None else "")
    last = ago(entry.last_ts_us, now_us) if entry.last_ts_us else "–"
    return [
        Text(f"{sign} {word}", style),
        Text(one_line(entry.session_id, 40), colours.strong),
        Text(one_line(entry.title, 36), colours.plain),
        Text(level_name(entry.measured_level), colours.strong),
        Text(level_name(entry.claimed_level), colours.plain),
        Text(str(entry.attempts), colours.plain, justify="right"),
        Text(str(entry.interventions), colours.plain, justify="right"),
        Text(cost, colours.plain, justify="right"),
        Text(last, colours.muted),
    ]
