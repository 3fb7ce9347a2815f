"""A scrolling view of rows with a cursor, drawn line by line from plain data.

A view of a million rows costs as much as one of fifty: only rows in sight are ever looked at.
"""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tui.widgets.cells import fit


@lru_cache(maxsize=512)
def ink(style: Style) -> Style:
    """A style without its background, to lay over another one."""
    return Style(
        color=style.color,
        bold=style.bold,
        italic=style.italic,
        underline=style.underline,
        reverse=style.reverse,
    )


class RowView(ScrollView, can_focus=True, inherit_bindings=False):
    """Rows and a cursor row. Subclasses say what the rows are."""

    HELP = ""
    KEYS_HELP: ClassVar[str] = """
| key | does |
|---|---|
| up, down, page up, page down | move the cursor |
| home, end | first row, last row |
| left, right | scroll sideways; **0** back to the first column |
"""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "cursor(-1)", "Up", show=False),
        Binding("down,j", "cursor(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home,g", "first", "First", show=False),
        Binding("end,G", "last", "Last", show=False),
        Binding("left", "sideways(-8)", "Left", show=False),
        Binding("right", "sideways(8)", "Right", show=False),
        Binding("0", "first_column", "First column", show=False),
        Binding("enter", "choose", "Choose", show=False),
    ]

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "rows--plain",
        "rows--muted",
        "rows--cursor",
        "rows--chip",
        "rows--more",
    }

    DEFAULT_CSS = """
    RowView {
        overflow-x: auto;
        overflow-y: auto;
        scrollbar-size-vertical: 1;
        scrollbar-size-horizontal: 0;
        scrollbar-background: $background;
        scrollbar-background-hover: $background;
        scrollbar-color: $foreground 25%;
        background: $background;
        color: $foreground;
        & .rows--muted { color: $foreground 60%; }
        & .rows--cursor { background: $primary 22%; }
        & .rows--chip { color: $background; background: $primary; text-style: bold; }
        & .rows--more { color: $primary; background: $panel; text-style: bold; }
    }
    """

    def __init__(
        self,
        *,
        ascii: bool = False,
        name: str | None = None,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        super().__init__(name=name, id=id, classes=classes)
        self.ascii = ascii
        """Draw signs in ASCII only, for terminals without Unicode."""
        self.cursor = 0
        """Index of the cursor row; 0 in an empty view."""
        self._widest = 0  # cells of the widest row drawn so far
        self._row_cells = 0  # cells of the row being drawn
        self._resizing = False

    # What a subclass says about its rows.

    def row_count(self) -> int:
        """Number of rows."""
        raise NotImplementedError

    def draw_row(self, index: int, x: int, width: int) -> list[Segment]:
        """Exactly ``width`` cells of a row, its text scrolled by ``x``."""
        raise NotImplementedError

    def draw_empty(self, y: int, width: int) -> list[Segment]:
        """A row of a view without rows."""
        return [Segment(" " * width, self.look("plain"))]

    def chip(self) -> str:
        """A short text over the right end of the last row, or nothing."""
        return ""

    def moved(self) -> None:
        """The cursor or the scroll has changed."""

    # Styles.

    def look(self, name: str) -> Style:
        """A component style of this class with its background."""
        return self.get_component_rich_style(f"rows--{name}")

    # Size.

    def rows_changed(self) -> None:
        """Call after the number of rows has changed."""
        count = self.row_count()
        self.cursor = max(0, min(self.cursor, count - 1))
        self._resize_rows()
        self.refresh()

    def need_width(self, cells: int) -> None:
        """Called while drawing: the row is this wide. The view grows when the frame is done."""
        self._row_cells = cells
        if cells > self._widest:
            self._widest = cells
            if not self._resizing and self.is_attached:
                self._resizing = True
                self.call_later(self._resize_rows)

    def mark_cut(self, body: list[Segment], x: int, width: int) -> list[Segment]:
        """Put a sign into the last of ``width`` cells where the row goes on beyond them."""
        if self._row_cells - x <= width or width < 6:
            return body
        more = Segment(">" if self.ascii else "›", self.look("more"))
        return [*Strip(body, width).crop(0, width - 1), more]

    def _resize_rows(self) -> None:
        self._resizing = False
        size = Size(self._widest, self.row_count())
        if size != self.virtual_size:
            self.virtual_size = size

    # Moving.

    def put_scroll(self, x: int | None = None, y: int | None = None) -> None:
        """Scroll at once, also before the scrollbars know how much there is."""
        if x is not None:
            self.scroll_target_x = self.scroll_x = x
        if y is not None:
            self.scroll_target_y = self.scroll_y = y

    def move_cursor(self, index: int) -> None:
        """Put the cursor on a row and scroll it into sight."""
        self.cursor = max(0, min(index, self.row_count() - 1))
        self._show_cursor()
        self.moved()
        self.refresh()

    def jump_to(self, index: int) -> None:
        """Put the cursor on a row; one out of sight comes to a third of the height, with context."""
        height = max(1, self.scrollable_content_region.height)
        top = self.scroll_offset.y
        if not top <= index < top + height:
            self.put_scroll(y=max(0, index - height // 3))
        self.move_cursor(index)

    def _show_cursor(self) -> None:
        height = self.scrollable_content_region.height
        usable = max(1, height)
        top = self.scroll_offset.y
        if self.cursor < top:
            self.put_scroll(y=self.cursor)
        elif self.cursor >= top + usable:
            self.put_scroll(y=self.cursor - usable + 1)

    def _cursor_in_sight(self) -> int:
        """The cursor, or the row in sight nearest to it after the wheel has scrolled away."""
        top = self.scroll_offset.y
        bottom = top + max(1, self.scrollable_content_region.height) - 1
        return max(top, min(self.cursor, bottom))

    def action_cursor(self, rows: int) -> None:
        self.move_cursor(self._cursor_in_sight() + rows)

    def action_page(self, pages: int) -> None:
        height = max(1, self.scrollable_content_region.height - 1)
        self.put_scroll(y=self.scroll_offset.y + pages * height)
        self.move_cursor(self._cursor_in_sight() + pages * height)

    def action_first(self) -> None:
        self.move_cursor(0)

    def action_last(self) -> None:
        self.move_cursor(self.row_count() - 1)

    def action_sideways(self, cells: int) -> None:
        self.put_scroll(x=max(0, self.scroll_offset.x + cells))

    def action_first_column(self) -> None:
        self.put_scroll(x=0)

    def action_choose(self) -> None:
        """Tell the app that the cursor row is chosen."""

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.moved()

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        row = self.scroll_offset.y + offset.y if offset is not None else -1
        if 0 <= row < self.row_count():
            self.move_cursor(row)
            if event.chain == 2:
                self.action_choose()

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    # Drawing.

    def render_line(self, y: int) -> Strip:
        width, height = self.scrollable_content_region.size
        x, top = self.scroll_offset
        index = top + y
        if index < self.row_count():
            strip = Strip(self.draw_row(index, x, width), width)
        elif not self.row_count():
            strip = Strip(self.draw_empty(y, width), width)
        else:
            strip = Strip([Segment(" " * width, self.look("plain"))], width)
        if y == height - 1:
            return self._overlay(strip, width)
        return strip

    def _overlay(self, strip: Strip, width: int) -> Strip:
        """The last row with what stands over it."""
        text = self.chip()
        return self.put_right(strip, f" {text} ", self.look("chip"), width) if text else strip

    @staticmethod
    def put_right(strip: Strip, text: str, style: Style, width: int) -> Strip:
        """A text over the right end of a row."""
        text = fit(text, min(cell_len(text), width))
        return Strip.join([strip.crop(0, width - cell_len(text)), Strip([Segment(text, style)])])
