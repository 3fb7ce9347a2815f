"""A view of rows that can be searched: ``/``, ``n``, ``N``, in text or by regular expression.

The rows are read in slices of time between frames, so that no search holds up a key.
"""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip

from tui.widgets.cells import Span, fit, printable
from tui.widgets.row_view import RowView, ink
from tui.widgets.search import Query, Scan, SearchError

SEARCH_SLICE_S = 0.01
"""Time for the search between two frames; a key press waits at most that long behind it."""


class SearchView(RowView):
    """Rows with a search over all of them; the prompt is drawn over the last row in sight."""

    KEYS_HELP = (
        RowView.KEYS_HELP
        + """| **/** | search; capitals in the pattern make it case-sensitive |
| **ctrl+r** while typing | plain text or regular expression |
| **n**, **N** | next and previous match |
| **escape** | end the search |
"""
    )

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "Search"),
        Binding("n", "match(1)", "Next match", show=False),
        Binding("N", "match(-1)", "Previous match", show=False),
        Binding("escape", "end_search", "End search", show=False),
    ]

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "rows--match",
        "rows--match-here",
        "rows--prompt",
        "rows--warning",
    }

    DEFAULT_CSS = """
    SearchView {
        & .rows--match { color: $background; background: $warning; text-style: underline; }
        & .rows--match-here { color: $background; background: $warning; text-style: bold underline; }
        & .rows--prompt { color: $foreground; background: $panel; }
        & .rows--warning { color: $error; background: $panel; text-style: bold; }
    }
    """

    class SearchChanged(Message):
        """The search has begun, found more, moved or ended.

        `text` is what a title can show. It holds the pattern: never read it as markup.
        """

        def __init__(self, view: SearchView, text: str) -> None:
            super().__init__()
            self.view = view
            self.text = text

        @property
        def control(self) -> SearchView:
            return self.view

    def __init__(
        self,
        *,
        ascii: bool = False,
        name: str | None = None,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        super().__init__(ascii=ascii, name=name, id=id, classes=classes)
        self._typing: str | None = None  # the pattern while it is typed
        self._typing_regex = False
        self._scan: Scan | None = None
        self._scanning = False
        self._jump = 0  # direction of a jump that waits for its match to be found
        self._jump_from = 0
        self._problem = ""  # a sentence about a pattern that can't be used
        self._told = ""

    def row_text(self, index: int) -> str:
        """What the search looks at; need not be printable."""
        raise NotImplementedError

    def rows_changed(self) -> None:
        super().rows_changed()
        if self._scan is not None and not self._scan.done(self.row_count()):
            self._search_on()

    def search_again(self) -> None:
        """Run the present search over rows that are others now, without moving."""
        if self._scan is not None:
            self.search(self._scan.query.pattern, self._scan.query.regex, jump=False)

    @property
    def search_done(self) -> bool:
        """Whether no search is under way."""
        return self._scan is None or self._scan.done(self.row_count())

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
        noun = "" if where else " match" if scan.count == 1 else " matches"
        return f"{kind}/{pattern}  {where}{scan.count:,}{more}{noun}"

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
                self.jump_to(target)
                self._show_match(scan.query, target)
        if done:
            self._jump = 0
        else:
            self._search_on()
        self._tell()

    def _show_match(self, query: Query, index: int) -> None:
        """Scroll sideways when the first match of a row is out of sight."""
        text = printable(self.row_text(index))
        try:
            spans = query.spans(text)
        except SearchError:
            return
        if not spans:
            return
        start, end = (cell_len(text[:at]) for at in spans[0])
        x, width = self.scroll_offset.x, self.scrollable_content_region.width
        room = max(8, width - 20)  # a row begins with signs and numbers that do not scroll
        if start < x or end > x + room:
            self.need_width(start + width)
            self._resize_rows()
            self.put_scroll(x=max(0, start - room // 2) if end > room else 0)

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
        super().on_blur()

    def match_spans(self, text: str, index: int, whole: bool = True) -> list[Span]:
        """Marks to lay over a printable row that the search has found."""
        scan = self._scan
        # Only rows the search has found: trying the expression on the others costs time for nothing.
        if scan is None or scan.rank(index) is None:
            return []
        style = self.look("match-here" if index == self.cursor else "match")
        try:
            spans = scan.query.spans(text)
        except SearchError:
            spans = []
        if not spans and whole:
            # What matched is not drawn as it is (a tab, say): mark the row.
            spans = [(0, len(text))]
        return [(start, end, style) for start, end in spans]

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
        return self.put_right(strip, text, style, width)
