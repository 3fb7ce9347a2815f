"""The moments of a session on one line of time, with a cursor that goes from one to the next."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from tui.widgets.cells import fit, printable
from tui.widgets.row_view import ink
from tui.widgets.timeline_layout import KINDS, Cluster, Moment, clock, kind_of, lay_out


class Timeline(Widget, can_focus=True):
    """A strip of moments; with two rows the second one tells about the moment at the cursor."""

    HELP = """# Timeline

What happened, from left to right.

| sign | means |
|---|---|
| ● ✗ | an attempt, one that failed |
| ▲ ◆ | a level measured, a claim |
| ▼ | a claim refuted by what was measured |
| g | a change that needs your word, found in the files afterwards |
| ! | a finding |
| i | an intervention |
| ? | a question of the agent |
| m | a mark |

×3 behind a sign: three moments too close to be drawn apart, under the weightiest sign; L3 is the
level itself. The newest level is always written out where it fits. The heavy part of the line is
what a replay has played.

| key | does |
|---|---|
| left, right | previous and next moment |
| **shift** left, right | previous and next moment of the same kind |
| home, end | first and last moment |
| enter | move all panes to the moment |
| escape | leave the moment, back to now |
"""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "step(-1)", "Previous moment", show=False),
        Binding("right", "step(1)", "Next moment", show=False),
        Binding("shift+left", "step_kind(-1)", "Previous of its kind", show=False),
        Binding("shift+right", "step_kind(1)", "Next of its kind", show=False),
        Binding("home", "first", "First moment", show=False),
        Binding("end", "last", "Last moment", show=False),
        Binding("enter", "choose", "Go to moment"),
        Binding("escape", "leave", "Back to now", show=False),
    ]

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "timeline--track",
        "timeline--played",
        "timeline--cursor",
        "timeline--position",
        "timeline--label",
        "timeline--muted",
    } | {f"timeline--{kind}" for kind in KINDS}

    DEFAULT_CSS = """
    Timeline {
        height: 2;
        background: $background;
        color: $foreground;
        & .timeline--track { color: $foreground 35%; }
        & .timeline--played { color: $primary; }
        & .timeline--cursor { text-style: bold reverse; }
        & .timeline--position { color: $background; background: $primary; text-style: bold; }
        & .timeline--label { color: $foreground; }
        & .timeline--muted { color: $foreground 60%; }
        & .timeline--attempt { color: $primary; }
        & .timeline--refuted { color: $error; text-style: bold; }
        & .timeline--failed { color: $error; text-style: bold; }
        & .timeline--finding { color: $warning; text-style: bold; }
        & .timeline--intervention { color: $accent; text-style: bold; }
        & .timeline--level { color: $success; text-style: bold; }
        & .timeline--ask { color: $warning; }
        & .timeline--claim { color: $secondary; }
        & .timeline--marker { color: $foreground; }
    }
    """

    class MomentChosen(Message):
        """Enter or a click on a moment."""

        def __init__(self, timeline: Timeline, seq: int) -> None:
            super().__init__()
            self.timeline = timeline
            self.seq = seq

        @property
        def control(self) -> Timeline:
            return self.timeline

    class MomentReached(Message):
        """The cursor has come to a moment, or has left them all (None)."""

        def __init__(self, timeline: Timeline, seq: int | None) -> None:
            super().__init__()
            self.timeline = timeline
            self.seq = seq

        @property
        def control(self) -> Timeline:
            return self.timeline

    def __init__(
        self,
        *,
        empty: str = "Nothing has happened yet.",
        ascii: bool = False,
        name: str | None = None,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        super().__init__(name=name, id=id, classes=classes)
        self.empty = empty
        self.ascii = ascii
        self.cursor_seq: int | None = None
        """The moment at the cursor."""
        self._moments: Sequence[Moment] = ()
        self._times: list[int] = []
        self._start = self._end = 0
        self._position: int | None = None
        self._now = "now"
        self._clock = 0
        self._laid: tuple[int, list[Cluster]] | None = None

    # Data.

    def set_moments(
        self,
        moments: Sequence[Moment],
        start_us: int,
        end_us: int,
        position_us: int | None = None,
        end_label: str = "now",
    ) -> None:
        """Show these moments.

        Args:
            moments: In order of time.
            start_us: Time of the left edge.
            end_us: Time of the right edge: now, or the end of the session.
            position_us: Where a replay stands; None for a live session.
            end_label: What to call the right edge (``now``, ``end``).
        """
        self._moments = moments
        self._times = [moment.t_us for moment in moments]
        self._start, self._end, self._position = start_us, max(start_us, end_us), position_us
        self._now = end_label
        self._laid = None
        if self.cursor_seq is not None and self._cursor_index() is None:
            self.cursor_seq = None
        self.refresh()

    def set_position(self, position_us: int | None) -> None:
        """Move the position of a replay."""
        if position_us != self._position:
            self._position = position_us
            self.refresh()

    def set_clock(self, now_us: int) -> None:
        """How long the session lasts by now. Repaints the words only, once a second."""
        before, self._clock = self._clock, now_us
        if clock(before - self._start) != clock(now_us - self._start) and self.size.height > 1:
            self.refresh(Region(0, 1, self.size.width, 1))

    def _cursor_index(self) -> int | None:
        for index, moment in enumerate(self._moments):
            if moment.seq == self.cursor_seq:
                return index
        return None

    # Keys.

    def _go(self, index: int | None) -> None:
        seq = None if index is None else self._moments[index].seq
        if seq != self.cursor_seq:
            self.cursor_seq = seq
            self.post_message(self.MomentReached(self, seq))
            self.refresh()

    def _around(self, direction: int) -> int | None:
        """The neighbour of the cursor; without one, of the position or of the end."""
        here = self._cursor_index()
        if here is not None:
            target = here + direction
            while 0 <= target < len(self._moments) and (
                self._moments[target].seq == self.cursor_seq  # one event, two moments
            ):
                target += direction
        elif direction < 0:
            position = self._end if self._position is None else self._position
            target = bisect_right(self._times, position) - 1
        else:
            position = self._start if self._position is None else self._position
            target = bisect_left(self._times, position)
        return target if 0 <= target < len(self._moments) else None

    def action_step(self, direction: int) -> None:
        target = self._around(direction)
        if target is not None:
            self._go(target)

    def action_step_kind(self, direction: int) -> None:
        here = self._cursor_index()
        target = self._around(direction)
        kind = self._moments[here].kind if here is not None else None
        while target is not None and kind is not None and self._moments[target].kind != kind:
            target += direction
            if not 0 <= target < len(self._moments):
                target = None
        if target is not None:
            self._go(target)

    def action_first(self) -> None:
        if self._moments:
            self._go(0)

    def action_last(self) -> None:
        if self._moments:
            self._go(len(self._moments) - 1)

    def action_choose(self) -> None:
        if self.cursor_seq is not None:
            self.post_message(self.MomentChosen(self, self.cursor_seq))

    def action_leave(self) -> None:
        self._go(None)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        # Without a moment, escape and enter belong to whoever is around the strip.
        return self.cursor_seq is not None if action in ("leave", "choose") else True

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        if offset is None:
            return
        x = offset.x
        clusters = self._clusters(self._track_width())
        near = [c for c in clusters if c.column - 1 <= x <= c.column + cell_len(c.text)]
        if near:
            best = min(near, key=lambda c: abs(c.column - x))
            self._go(best.first)
            self.action_choose()

    # Drawing.

    def _track_width(self) -> int:
        return max(0, self.size.width - cell_len(self._now) - 1)

    def _clusters(self, width: int) -> list[Cluster]:
        if self._laid is None or self._laid[0] != width:
            placed = lay_out(self._moments, self._start, self._end, width, self.ascii)
            self._laid = (width, placed)
        return self._laid[1]

    def _look(self, name: str) -> Style:
        return self.get_component_rich_style(f"timeline--{name}")

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if y == 0:
            return Strip(self._track(width)).adjust_cell_length(width, self.rich_style)
        if y == 1:
            return Strip([Segment(fit(self._words(), width), self._words_style())])
        return Strip.blank(width, self.rich_style)

    def _track(self, width: int) -> list[Segment]:
        across = self._track_width()
        clusters = self._clusters(across)
        here = self._cursor_index()
        line, heavy = ("-", "=") if self.ascii else ("─", "━")
        at_position: int | None = None
        if self._position is not None and across:
            part = (self._position - self._start) / max(1, self._end - self._start)
            at_position = max(0, min(across - 1, round(part * (across - 1))))
        chars: list[tuple[str, Style]] = []
        track, played = self._look("track"), self._look("played")
        for column in range(across):
            done = at_position is not None and column < at_position
            chars.append((heavy, played) if done else (line, track))
        if at_position is not None:
            chars[at_position] = ("|" if self.ascii else "┃", self._look("position"))
        for cluster in clusters:
            known = cluster.kind if cluster.kind in KINDS else "muted"
            style = self._look(known)
            if here is not None and cluster.first <= here <= cluster.last:
                style = style + Style(reverse=True, bold=True)
            elif at_position is not None and cluster.column > at_position:
                style = style + ink(self._look("muted"))
            for offset, char in enumerate(cluster.text):
                if cluster.column + offset < across:
                    covered = cluster.column + offset == at_position
                    chars[cluster.column + offset] = (
                        char,
                        style + Style(underline=True) if covered else style,
                    )
        out = [Segment(char, style) for char, style in chars]
        return [*out, Segment(f" {self._now}", self._look("muted"))]

    def _words_style(self) -> Style:
        return self._look("label" if self._cursor_index() is not None else "muted")

    def _words(self) -> str:
        index = self._cursor_index()
        dot = " - " if self.ascii else " · "
        if index is not None:
            moment = self._moments[index]
            look = kind_of(moment.kind)
            sign = look.ascii if self.ascii else look.sign
            text = printable(moment.label) or look.words
            parts = [f"{sign} {clock(moment.t_us - self._start)}  {text}"]
            parts.append(f"{index + 1} of {len(self._moments)}")
            for cluster in self._clusters(self._track_width()):
                if cluster.first <= index <= cluster.last and cluster.last > cluster.first:
                    size = cluster.last - cluster.first + 1
                    parts.append(f"{index - cluster.first + 1} of {size} here")
            return dot.join(parts)
        if not self._moments:
            return self.empty
        noun = "moment" if len(self._moments) == 1 else "moments"
        parts = [f"session {clock(max(self._end, self._clock) - self._start)}"]
        if self._position is not None:
            parts.append(f"at {clock(self._position - self._start)}")
        return dot.join([*parts, f"{len(self._moments)} {noun}"])
