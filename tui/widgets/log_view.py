"""The output of a run: any number of lines, followed while they arrive."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import ClassVar, NamedTuple, Protocol

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.message import Message

from tui.widgets.cells import fit, measured, paint
from tui.widgets.log_ranks import LogRanks
from tui.widgets.row_view import ink
from tui.widgets.search_view import SearchView

# A first word that ends in Error or Exception is how Python reports one; the others are what C++
# libraries (XLA, glog, absl) and shells print.
_ERROR = re.compile(
    r"Traceback \(most recent call last\)"
    r"|^\s*(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception)\b"
    r"|\b(?:ERROR|FATAL|Fatal|error|fatal)(?::|\b.*:)"
    r"|^[EF]\d{4} "
    r"|Segmentation fault|core dumped|Killed$"
)
_ERROR_CHARS = 400  # characters of a line in which an error is looked for


class Line(Protocol):
    """What the view needs of a line; ``stream`` is ``stdout`` or ``stderr``.

    A line of one of several ranks also has a ``rank``: the name that stands before it. The
    stream ``gap`` is that of a line which stands for lines that are not there.
    """

    @property
    def stream(self) -> str: ...

    @property
    def text(self) -> str: ...


class PlainLine(NamedTuple):
    """A line for those who have none of their own."""

    stream: str
    text: str
    rank: str = ""


def _rank_words(rank: str) -> str:
    return f"rank {rank}" if rank.isdigit() else rank


def is_error(text: str) -> bool:
    """Whether a line reports an error, by the forms Python, XLA and shells use."""
    return _ERROR.search(text[:_ERROR_CHARS]) is not None


class LogView(SearchView):
    """Lines of output. Follows the end until one moves away from it, and then stays put."""

    HELP = (
        """# Log

The output of a run. A bar in the first column marks **stderr**, a cross marks lines that report an
error. At the last line the view follows what arrives; anywhere else it stays where it is and counts
the new lines.
"""
        + SearchView.KEYS_HELP
        + """| **f** | follow the end, or stop following |
| **e**, **E** | first error, next error below the cursor |
| **#** | line numbers |
| **o** | of several ranks: all in one, or one after another alone |
| enter | go to the moment of the line in the other panes |
"""
    )

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "follow", "Follow"),
        Binding("e", "first_error", "First error"),
        Binding("E", "next_error", "Next error", show=False),
        Binding("number_sign", "numbers", "Line numbers", show=False),
        Binding("o", "rank", "One rank", show=False),
    ]

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "log--stderr",
        "log--error",
        "log--stderr-bar",
        "log--rank",
    }

    DEFAULT_CSS = """
    LogView {
        & .log--stderr { color: $warning; }
        & .log--stderr-bar { color: $warning; text-style: bold; }
        & .log--error { color: $error; text-style: bold; }
        & .log--rank { color: $primary; }
    }
    """

    class FollowChanged(Message):
        """Following began or ended, or more lines wait below; `text` is ``142 new ↓`` or empty."""

        def __init__(self, view: LogView, follow: bool, new: int, text: str) -> None:
            super().__init__()
            self.view = view
            self.follow = follow
            self.new = new
            self.text = text

        @property
        def control(self) -> LogView:
            return self.view

    class RankChanged(Message):
        """Another rank is looked at, or all of them; `text` says which."""

        def __init__(self, view: LogView, text: str) -> None:
            super().__init__()
            self.view = view
            self.text = text

        @property
        def control(self) -> LogView:
            return self.view

    class LineChosen(Message):
        """Enter or a double click on a line."""

        def __init__(self, view: LogView, index: int, line: Line) -> None:
            super().__init__()
            self.view = view
            self.index = index
            self.line = line

        @property
        def control(self) -> LogView:
            return self.view

    def __init__(
        self,
        *,
        numbers: bool = False,
        indicator: bool = True,
        empty: str = "No output yet.",
        ascii: bool = False,
        name: str | None = None,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        """
        Args:
            numbers: Show line numbers.
            indicator: Draw ``142 new ↓`` over the last row too, not only post it.
            empty: What to say while there is no line.
            ascii: No signs beyond ASCII.
        """
        super().__init__(ascii=ascii, name=name, id=id, classes=classes)
        self.numbers = numbers
        self.indicator = indicator
        self.empty = empty
        self._lines: Sequence[Line] = []
        self._version: object = None
        self._count = 0  # lines
        self._epoch = 0  # of the lines; another one means that they have become others
        self._ranks = LogRanks()
        self._follow = True
        self._seen = 0  # lines that have been in sight, counted from the top
        self._told_follow: tuple[bool, int] = (True, 0)

    # Data.

    def set_lines(
        self, lines: Sequence[Line], version: object = None, ranks: Iterable[str] = ()
    ) -> None:
        """Show these lines; the sequence is kept, not copied, and may grow behind our back.

        Args:
            lines: Anything with a length and an index; items have ``stream`` and ``text``. With a
                method ``number``, that is the number of the line at an index, from 0; with an
                ``epoch`` that has changed, lines that were there are others now.
            version: Names the document. The same version again means the same lines, more or fewer
                of them (a run goes on, a replay steps back); another one starts afresh at the end.
            ranks: The ranks that lines have, in any order; without them none is told apart.
        """
        fresh = version != self._version
        epoch = getattr(lines, "epoch", 0)
        same = lines is self._lines and len(lines) == self._count and epoch == self._epoch
        if not fresh and same:
            return
        shrunk = len(lines) < self._count or epoch != self._epoch
        self._epoch = epoch
        self._lines, self._version, self._count = lines, version, len(lines)
        if fresh:
            self._widest = 0
            self._follow = True
            self._seen = 0
            self.cursor = 0
            self._ranks = LogRanks()
        self._ranks.know(ranks)
        self._ranks.follow(lines, self._count, anew=shrunk)
        if fresh or shrunk:
            self.search_again()
        self._grown()

    def extend(self, lines: Iterable[Line]) -> None:
        """Add lines at the end of those the view holds itself."""
        if not isinstance(self._lines, list):
            self._lines = list(self._lines)
        self._lines.extend(lines)
        self._count = len(self._lines)
        self._grown()

    def _grown(self) -> None:
        self._ranks.follow(self._lines, self._count)
        if self._follow:
            self.cursor = max(0, self.row_count() - 1)
        self.rows_changed()
        if self._follow:
            self._to_end()
        self._seen = min(self._seen, self.row_count())
        self.moved()

    @property
    def follow(self) -> bool:
        """Whether the view stays at the end."""
        return self._follow

    @property
    def new_lines(self) -> int:
        """Lines below that have not been in sight since following ended."""
        return 0 if self._follow else max(0, self.row_count() - self._seen)

    # Following.

    def _to_end(self) -> None:
        height = self.scrollable_content_region.height
        self.put_scroll(y=max(0, self.row_count() - height))

    def moved(self) -> None:
        if self._follow:
            self._seen = self.row_count()
        else:
            bottom = self.scroll_offset.y + self.scrollable_content_region.height
            self._seen = max(self._seen, min(bottom, self.row_count()))
        self._tell_follow()

    def _tell_follow(self) -> None:
        now = (self._follow, self.new_lines)
        if now != self._told_follow:
            self._told_follow = now
            self.post_message(self.FollowChanged(self, *now, self.chip_text))
            self.refresh()

    def move_cursor(self, index: int) -> None:
        last = self.row_count() - 1
        if index >= last:
            self._follow = True
        elif self._follow:
            self._follow = False
            self._seen = self.row_count()
        super().move_cursor(index)
        if self._follow:
            self._to_end()

    def on_resize(self) -> None:
        if self._follow:
            self._to_end()
        self.moved()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        # Only a scroll can end or begin following here, never a change of size: that keeps the
        # last line in sight by itself.
        at_end = new_value >= self.max_scroll_y
        if self._follow and new_value < old_value and not at_end:
            self._follow = False
            self._seen = self.row_count()
        elif not self._follow and new_value > old_value and at_end:
            self._follow = True
            self.cursor = max(0, self.row_count() - 1)
        super().watch_scroll_y(old_value, new_value)

    def action_follow(self) -> None:
        if self._follow:
            self._follow = False
            self._seen = self.row_count()
            self._tell_follow()
        else:
            self.action_last()

    @property
    def chip_text(self) -> str:
        """``142 new ↓``, or nothing while all lines have been seen."""
        new = self.new_lines
        return f"{new:,} new {'v' if self.ascii else '↓'}" if new else ""

    def chip(self) -> str:
        return self.chip_text if self.indicator else ""

    # Errors, numbers, choosing.

    def first_error(self, start: int = 0) -> int | None:
        """The first row at or after ``start`` that reports an error."""
        for row in range(start, self.row_count()):
            if is_error(self.row_text(row)):
                return row
        return None

    def action_first_error(self) -> None:
        self._go_error(self.first_error())

    def action_next_error(self) -> None:
        self._go_error(self.first_error(self.cursor + 1))

    def _go_error(self, index: int | None) -> None:
        if index is None:
            self.notify("No error below." if self.first_error() is not None else "No error line.")
        else:
            self.jump_to(index)

    @property
    def rank_text(self) -> str:
        """``rank 1 of 4`` while one rank is looked at alone; ``4 ranks``; or nothing."""
        names = self._ranks.names
        if not names:
            return ""
        if self._ranks.chosen is None:
            return f"{len(names)} ranks"
        return f"{_rank_words(self._ranks.chosen)} of {len(names)}"

    def show_rank(self, rank: str | None) -> None:
        """Show the lines of one rank alone, or with ``None`` those of all, at the same place."""
        line = self._ranks.line(self.cursor) if self.row_count() else 0
        self._ranks.choose(rank, self._lines)
        self.search_again()
        self.cursor = min(self._ranks.row(line), max(0, self.row_count() - 1))
        self._seen = self.row_count()
        self._grown()
        if not self._follow:
            self.jump_to(self.cursor)

    def action_rank(self) -> None:
        if self._ranks.names:
            self.show_rank(self._ranks.next())
            self.post_message(self.RankChanged(self, self.rank_text))
        else:
            self.notify("The lines of this run have no rank.")

    def action_numbers(self) -> None:
        self.numbers = not self.numbers
        self.refresh()

    def action_choose(self) -> None:
        if self.row_count():
            index = self._ranks.line(self.cursor)
            self.post_message(self.LineChosen(self, index, self._lines[index]))

    # Rows.

    def row_count(self) -> int:
        return self._ranks.count()

    def row_text(self, index: int) -> str:
        return self._lines[self._ranks.line(index)].text

    def draw_row(self, index: int, x: int, width: int) -> list[Segment]:
        at = self._ranks.line(index)
        line = self._lines[at]
        text, cells = measured(line.text)
        here = index == self.cursor and self.has_focus
        base = self.look("cursor" if here else "plain")
        style = base
        sign = " "
        if line.stream == "stderr":
            sign = "!" if self.ascii else "▌"
            style = base + ink(self.get_component_rich_style("log--stderr"))
        mark = " "
        if line.stream == "gap":
            style = base + ink(self.look("muted"))
        elif is_error(line.text):
            mark = "x" if self.ascii else "✗"
            style = base + ink(self.get_component_rich_style("log--error"))
        if here:
            mark = ">" if self.ascii else "▸"
        gutter = f"{mark}"
        number = ""
        if self.numbers:
            number = f"{self._number(at) + 1:>{len(str(self._number(self._count - 1) + 1))}} "
        rank = ""
        if self._ranks.width and self._ranks.chosen is None:
            rank = self._ranks.label(line) + ("|" if self.ascii else "│")
        left = len(gutter) + 1 + len(number) + (self._ranks.width + 1 if rank else 0)
        self.need_width(left + cells)
        spans = self.match_spans(text, index)
        bar: Style = base + ink(self.get_component_rich_style("log--stderr-bar"))
        head = [Segment(sign, bar), Segment(gutter, style)]
        if number:
            head.append(Segment(number, base + ink(self.look("muted"))))
        if rank:
            head.append(Segment(rank, base + ink(self.get_component_rich_style("log--rank"))))
        if left >= width:
            return [Segment(fit("", width), base)]
        return self.mark_cut(head + paint(text, spans, x, width - left, style), x, width)

    def _number(self, index: int) -> int:
        number = getattr(self._lines, "number", None)
        return number(index) if number is not None else index

    def draw_empty(self, y: int, width: int) -> list[Segment]:
        text = f"  {self.empty}" if y == 0 else ""
        return [Segment(fit(text, width), self.look("plain") + ink(self.look("muted")))]
