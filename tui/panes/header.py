"""The header: which session, what the agent is doing and for whom it waits, and the levels."""

from __future__ import annotations

from rich.text import Text

from core.state_parts import level_name
from tui.panes.line import Line
from tui.theme import Palette, palette
from tui.view import View
from tui.wording import one_line


class Header(Line):
    """One line where there is room, else two. Drawn from words; colour only repeats them."""

    def __init__(self) -> None:
        super().__init__("header")
        self._drawn: tuple[object, ...] = ()

    def draw(self, view: View) -> None:
        """Draw the header for ``view``, if anything in it has changed."""
        width = self.size.width or self.app.size.width
        stamp = (*view.stamp, view.second, view.badge, view.loading, view.recorder, view.read_only,
                 view.past, width, self.app.theme)  # fmt: skip
        if stamp == self._drawn:
            return
        self._drawn = stamp
        self.show(header_text(view, width, palette(self.app)))


def header_text(view: View, width: int, colours: Palette) -> Text:
    """The header in ``width`` cells: one line if all of it fits, else two."""
    left = _name(view, colours)
    right = _levels(view, colours)
    middle = _state(view, colours)
    if left.cell_len + middle.cell_len + right.cell_len + 8 <= width:
        return _spread(left + Text("   ") + middle, right, width)
    if middle.cell_len + 2 > width:
        middle = _state(view, colours, brief=True)
    return _spread(left, right, width) + Text("\n") + _spread(middle, Text(), width)


def _spread(left: Text, right: Text, width: int) -> Text:
    """``left`` and ``right`` at the two ends of a line; ``left`` gives way."""
    room = width - 2 - right.cell_len - (1 if right else 0)
    left = left.copy()
    left.truncate(max(0, room), overflow="ellipsis", pad=True)
    return Text(" ") + left + Text(" " if right else "") + right + Text(" ")


def _name(view: View, colours: Palette) -> Text:
    state = view.state
    title = state.opened.title if state.opened else view.session_id
    target = state.config.get("target")
    kind = target.get("kind", "") if isinstance(target, dict) else ""
    text = Text(one_line(title, 40), colours.strong, no_wrap=True)
    if kind and kind not in title:
        text.append(f"  {one_line(str(kind), 20)}", colours.muted)
    return text


def _state(view: View, colours: Palette, brief: bool = False) -> Text:
    """Badge, state, since when, what for, and what to do; ``brief`` leaves the last one out."""
    if view.loading:
        return Text(view.loading, colours.muted, no_wrap=True)
    text = Text(no_wrap=True)
    if view.badge:
        text.append(f" {view.badge} ", colours.accent + colours.badge("wait"))
        text.append("  ")
    status = view.status
    text.append("agent: " if status.word not in ("RECORDER GONE",) else "", colours.muted)
    text.append(f" {status.word} ", colours.badge(status.tone))
    elapsed = status.elapsed(view.now_us)
    text.append(f" {elapsed}" if elapsed else "", colours.strong)
    text.append(f" ({status.detail})" if status.detail else "", colours.plain)
    if status.todo and view.acting and not (brief and status.detail):
        text.append(f"  {status.todo}", colours.accent)
    if view.read_only and not view.replay:
        text.append("  READ ONLY", colours.bad)
    return text


def _levels(view: View, colours: Palette) -> Text:
    """Measured and claimed side by side; a claim above the measurement is said so."""
    ladder = view.ladder
    text = Text("measured ", colours.muted, no_wrap=True)
    text.append(level_name(ladder.measured), colours.strong)
    text.append("  claimed ", colours.muted)
    claimed = ladder.claimed
    text.append(level_name(claimed), colours.plain)
    if ladder.refuted:
        text.append(" refuted", colours.bad)
    elif claimed is not None and claimed > ladder.measured:
        text.append(" unproven", colours.warn)
    return text
