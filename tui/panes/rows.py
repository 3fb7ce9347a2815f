"""A list of wrapped rows with a cursor, drawn line by line over plain data.

Rows are Rich ``Text`` that was built from cleaned strings; nothing here parses markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from rich.console import Console
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

_CONSOLE = Console(width=80, color_system=None, legacy_windows=False)  # only measures and wraps

GUTTER = 1
"""Cells left of every row, where the cursor's sign stands."""


@dataclass(slots=True)
class Row:
    """One row. ``lead`` stands before the first line, and as much space before the others.

    ``key`` names what the row shows and keeps the cursor on it while rows come and go; a row
    without a key can't be chosen.
    """

    text: Text
    key: str = ""
    lead: Text = field(default_factory=Text)
    _width: int = field(default=-1, compare=False)
    _lines: list[Text] = field(default_factory=list, compare=False)

    def lines(self, width: int) -> list[Text]:
        """The row in lines of at most ``width`` cells; kept until the width changes."""
        if width != self._width:
            room = max(4, width - self.lead.cell_len)
            wrapped = [
                piece
                for line in self.text.split("\n", allow_blank=True)
                for piece in (line.wrap(_CONSOLE, room, overflow="fold") or [Text()])
            ] or [Text()]
            pad = Text(" " * self.lead.cell_len)
            self._lines = [(pad if i else self.lead) + line for i, line in enumerate(wrapped)]
            self._width = width
        return self._lines


class RowList(ScrollView, can_focus=True):
    """Rows with a cursor. With ``follow``, the end stays in view until the operator scrolls up."""

    DEFAULT_CSS = """
    RowList {
        & .rowlist--cursor { background: $primary 22%; }
        background: $background;
        overflow-x: hidden;
        overflow-y: scroll; /* always there: rows must not wrap anew when it comes */
        scrollbar-size-vertical: 1;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "cursor(-1)", "up", show=False),
        Binding("down,j", "cursor(1)", "down", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
        Binding("pagedown", "page(1)", "page down", show=False),
        Binding("home", "edge(-1)", "first", show=False),
        Binding("end", "edge(1)", "last", show=False),
        Binding("enter", "choose", "detail", show=False),
        Binding("g", "go", "go to this moment", show=False),
    ]

    COMPONENT_CLASSES: ClassVar[set[str]] = {"rowlist--cursor"}

    class Chosen(Message):
        """Enter, or a click on the row that has the cursor."""

        def __init__(self, rows: RowList, key: str) -> None:
            super().__init__()
            self.rows, self.key = rows, key

        @property
        def control(self) -> RowList:
            """The list the row is in."""
            return self.rows

    class GoTo(Chosen):
        """The operator wants all panes to show the moment of a row."""

    cursor: reactive[str] = reactive("", init=False)

    def __init__(self, *, follow: bool = False, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rows: list[Row] = []
        self._lines: list[tuple[int, Text]] = []
        self._starts: list[int] = []
        self._follow = follow
        self._at_end = follow

    @property
    def rows(self) -> Sequence[Row]:
        """The rows as they were set."""
        return self._rows

    def plain_text(self) -> str:
        """Everything in the list as text, for tests and for copying."""
        return "\n".join(line.plain for _, line in self._lines)

    def set_rows(self, rows: Sequence[Row]) -> None:
        """Show ``rows``; scroll position and cursor stay where they were."""
        if list(rows) == self._rows:
            return  # an idle cockpit sends nothing
        self._rows = list(rows)
        self._flow()
        self._keep_end()

    def _flow(self) -> None:
        width = max(8, self.scrollable_content_region.width - GUTTER)
        self._lines, self._starts = [], []
        for index, row in enumerate(self._rows):
            self._starts.append(len(self._lines))
            self._lines.extend((index, line) for line in row.lines(width))
        self.virtual_size = Size(width + GUTTER, len(self._lines))
        self.refresh()

    def on_resize(self, event: events.Resize) -> None:
        """Wrap again for the new width."""
        self._flow()
        self._keep_end()

    def _keep_end(self) -> None:
        if self._at_end and not self.cursor:
            # The height, and so the last line in sight, is known only after the layout.
            self.call_after_refresh(self._to_end)

    def _to_end(self) -> None:
        if self._at_end and not self.cursor:
            self.scroll_to(y=max(0, len(self._lines) - self.size.height), animate=False)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """A scroll away from the end ends following; one back to it begins it again."""
        super().watch_scroll_y(old_value, new_value)
        if self._follow and new_value >= self.max_scroll_y:
            self._at_end = True
        elif new_value < old_value:
            self._at_end = False

    def render_line(self, y: int) -> Strip:
        """One line of the list, with the cursor's sign in the gutter."""
        base = self.rich_style
        width = self.scrollable_content_region.width
        index = y + self.scroll_offset.y
        if index >= len(self._lines):
            return Strip.blank(width, base)
        row_index, line = self._lines[index]
        row = self._rows[row_index]
        chosen = bool(row.key) and row.key == self.cursor
        if chosen and self.has_focus:
            cursor = self.get_component_rich_style("rowlist--cursor")
            base = base + Style(bgcolor=cursor.bgcolor)
        first = index == self._starts[row_index]
        sign = "▸" if chosen and first else " "
        strip = Strip(list((Text(sign) + line).render(_CONSOLE)))
        return strip.adjust_cell_length(width).apply_style(base)

    # --- the cursor --------------------------------------------------------------------------

    def _keys(self) -> list[int]:
        return [i for i, row in enumerate(self._rows) if row.key]

    def _at(self) -> int | None:
        return next((i for i, r in enumerate(self._rows) if r.key and r.key == self.cursor), None)

    def action_cursor(self, step: int) -> None:
        """Move the cursor by one choosable row; without one, scroll."""
        keys = self._keys()
        if not keys:
            self.scroll_relative(y=step, animate=False)
            return
        at = self._at()
        if at is None:
            # The first move picks the row nearest to what is on the screen.
            self._put(keys[-1] if self._follow or step < 0 else keys[0])
            return
        place = keys.index(at) + step
        if place >= len(keys) and self._follow:
            self._follow_again()  # beyond the last row
            return
        self._put(keys[max(0, min(place, len(keys) - 1))])

    def action_page(self, step: int) -> None:
        """Scroll by a page; the cursor goes along."""
        keys = self._keys()
        height = max(1, self.size.height - 1)
        top = self.scroll_offset.y + step * height
        self.scroll_to(y=top, animate=False)
        if keys and self._starts:
            self._put(min(keys, key=lambda i: abs(self._starts[i] - max(0, top))), scroll=False)

    def action_edge(self, step: int) -> None:
        """The first or last row; at the end of a following list, follow again."""
        if step > 0 and self._follow:
            self._follow_again()
            return
        keys = self._keys()
        if keys:
            self._put(keys[0 if step < 0 else -1])
        if step < 0:
            self.scroll_home(animate=False)
        else:
            self.scroll_end(animate=False)

    def _follow_again(self) -> None:
        self.cursor, self._at_end = "", True
        self._to_end()
        self.refresh()

    def _put(self, index: int, scroll: bool = True) -> None:
        self.cursor = self._rows[index].key
        if scroll:
            top, height = self._starts[index], self.size.height
            size = len(self._rows[index].lines(self._rows[index]._width))
            if top < self.scroll_offset.y:
                self.scroll_to(y=top, animate=False)
            elif top + size > self.scroll_offset.y + height:
                self.scroll_to(y=min(top, top + size - height), animate=False)
        self.refresh()

    def action_choose(self) -> None:
        """Tell which row was chosen."""
        if self._at() is not None:
            self.post_message(self.Chosen(self, self.cursor))

    def action_go(self) -> None:
        """Tell that all panes should go to the row's moment."""
        if self._at() is not None:
            self.post_message(self.GoTo(self, self.cursor))

    def on_click(self, event: events.Click) -> None:
        """Put the cursor on the row; a second click chooses it."""
        index = event.y + self.scroll_offset.y
        if index >= len(self._lines):
            return
        row_index = self._lines[index][0]
        key = self._rows[row_index].key
        if key and key == self.cursor:
            self.post_message(self.Chosen(self, key))
        elif key:
            self._put(row_index, scroll=False)

    def on_focus(self) -> None:
        """The cursor is drawn differently with the focus."""
        self.refresh()

    def on_blur(self) -> None:
        """The cursor is drawn differently without the focus."""
        self.refresh()
