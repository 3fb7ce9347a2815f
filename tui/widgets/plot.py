"""A line plot in braille dots, for a few series such as the loss and its reference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from tui.widgets.cells import fit, printable
from tui.widgets.plot_data import Bounds, Series, bounds, columns, gap_columns, short, ticks
from tui.widgets.row_view import ink

# A line is told from another by how it is dashed and by the sign at its end; the colour repeats it.
# (columns on, period) in dots.
_DASHES = ((1, 1), (2, 4), (1, 3), (4, 6))
_SIGNS = "●○◆◇"
_ASCII_SIGNS = "*o+x"
_SAMPLES = ("━━", "╍╍", "┈┈", "╌╌")
_ASCII_SAMPLES = ("**", "oo", "++", "xx")

# Bits of the eight dots of a braille cell, by row and column.
_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))

# All dots from one row of a cell to another, both included: _MASKS[column][from][to].
_MASKS = tuple(
    tuple(
        tuple(sum(_BITS[row][side] for row in range(first, last + 1)) for last in range(4))
        for first in range(4)
    )
    for side in range(2)
)

Cell = tuple[str, int]
"""A character, and the series it belongs to (-1 for none)."""


class LinePlot(Widget, can_focus=True):
    """Up to four named lines over one x axis."""

    HELP = """# Plot

The lines are told apart by dashes and by the sign at their end, repeated in the legend. A cross on
the axis marks steps whose value is no number (nan) or infinite.

| key | does |
|---|---|
| left, right | read the values step by step; **shift** for ten columns |
| home, end | first and last step |
| **y** | logarithmic or linear axis |
| escape | stop reading |
"""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "read(-1)", "Read left", show=False),
        Binding("right", "read(1)", "Read right", show=False),
        Binding("shift+left", "read(-10)", "Read left", show=False),
        Binding("shift+right", "read(10)", "Read right", show=False),
        Binding("home", "read_end(0)", "First step", show=False),
        Binding("end", "read_end(-1)", "Last step", show=False),
        Binding("y", "log", "Log axis"),
        Binding("escape", "stop", "Stop reading", show=False),
    ]

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "plot--axis",
        "plot--series-0",
        "plot--series-1",
        "plot--series-2",
        "plot--series-3",
        "plot--cursor",
        "plot--gap",
        "plot--empty",
    }

    DEFAULT_CSS = """
    LinePlot {
        height: 1fr;
        min-height: 1;
        background: $background;
        color: $foreground;
        & .plot--axis { color: $foreground 60%; }
        & .plot--series-0 { color: $primary; text-style: bold; }
        & .plot--series-1 { color: $accent; }
        & .plot--series-2 { color: $success; }
        & .plot--series-3 { color: $error; }
        & .plot--cursor { color: $foreground; background: $primary 30%; }
        & .plot--gap { color: $error; text-style: bold; }
        & .plot--empty { color: $foreground 60%; }
    }
    """

    class CursorMoved(Message):
        """The step being read, or None when reading has ended."""

        def __init__(self, plot: LinePlot, x: float | None) -> None:
            super().__init__()
            self.plot = plot
            self.x = x

        @property
        def control(self) -> LinePlot:
            return self.plot

    def __init__(
        self,
        series: Sequence[Series] = (),
        *,
        x_name: str = "step",
        empty: str = "Nothing to plot yet.",
        log_scale: bool = False,
        ascii: bool = False,
        name: str | None = None,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        super().__init__(name=name, id=id, classes=classes)
        self.x_name = x_name
        self.empty = empty
        self.log_scale = log_scale
        self.ascii = ascii
        self.cursor_x: float | None = None
        self._series = tuple(series)
        self._drawn: tuple[tuple[int, int], list[Strip]] | None = None

    def set_series(self, series: Sequence[Series]) -> None:
        """Show these lines; the first is drawn on top of the others."""
        if len(series) > len(_DASHES):
            raise ValueError(f"A plot tells {len(_DASHES)} lines apart; {len(series)} were given.")
        self._series = tuple(series)
        self._changed()

    def _changed(self) -> None:
        self._drawn = None
        self.refresh()

    def notify_style_update(self) -> None:
        self._drawn = None
        super().notify_style_update()

    # Keys.

    def action_log(self) -> None:
        self.log_scale = not self.log_scale
        self._changed()

    def action_read(self, columns: int) -> None:
        box = bounds(self._series, self.log_scale)
        xs = self._series[0].xs if self._series else ()
        if box is None or not len(xs):
            return
        if self.cursor_x is None:
            self._read(xs[-1])
            return
        here = self._series[0].nearest(self.cursor_x) or 0
        step = max(1, round(len(xs) / max(1, self.size.width))) * columns
        self._read(xs[max(0, min(len(xs) - 1, here + step))])

    def action_read_end(self, at: int) -> None:
        if self._series and len(self._series[0].xs):
            self._read(self._series[0].xs[at])

    def action_stop(self) -> None:
        self._read(None)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self.cursor_x is not None if action == "stop" else True

    def _read(self, x: float | None) -> None:
        if x != self.cursor_x:
            self.cursor_x = x
            self.post_message(self.CursorMoved(self, x))
            self._changed()

    # Drawing.

    def render_line(self, y: int) -> Strip:
        size = (self.size.width, self.size.height)
        if self._drawn is None or self._drawn[0] != size:
            self._drawn = (size, self.draw(*size))
        lines = self._drawn[1]
        return lines[y] if y < len(lines) else Strip.blank(size[0], self.rich_style)

    def _look(self, name: str) -> Style:
        return self.get_component_rich_style(f"plot--{name}")

    def draw(self, width: int, height: int) -> list[Strip]:
        """All rows of the plot: legend, lines with their axis, x axis; the legend goes last."""
        if width < 1 or height < 1:
            return []
        box = bounds(self._series, self.log_scale)
        if box is None:
            lines = [self._empty_text()] + [""] * (height - 1)
            return [
                Strip([Segment(fit(line, width), self._look("empty"))], width) for line in lines
            ]
        out: list[Strip] = []
        if height >= 3:
            out.append(self._legend(width))
        axis = height >= 5
        rows = height - len(out) - (1 if axis else 0)
        labels = self._labels(box, rows) if rows >= 3 else {}
        left = max((len(text) for text in labels.values()), default=0)
        left = left + 1 if left and width - left > 12 else 0
        across = width - left
        cells = self._cells(box, across, rows)
        cursor = self._cursor_cell(box, across)
        styles = [self._look(f"series-{n}") for n in range(len(self._series))]
        plain = self.rich_style
        styles.append(plain)  # -1, the owner of blanks
        for row in range(rows):
            label = f"{labels.get(row, ''):>{left - 1}}{self._tick(row in labels)}" if left else ""
            out.append(
                Strip([Segment(label, self._look("axis")), *self._row(cells[row], cursor, styles)])
            )
        if axis:
            out.append(self._x_axis(box, left, across, cursor))
        return [strip.adjust_cell_length(width, plain) for strip in out]

    def _empty_text(self) -> str:
        if self.log_scale and any(one.runs for one in self._series):
            return "  No value above zero to show on a logarithmic axis (y: linear)."
        if any(len(one.xs) for one in self._series):
            return "  No value is a number so far (nan or infinite)."
        return f"  {self.empty}"

    def _tick(self, labelled: bool) -> str:
        if self.ascii:
            return "+" if labelled else "|"
        return "┤" if labelled else "│"

    def _row(self, cells: list[Cell], cursor: int | None, styles: list[Style]) -> list[Segment]:
        """One row of the grid; the last of the styles is that of blanks."""
        out: list[Segment] = []
        run, owner = "", -2
        for at, (char, series) in enumerate(cells):
            if at == cursor:
                if run:
                    out.append(Segment(run, styles[owner]))
                style = self._look("cursor")
                if char == " ":
                    char = "|" if self.ascii else "│"
                elif series >= 0:
                    style = style + ink(styles[series])
                out.append(Segment(char, style))
                run, owner = "", -2
                continue
            if series != owner:
                if run:
                    out.append(Segment(run, styles[owner]))
                run, owner = "", series
            run += char
        if run:
            out.append(Segment(run, styles[owner]))
        return out

    def _cells(self, box: Bounds, width: int, height: int) -> list[list[Cell]]:
        """The grid of the lines: braille dots, two across and four down in each cell."""
        wide, high = (1, 1) if self.ascii else (2, 4)
        bits = [[0] * width for _ in range(height)]
        owner = [[-1] * width for _ in range(height)]
        ends: list[tuple[int, int, int]] = []
        # The first series is the one looked at: it is drawn last, over the others.
        for number in range(len(self._series) - 1, -1, -1):
            on, period = _DASHES[number] if not self.ascii else (1, 1)
            last: tuple[int, int] | None = None
            dots = columns(self._series[number], box, width * wide, height * high, self.log_scale)
            for column, top, bottom in dots:
                last = (column // wide, bottom // high)
                if column % period >= on:
                    continue
                x, side = divmod(column, wide)
                if self.ascii:
                    for y in range(top, bottom + 1):
                        bits[y][x], owner[y][x] = 1, number
                    continue
                first, low = divmod(top, 4)
                final, high_dot = divmod(bottom, 4)
                masks = _MASKS[side]
                for y in range(first, final + 1):
                    mask = masks[low if y == first else 0][high_dot if y == final else 3]
                    bits[y][x] |= mask
                    owner[y][x] = number
            if last is not None:
                ends.append((*last, number))
        signs = _ASCII_SIGNS if self.ascii else _SIGNS
        grid = [
            [
                ((signs[who] if self.ascii else chr(0x2800 + bit), who) if bit else (" ", -1))
                for bit, who in zip(bit_row, owner_row, strict=True)
            ]
            for bit_row, owner_row in zip(bits, owner, strict=True)
        ]
        if height >= 3:
            for x, y, number in ends:
                grid[y][x] = (signs[number], number)
        return grid

    def _labels(self, box: Bounds, rows: int) -> dict[int, str]:
        """Texts of the y axis by row."""
        low, high = box[2], box[3]
        if self.log_scale:
            values = [float(n) for n in range(math.ceil(low), math.floor(high) + 1)]
            if len(values) < 2:  # less than two decades: round numbers instead
                values = [
                    math.log10(v) for v in ticks(10**low, 10**high, max(2, rows // 3)) if v > 0
                ]
            step = max(1, math.ceil(len(values) / max(2, rows // 2)))
            values = values[::step]
        else:
            values = ticks(low, high, max(2, rows // 3))
        out: dict[int, str] = {}
        for value in values:
            row = max(0, min(rows - 1, int((high - value) / (high - low) * rows)))
            out[row] = short(10**value if self.log_scale else value)
        return out

    def _cursor_cell(self, box: Bounds, width: int) -> int | None:
        if self.cursor_x is None:
            return None
        wide = 1 if self.ascii else 2
        span = box[1] - box[0]
        scale = (width * wide - 1) / span if span else 0.0
        return max(0, min(width - 1, int((self.cursor_x - box[0]) * scale + 0.5) // wide))

    def _x_axis(self, box: Bounds, left: int, width: int, cursor: int | None) -> Strip:
        line = "-" if self.ascii else "─"
        chars = [line] * width
        first, last = f"{short(box[0])} ", f" {self.x_name} {short(box[1])}"
        for at, char in enumerate(first[:width]):
            chars[at] = char
        if len(first) + len(last) <= width:
            chars[width - len(last) :] = last
        wide = 1 if self.ascii else 2
        gaps: set[int] = set()
        for one in self._series:
            gaps |= {at // wide for at in gap_columns(one, box, width * wide)}
        corner = ("+" if self.ascii else "└").rjust(left) if left else ""
        out = [Segment(corner, self._look("axis"))]
        for at, char in enumerate(chars):
            if at in gaps:
                out.append(Segment("x" if self.ascii else "×", self._look("gap")))
            else:
                out.append(Segment(char, self._look("cursor" if at == cursor else "axis")))
        return Strip(out)

    def _legend(self, width: int) -> Strip:
        signs, samples = (_ASCII_SIGNS, _ASCII_SAMPLES) if self.ascii else (_SIGNS, _SAMPLES)
        axis = self._look("axis")
        out: list[Segment] = []
        used = 0
        for number, one in enumerate(self._series):
            value = ""
            at = one.nearest(self.cursor_x) if self.cursor_x is not None else len(one.ys) - 1
            if at is not None and 0 <= at < len(one.ys):
                value = short(one.ys[at])
            text = f"{samples[number]}{signs[number]} "
            name = f"{printable(one.name)} {value}".rstrip() + "   "
            if used + cell_len(text + name) - 3 > width:
                # Signs and values say more than names when there is no room for all.
                name = f"{value}  "
            out += [Segment(text, self._look(f"series-{number}")), Segment(name, self.rich_style)]
            used += cell_len(text + name)
        tail = []
        if self.cursor_x is not None:
            tail.append(f"at {self.x_name} {short(self.cursor_x)}")
        if self.log_scale:
            tail.append("log")
        label = " · ".join(tail) if not self.ascii else ", ".join(tail)
        if label and used + len(label) <= width:
            out += [Segment(" " * (width - used - len(label)), axis), Segment(label, axis)]
        return Strip(out)
