"""A unified diff with line numbers, syntax colours, word changes and tags."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.message import Message

from core.unified_diff import DiffFile, parse_diff
from tui.widgets.cells import Span, fit, measured, paint, printable
from tui.widgets.diff_rows import DiffRows, DiffTag, Row
from tui.widgets.row_view import ink
from tui.widgets.search_view import SearchView
from tui.widgets.syntax import KINDS

_STATUS = {"modified": "M", "added": "A", "deleted": "D", "renamed": "R", "copied": "C"}
_SIDES = {"+": "added", "-": "removed"}
_ASCII = str.maketrans({"→": ">", "−": "-", "…": "~", "·": "-", "─": "-"})


Place = tuple[str, str, int]
"""Path, side (``old`` or ``new``) and line number."""


class DiffView(SearchView):
    """The changes of a diff. Only what is in sight is coloured, so size does not matter."""

    HELP = (
        """# Diff

What was changed. Added lines begin with **+**, removed ones with **-**; the numbers are those of
the old and of the new file. Words that changed inside a line are underlined. Tags at the right edge
say what a guard or a finding has to do with the place. While it follows, the view goes to the change
of each new step; a move in it stops that, so that nothing moves while you read.
"""
        + SearchView.KEYS_HELP
        + """| **[**, **]** | previous and next hunk |
| **{**, **}** | previous and next file |
| enter | go to the moment of the hunk in the other panes |
| **f** | follow the newest change, or stop following |
"""
    )

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left_square_bracket", "hunk(-1)", "Previous hunk", show=False, key_display="["),
        Binding("right_square_bracket", "hunk(1)", "Next hunk", key_display="]"),
        Binding("left_curly_bracket", "file(-1)", "Previous file", show=False, key_display="{"),
        Binding("right_curly_bracket", "file(1)", "Next file", key_display="}"),
        Binding("f", "follow", "Follow"),
    ]

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "diff--file",
        "diff--hunk",
        "diff--added",
        "diff--removed",
        "diff--added-sign",
        "diff--removed-sign",
        "diff--added-word",
        "diff--removed-word",
        "diff--tag",
    } | {f"diff--{kind}" for kind in KINDS}

    DEFAULT_CSS = """
    DiffView {
        & .diff--file { background: $panel; color: $foreground; text-style: bold; }
        & .diff--hunk { color: $primary; }
        & .diff--added { background: $success 14%; }
        & .diff--removed { background: $error 14%; }
        & .diff--added-sign { color: $success; text-style: bold; }
        & .diff--removed-sign { color: $error; text-style: bold; }
        & .diff--added-word { background: $success 32%; text-style: underline; }
        & .diff--removed-word { background: $error 32%; text-style: underline; }
        & .diff--tag { color: $background; background: $accent; text-style: bold; }
        & .diff--keyword { color: $primary; text-style: bold; }
        & .diff--string { color: $success; }
        & .diff--comment { color: $foreground 55%; text-style: italic; }
        & .diff--number { color: $accent; }
        & .diff--name { color: $foreground; text-style: bold; }
        & .diff--builtin { color: $secondary; }
        & .diff--decorator { color: $accent; }
    }
    """

    class HunkChosen(Message):
        """Enter or a double click in a hunk; the numbers are of the line at the cursor."""

        def __init__(
            self, view: DiffView, path: str, hunk: int, old_line: int | None, new_line: int | None
        ) -> None:
            super().__init__()
            self.view = view
            self.path = path
            self.hunk = hunk
            self.old_line = old_line
            self.new_line = new_line

        @property
        def control(self) -> DiffView:
            return self.view

    def __init__(
        self,
        diff: str = "",
        *,
        tags: Iterable[DiffTag] = (),
        empty: str = "No change.",
        ascii: bool = False,
        name: str | None = None,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        super().__init__(ascii=ascii, name=name, id=id, classes=classes)
        self.empty = empty
        self.follow = True
        """Whether the view goes to the newest change by itself."""
        self._newest: list[tuple[str, int]] = []
        self._diff = diff
        self._data = DiffRows(parse_diff(diff), tags)

    # Data.

    @property
    def files(self) -> Sequence[DiffFile]:
        """The files shown."""
        return self._data.files

    @property
    def summary(self) -> str:
        """``3 files +93 −1``, for a title."""
        files = self.files
        noun = "file" if len(files) == 1 else "files"
        text = (
            f"{len(files)} {noun} +{sum(f.added for f in files)} −{sum(f.removed for f in files)}"
        )
        return text.translate(_ASCII) if self.ascii else text

    def set_diff(self, diff: str, tags: Iterable[DiffTag] = ()) -> None:
        """Show another diff. The cursor stays on its file and line where they still exist."""
        tags = list(tags)
        if diff == self._diff:
            self.set_tags(tags)
            return
        place = self._place()
        self._diff = diff
        self._data = DiffRows(parse_diff(diff), tags)
        self._widest = 0
        self.cursor = self._find(place) if place else 0
        self.search_again()
        self.rows_changed()
        self._show_cursor()

    def set_tags(self, tags: Iterable[DiffTag]) -> None:
        """Replace the notes on places."""
        self._data.set_tags(tags)
        self.refresh()

    def _place(self) -> Place | None:
        if not self._data.rows:
            return None
        row = self._data.rows[self.cursor]
        path = self.files[row.file].path
        if row.kind in ("line", "newline"):
            line = self._data.line(row)
            if line.new is None:
                return path, "old", line.old or 0
            return path, "new", line.new
        return path, "new", self._data.hunk(row).new_start if row.kind == "hunk" else 0

    def _find(self, place: Place) -> int:
        """The row of a place, or the nearest one above it in its file; 0 if the file is gone."""
        path, side, wanted = place
        number = next((n for n, file in enumerate(self.files) if file.path == path), None)
        if number is None:
            return 0
        rows = self._data.rows
        at = best = self._data.file_rows[number]
        while wanted and at < len(rows) and rows[at].file == number:
            if rows[at].kind == "line":
                line = self._data.line(rows[at])
                here = line.new if side == "new" else line.old
                if here is not None:
                    if here > wanted:
                        break
                    best = at
            at += 1
        return best

    def show_line(self, path: str, line: int) -> bool:
        """Put the cursor on a line of a file (numbered as in the new text), or the nearest above it.

        Returns whether the diff has the file at all.
        """
        if not any(file.path == path for file in self.files):
            return False
        self.jump_to(self._find((path, "new", line)))
        return True

    # Following.

    def show_newest(self, places: Sequence[tuple[str, int]]) -> None:
        """Name the places of the newest change, best first: path and line of the new text.

        While the view follows it goes to the first one that the diff has.
        """
        self._newest = list(places)
        self._to_newest()

    def _to_newest(self) -> None:
        if not self.follow:
            return
        found = next(
            ((p, n) for p, n in self._newest if any(f.path == p for f in self.files)), None
        )
        if found is None:
            return
        path, line = found
        row = self._find((path, "new", line))
        hunk = max((at for at in self._data.hunk_rows if at <= row), default=row)
        height = self.scrollable_content_region.height
        if row - hunk < height // 2:
            row = hunk  # with its header, where the change is in sight below it
        self.cursor = row
        if not self.scroll_offset.y <= row < self.scroll_offset.y + height // 2:
            self.put_scroll(y=max(0, row - (1 if row == hunk else height // 3)))
        self.refresh()

    def on_resize(self) -> None:
        """A pane that has just come into sight shows the newest change, too."""
        self._to_newest()

    def move_cursor(self, index: int) -> None:
        self.follow = False
        super().move_cursor(index)

    def on_mouse_scroll_down(self) -> None:
        self.follow = False

    def on_mouse_scroll_up(self) -> None:
        self.follow = False

    def action_follow(self) -> None:
        self.follow = not self.follow
        self._to_newest()

    # Moving.

    def next_tag(self) -> list[DiffTag]:
        """Go to the next row with tags, after the last one to the first; returns its tags."""
        rows = sorted(self._data.placed)
        if not rows:
            return []
        target = next((row for row in rows if row > self.cursor), rows[0])
        height = max(1, self.scrollable_content_region.height)
        # In the upper half: a toast with the sentence comes up at the lower edge.
        if not self.scroll_offset.y <= target < self.scroll_offset.y + height // 2:
            self.put_scroll(y=max(0, target - height // 3))
        self.move_cursor(target)
        return self._data.placed[target]

    def _jump_rows(self, starts: list[int], direction: int) -> None:
        if not starts:
            return
        if direction > 0:
            at = min(bisect_right(starts, self.cursor), len(starts) - 1)
        else:
            at = max(bisect_left(starts, self.cursor) - 1, 0)
        target = starts[at]
        height = max(1, self.scrollable_content_region.height)
        # Show what the jump is to, not only its first row at the bottom edge.
        if not self.scroll_offset.y <= target < self.scroll_offset.y + height // 2:
            self.put_scroll(y=max(0, target - 1))
        self.move_cursor(target)

    def action_hunk(self, direction: int) -> None:
        self._jump_rows(self._data.hunk_rows, direction)

    def action_file(self, direction: int) -> None:
        self._jump_rows(self._data.file_rows, direction)

    def action_choose(self) -> None:
        if not self._data.rows:
            return
        row = self._data.rows[self.cursor]
        if row.kind in ("file", "note", "gap"):
            if not self.files[row.file].hunks:
                return
            row = Row("hunk", row.file, 0)
        old: int | None
        new: int | None
        if row.kind == "hunk":
            hunk = self._data.hunk(row)
            old, new = hunk.old_start, hunk.new_start
        else:
            line = self._data.line(row)
            old, new = line.old, line.new
        self.post_message(self.HunkChosen(self, self.files[row.file].path, row.hunk, old, new))

    # Rows.

    def row_count(self) -> int:
        return len(self._data.rows)

    def row_text(self, index: int) -> str:
        row = self._data.rows[index]
        if row.kind == "line":
            return self._data.line(row).text
        if row.kind == "file":
            return self._title(row)
        if row.kind == "hunk":
            return self._data.hunk(row).section
        return row.text

    def _title(self, row: Row) -> str:
        file = self.files[row.file]
        if file.status in ("renamed", "copied") and file.old_path != file.new_path:
            return f"{file.old_path} → {file.new_path}"
        return file.path

    def draw_empty(self, y: int, width: int) -> list[Segment]:
        text = f"  {self.empty}" if y == 0 else ""
        return [Segment(fit(text, width), self.look("plain") + ink(self.look("muted")))]

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(f"diff--{name}")

    def draw_row(self, index: int, x: int, width: int) -> list[Segment]:
        row = self._data.rows[index]
        here = index == self.cursor and self.has_focus
        mark = (">" if self.ascii else "▸") if here else " "
        base = self._base(row, here)
        tags = self._tag_segments(row, width // 2, base)
        taken = sum(cell_len(tag.text) for tag in tags)
        draw = self._draw_line if row.kind == "line" else self._draw_other
        self._row_cells = 0
        body = self.mark_cut(draw(row, index, mark, x, width - taken, base), x, width - taken)
        if taken and self._row_cells:
            self.need_width(self._row_cells + taken)  # so that what stands behind tags is in reach
        return body + tags

    def _base(self, row: Row, here: bool) -> Style:
        """The style a row stands on."""
        if row.kind == "file":
            base = self._style("file")
            return base + Style(bgcolor=self.look("cursor").bgcolor) if here else base
        if here:
            return self.look("cursor")
        if row.kind == "line":
            side = _SIDES.get(self._data.line(row).sign)
            return self._style(side) if side else self.look("plain")
        return self.look("plain")

    def _tag_segments(self, row: Row, limit: int, base: Style) -> list[Segment]:
        out: list[Segment] = []
        used = 0
        for text in self._data.row_tags(row):
            label = f" {printable(text)} "
            used += cell_len(label) + 1
            if used > limit:
                break
            out += [Segment(" ", base), Segment(label, self._style("tag"))]
        return out

    def _draw_line(
        self, row: Row, index: int, mark: str, x: int, width: int, base: Style
    ) -> list[Segment]:
        line = self._data.line(row)
        side = _SIDES.get(line.sign)
        digits = self._data.number_width
        old = f"{'' if line.old is None else line.old:>{digits}}"
        new = f"{'' if line.new is None else line.new:>{digits}}"
        head = f"{mark}{old} {new} "
        left = len(head) + 2
        text, cells = measured(line.text)
        self.need_width(left + cells)
        if left >= width:
            return [Segment(fit(head, width), base)]
        spans: list[Span] = [
            (start, end, ink(self._style(kind))) for start, end, kind in self._data.colours(row)
        ]
        if side:
            word = self.get_component_rich_style(f"diff--{side}-word", partial=False)
            spans += [
                (start, end, Style(bgcolor=word.bgcolor, underline=True))
                for start, end in self._data.changes(row)
            ]
        spans += self.match_spans(text, index)
        sign = base + ink(self._style(f"{side}-sign")) if side else base
        return [
            Segment(head, base + ink(self.look("muted"))),
            Segment(f"{line.sign} ", sign),
            *paint(text, spans, x, width - left, base),
        ]

    def _draw_other(
        self, row: Row, index: int, mark: str, x: int, width: int, base: Style
    ) -> list[Segment]:
        if row.kind == "file":
            return self._draw_file(row, index, mark, width, base)
        if row.kind == "hunk":
            hunk = self._data.hunk(row)
            text = f"{hunk.header}  {hunk.section}".rstrip()
            style = base + ink(self._style("hunk"))
        elif row.kind == "newline":
            text = " " * (2 * self._data.number_width + 3) + "no newline at the end of the file"
            style = base + ink(self.look("muted"))
        else:
            text = row.text
            style = base + ink(self.look("muted"))
        text = printable(text.translate(_ASCII) if self.ascii else text)
        self.need_width(cell_len(text) + 1)
        spans = self.match_spans(text, index, whole=False)
        return [Segment(mark, base), *paint(text, spans, x, width - 1, style)]

    def _draw_file(self, row: Row, index: int, mark: str, width: int, base: Style) -> list[Segment]:
        file = self.files[row.file]
        minus = "-" if self.ascii else "−"
        added, removed = f"+{file.added}", f"{minus}{file.removed}"
        churn = f" {added} {removed} "
        title = printable(self._title(row))
        if self.ascii:
            title = title.translate(_ASCII)
        head = f"{mark}{_STATUS.get(file.status, '?')} "
        room = max(0, width - len(head) - len(churn))
        if cell_len(title) > room:  # the end of a path says more than its beginning
            dots = "~" if self.ascii else "…"
            while title and cell_len(title) + 1 > room:
                title = title[1:]
            title = dots + title if room else ""
        if len(head) + len(churn) >= width:
            return [Segment(fit(head + title, width), base)]
        return [
            Segment(head, base),
            *paint(title, self.match_spans(title, index, whole=False), 0, room, base),
            Segment(" ", base),
            Segment(added, base + ink(self._style("added-sign"))),
            Segment(" ", base),
            Segment(removed, base + ink(self._style("removed-sign"))),
            Segment(" ", base),
        ]
