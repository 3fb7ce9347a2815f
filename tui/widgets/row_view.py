"""A scrolling view of rows with a cursor and a search, drawn line by line from plain data.

Base of the log and the diff. A view of a million rows costs as much as one of fifty: only rows in
sight are ever looked at, apart from the search, which reads the others in slices of time.
"""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tui.widgets.cells import fit, printable
from tui.widgets.search import Query, Scan, SearchError

SEARCH_SLICE_S = 0.01
"""Time for the search between two frames; a key press waits at most that long behind it."""


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
    """Rows, a cursor row, and a search over all rows. Subclasses say what the rows are."""

    HELP = ""
    SEARCH_HELP: ClassVar[str] = """
| key | does |
|---|---|
| up, down, page up, page down | move the cursor |
| home, end | first row, last row |
| left, right | scroll sideways; **0** back to the first column |
| **/** | search; capitals in the pattern make it case-sensitive |
| **ctrl+r** while typing | plain text or regular expression |
| **n**, **N** | next and previous match |
| **escape** | end the search |
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
        Binding("slash", "search", "Search"),
        Binding("n", "match(1)", "Next match", show=False),
        Binding("N", "match(-1)", "Previous match", show=False),
        Binding("escape", "end_search", "End search", show=False),
    ]

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "rows--plain",
        "rows--muted",
        "rows--cursor",
        "rows--match",
        "rows--match-here",
        "rows--prompt",
        "rows--chip",
        "rows--more",
        "rows--warning",
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
        & .rows--match { color: $background; background: $warning; }
        & .rows--match-here { color: $background; background: $warning; text-style: bold underline; }
        & .rows--prompt { color: $foreground; background: $panel; }
        & .rows--chip { color: $background; background: $primary; text-style: bold; }
        & .rows--more { color: $primary; background: $panel; text-style: bold; }
        & .rows--warning { color: $error; background: $panel; text-style: bold; }
    }
    """

    class SearchChanged(Message):
        """The search has begun, found more, moved or ended; `text` is what a title can show."""

        def __init__(self, view: RowView, text: str) -> None:
            super().__init__()
            self.view = view
            self.text = text

        @property
        def control(self) -> RowView:
            return self.view

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
        self._typing: str | None = None  # the pattern while it is typed
        self._typing_regex = False
        self._scan: Scan | None = None
        self._scanning = False
        self._jump = 0  # direction of a jump that waits for its match to be found
        self._jump_from = 0
        self._problem = ""  # a sentence about a pattern that can't be used
        self._told = ""

    # What a subclass says about its rows.

    def row_count(self) -> int:
        """Number of rows."""
        raise NotImplementedError

    def row_text(self, index: int) -> str:
        """What the search looks at; need not be printable."""
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
        if self._scan is not None and not self._scan.done(count):
            self._search_on()
        self.refresh()

    def need_width(self, cells: int) -> None:
        """Called while drawing: the row is this wide. The view grows when the frame is done."""
        self._row_cells = cells
        if cells > self._widest:
            self._widest = cells
            if not self._resizing and self.is_attached:
                self._resizing = True
                self.call_later(self._resize_rows)

    def _resize_rows(self) -> None:
        self._resizing = False
        size = Size(self._widest, self.row_count())
        if size != self.virtual_size:
            self.virtual_size = size

    # Moving.

    def move_cursor(self, index: int) -> None:
        """Put the cursor on a row and scroll it into sight."""
        self.cursor = max(0, min(index, self.row_count() - 1))
        self._show_cursor()
        self.moved()
        self.refresh()

    def _show_cursor(self) -> None:
        height = self.scrollable_content_region.height
        # The prompt lies over the last row.
        usable = max(1, height - (1 if self._typing is not None and height > 1 else 0))
        top = self.scroll_offset.y
        if self.cursor < top:
            self.scroll_to(y=self.cursor, animate=False)
        elif self.cursor >= top + usable:
            self.scroll_to(y=self.cursor - usable + 1, animate=False)

    def _cursor_in_sight(self) -> int:
        """The cursor, or the row in sight nearest to it after the wheel has scrolled away."""
        top = self.scroll_offset.y
        bottom = top + max(1, self.scrollable_content_region.height) - 1
        return max(top, min(self.cursor, bottom))

    def action_cursor(self, rows: int) -> None:
        self.move_cursor(self._cursor_in_sight() + rows)

    def action_page(self, pages: int) -> None:
        height = max(1, self.scrollable_content_region.height - 1)
        self.scroll_to(y=self.scroll_offset.y + pages * height, animate=False)
        self.move_cursor(self._cursor_in_sight() + pages * height)

    def action_first(self) -> None:
        self.move_cursor(0)

    def action_last(self) -> None:
        self.move_cursor(self.row_count() - 1)

    def action_sideways(self, cells: int) -> None:
        self.scroll_to(x=max(0, self.scroll_offset.x + cells), animate=False)

    def action_first_column(self) -> None:
        self.scroll_to(x=0, animate=False)

    def action_choose(self) -> None:
        """Tell the app that the cursor row is chosen."""

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.moved()

    def on_click(self, event: events.Click) -> None:
        row = self.scroll_offset.y + event.y
        if 0 <= row < self.row_count():
            self.move_cursor(row)
            if event.chain == 2:
                self.action_choose()

    # Search.

    @property
    def search_text(self) -> str:
        """The state of the search in words, empty when there is none."""
        if self._problem:
            return self._problem
        scan = self._scan
        if scan is None:
            return ""
        pattern = fit(printable(scan.query.pattern), 24).rstrip()
        kind = "regex " if scan.query.regex else ""
        more = "" if scan.done(self.row_count()) else "+"
        if not scan.count:
            return f"{kind}/{pattern}  " + ("searching" if more else "no match")
        rank = scan.rank(self.cursor)
        where = f"{rank:,} of " if rank is not None and not more else ""
        return f"{kind}/{pattern}  {where}{scan.count:,}{more}"

    def search(self, pattern: str, regex: bool = False, jump: bool = True) -> None:
        """Look for a pattern and go to its first match at or below the cursor.

        A pattern that can't be used is reported in `search_text` and changes nothing else.
        """
        self._problem = ""
        if not pattern:
            self.action_end_search()
            return
        try:
            query = Query(pattern, regex)
        except SearchError as error:
            self._problem = str(error)
            self._tell()
            return
        origin = min(self.cursor, self.row_count())
        self._scan = Scan(query, origin)
        self._jump, self._jump_from = (1, self.cursor - 1) if jump else (0, 0)
        self._search_slice()

    def _search_on(self) -> None:
        if not self._scanning:
            self._scanning = True
            self.set_timer(0.001, self._search_slice)

    def _search_slice(self) -> None:
        self._scanning = False
        scan = self._scan
        if scan is None:
            return
        rows = self.row_count()
        try:
            done = scan.step(self.row_text, rows, SEARCH_SLICE_S)
        except SearchError as error:
            self._scan, self._problem, self._jump = None, str(error), 0
            self._tell()
            return
        if self._jump:
            target = scan.next_from(self._jump_from, self._jump)
            # Before all is seen, only a match in the right direction is sure to be the nearest.
            sure = target is not None and (target - self._jump_from) * self._jump > 0
            if target is not None and (done or (sure and self._jump > 0)):
                self._jump = 0
                self.move_cursor(target)
        if done:
            self._jump = 0
        else:
            self._search_on()
        self._tell()

    def _tell(self) -> None:
        text = self.search_text
        if text != self._told:
            self._told = text
            self.post_message(self.SearchChanged(self, text))
        self.refresh()

    def action_search(self) -> None:
        self._typing = ""
        self._problem = ""
        self.refresh()

    def action_match(self, direction: int) -> None:
        if self._scan is None:
            return
        self._jump, self._jump_from = direction, self.cursor
        self._search_slice()

    def action_end_search(self) -> None:
        self._typing, self._scan, self._problem, self._jump = None, None, "", 0
        self._tell()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        # Without a search, escape belongs to whoever is around the view.
        if action == "end_search":
            return bool(self._scan or self._problem or self._typing is not None)
        return True

    def check_consume_key(self, key: str, character: str | None) -> bool:
        return self._typing is not None and bool(character and character.isprintable())

    async def _on_key(self, event: events.Key) -> None:
        if self._typing is None:
            return
        event.stop()
        event.prevent_default()
        typed = self._typing
        if event.key == "escape":
            self.action_end_search()
        elif event.key == "enter":
            self._typing = None
            self.search(typed, self._typing_regex)
        elif event.key == "ctrl+r":
            self._typing_regex = not self._typing_regex
        elif event.key in ("backspace", "ctrl+h"):
            self._typing = typed[:-1] if typed else None
        elif event.key == "ctrl+u":
            self._typing = ""
        elif event.is_printable and event.character:
            self._typing = typed + event.character
        self.refresh()

    def _on_paste(self, event: events.Paste) -> None:
        if self._typing is not None:
            self._typing += (event.text.splitlines() or [""])[0]
            event.stop()
            self.refresh()

    def on_blur(self) -> None:
        # A prompt that no longer receives keys must not look as if it did.
        self._typing = None

    def match_spans(
        self, text: str, index: int, whole: bool = True
    ) -> list[tuple[int, int, Style]]:
        """Marks to lay over a printable row that the search has found."""
        scan = self._scan
        if scan is None:
            return []
        style = self.look("match-here" if index == self.cursor else "match")
        try:
            spans = scan.query.spans(text)
            if not spans and whole and scan.rank(index) is not None:
                # What matched is not drawn as it is (a tab, say): mark the row.
                spans = [(0, len(text))]
        except SearchError:
            return []  # the scan meets the same row and reports it
        return [(start, end, style) for start, end in spans]

    # Drawing.

    def render_line(self, y: int) -> Strip:
        width, height = self.scrollable_content_region.size
        x, top = self.scroll_offset
        index = top + y
        self._row_cells = 0
        if index < self.row_count():
            strip = Strip(self.draw_row(index, x, width), width)
            if self._row_cells - x > width > 4:
                more = Segment(">" if self.ascii else "›", self.look("more"))
                strip = Strip([*strip.crop(0, width - 1), more], width)
        elif not self.row_count():
            strip = Strip(self.draw_empty(y, width), width)
        else:
            strip = Strip([Segment(" " * width, self.look("plain"))], width)
        if y == height - 1:
            return self._overlay(strip, width)
        return strip

    def _overlay(self, strip: Strip, width: int) -> Strip:
        if self._typing is not None:
            kind = "regex" if self._typing_regex else "text"
            right = f" ctrl+r: {kind} "
            block = "_" if self.ascii else "▏"
            typed = printable(self._typing)
            room = max(0, width - len(right) - 2)
            while cell_len(typed) > room and typed:
                typed = typed[1:]  # the end is where one types
            left = fit(f"/{typed}{block}", max(0, width - len(right)))
            style = self.look("prompt")
            return Strip(
                [Segment(left, style), Segment(right, style + ink(self.look("muted")))]
            ).crop(0, width)
        if self._problem:
            text, style = f" {self._problem} ", self.look("warning")
        else:
            parts = [part for part in (self.search_text, self.chip()) if part]
            if not parts:
                return strip
            text, style = f" {'  '.join(parts)} ", self.look("chip")
        text = fit(text, min(cell_len(text), width))
        return Strip.join([strip.crop(0, width - cell_len(text)), Strip([Segment(text, style)])])
