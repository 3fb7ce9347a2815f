"""The timeline at the bottom: every moment of the session, and where one stands."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical

from core.state import SessionState
from core.state_parts import Moment, level_name
from tui.view import View
from tui.widgets.timeline import Timeline
from tui.widgets.timeline_layout import Moment as Mark
from tui.wording import one_line

EDGE_US = 5_000_000
"""Microseconds after which the right edge of a live strip is moved at the earliest."""


class TimelinePane(Vertical):
    """The strip. In a replay it shows what is still to come, too."""

    def __init__(self) -> None:
        super().__init__(id="timeline")
        self._drawn: tuple[object, ...] = ()
        self._marks: list[Mark] = []
        self._marked: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        """The strip that is drawn into."""
        yield Timeline(id="strip")

    def draw(self, view: View) -> None:
        """Draw the moments of the whole session, and the position where that is not its end."""
        whole = view.whole or view.state
        strip = self.query_one(Timeline)
        position = view.state.last_ts_us if view.replay or view.past else None
        # A live strip grows at its right edge, which need not be drawn anew for less than a cell.
        end = whole.last_ts_us if view.replay else max(view.live_us, whole.last_ts_us)
        tick = max(EDGE_US, (end - whole.first_ts_us) // max(1, self.size.width))
        strip.set_clock(end if self._live(view) else 0)
        stamp = (id(whole), len(whole.moments), end // tick, position, view.playing)
        if stamp == self._drawn:
            return
        self._drawn = stamp
        marked = (id(whole), len(whole.moments), len(whole.interventions))
        if marked != self._marked:
            self._marked = marked
            self._marks = [_mark(m, whole) for m in _worth_drawing(whole)]
        if view.playing or not (view.replay or view.past):
            strip.cursor_seq = None  # time has gone on from the moment that was chosen
        end = whole.last_ts_us if not self._live(view) else end
        label = "end" if view.replay or whole.over else "now"
        strip.set_moments(self._marks, whole.first_ts_us, end, position, label)

    @staticmethod
    def _live(view: View) -> bool:
        whole = view.whole or view.state
        return not view.replay and not whole.over


def _worth_drawing(state: SessionState) -> list[Moment]:
    # A measurement that refutes a claim is one point of the line; its sign says the level too.
    refuting = {m.seq for m in state.moments if m.kind == "refuted"}
    return [
        m
        for m in state.moments
        if _worth(m, state) and not (m.kind == "level" and m.seq in refuting)
    ]


def _worth(moment: Moment, state: SessionState) -> bool:
    """Whether a moment is drawn: an end only where it was a bad one of an attempt."""
    if moment.kind != "ended":
        return True
    run = state.runs.get(moment.ref)
    return run is not None and run.started.purpose == "attempt" and not run.ok_exit


def _mark(moment: Moment, state: SessionState) -> Mark:
    kind = "failed" if moment.kind == "ended" else moment.kind
    mark = moment.label if moment.kind == "level" else ""
    label = one_line(moment.label, 200)
    if moment.kind == "refuted":
        measured = [m.level for m in state.measurements if m.seq <= moment.seq]
        mark = level_name(measured[-1]) if measured else ""
    if moment.kind == "level":
        label = f"measured {label}"
    elif moment.kind == "ask":
        label = f"asked: {label}"
    elif moment.kind == "message":
        label = f"you: {label}"
    elif moment.kind == "intervention":
        item = state.interventions.get(moment.ref)
        label = f"intervention: {label}" + (" (voided)" if item and item.voided else "")
    elif moment.kind == "marker":
        label = f"mark: {label}"
    return Mark(moment.seq, moment.ts_us, kind, label, mark)
