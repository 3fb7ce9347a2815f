"""Where moments stand on a line of time: signs, and what to do when they would touch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.cells import cell_len

from tui.widgets.cells import printable


class Moment(NamedTuple):
    """Something worth going to. ``t_us`` is in microseconds on any clock, the same for all."""

    seq: int
    t_us: int
    kind: str
    label: str = ""
    mark: str = ""  # a few characters drawn behind the sign where there is room: ``L1``


class Kind(NamedTuple):
    """How a kind of moment looks; a lower rank stands for the others of its cluster."""

    sign: str
    ascii: str
    rank: int
    words: str


KINDS: dict[str, Kind] = {
    "refuted": Kind("▼", "V", 0, "claim refuted"),
    "failed": Kind("✗", "x", 1, "failed"),
    "level": Kind("▲", "^", 2, "level"),
    "finding": Kind("!", "!", 3, "finding"),
    "intervention": Kind("i", "i", 4, "intervention"),
    "claim": Kind("◆", "#", 5, "claim"),
    "ask": Kind("?", "?", 6, "question"),
    "attempt": Kind("●", "o", 7, "attempt"),
    "marker": Kind("m", "m", 8, "mark"),
    "guard": Kind("g", "g", 8, "changed without a question"),
}
"""Signs by kind. ``failed`` is an attempt that has ended badly."""

_OTHER = Kind("·", ".", 9, "event")

_KEPT = ("level", "refuted")  # kinds whose newest moment keeps its mark in a cluster, too


@dataclass(frozen=True)
class Cluster:
    """Moments that share a place: where it is drawn, what, and which moments (positions)."""

    column: int
    text: str
    kind: str
    first: int
    last: int  # included


def kind_of(name: str) -> Kind:
    """The look of a kind, also of one we don't know."""
    return KINDS.get(name, _OTHER)


def lay_out(
    moments: Sequence[Moment], start_us: int, end_us: int, width: int, ascii: bool = False
) -> list[Cluster]:
    """Place moments (in order of time) on ``width`` columns; those that would touch are joined.

    A cluster shows the sign of its weightiest kind and how many it holds: ``✗×3``. The one that
    holds the newest level shows that instead, ``▲L3``, if it fits: it is what one looks for.
    """
    out: list[Cluster] = []
    if width < 1 or not moments:
        return out
    span = max(1, end_us - start_us)
    places = [
        max(0, min(width - 1, round((m.t_us - start_us) / span * (width - 1)))) for m in moments
    ]
    kept = next((i for i in reversed(range(len(moments))) if moments[i].kind in _KEPT), -1)
    label = 1 + cell_len(printable(moments[kept].mark)) if kept >= 0 else 0
    label = label if label <= width else 0

    def least(group: list[int]) -> int:
        """The cells that a group takes: its sign, its count, or the label that is kept."""
        size = group[2] - group[1] + 1
        cells = 1 if size == 1 else 2 + len(str(size))
        return max(cells, label) if group[1] <= kept <= group[2] else cells

    groups: list[list[int]] = []  # column, first, last
    for at, column in enumerate(places):
        if groups and groups[-1][0] + least(groups[-1]) > column:
            groups[-1][2] = at
        else:
            groups.append([column, at, at])
    # At the right edge a text moves left, and takes in the neighbours that it would cover.
    while len(groups) > 1:
        _, text = _named(moments, groups[-1], kept, width, ascii)
        before = groups[-2]
        if min(groups[-1][0], width - cell_len(text)) >= before[0] + least(before):
            break
        before[2] = groups.pop()[2]
    end = width
    for group in reversed(groups):
        room = width if end == width else end - group[0]
        kind, text = _named(moments, group, kept, room, ascii)
        end = min(group[0], width - cell_len(text))
        out.append(Cluster(end, text, kind, group[1], group[2]))
    return out[::-1]


def _named(
    moments: Sequence[Moment], group: list[int], kept: int, room: int, ascii: bool
) -> tuple[str, str]:
    """Kind and text of a group in ``room`` cells: with its mark, else with its count."""
    _, first, last = group

    def sign(kind: str) -> str:
        return kind_of(kind).ascii if ascii else kind_of(kind).sign

    if first <= kept <= last or first == last:
        chosen = kept if first <= kept <= last else first
        text = sign(moments[chosen].kind) + printable(moments[chosen].mark)
        # Only the newest level may touch its neighbour; all others leave a cell between.
        fits = cell_len(text) == len(text) <= room - (chosen != kept and room > 1)
        if fits and (len(text) > 1 or first == last):
            return moments[chosen].kind, text
    kind = min((moments[i].kind for i in range(first, last + 1)), key=lambda k: kind_of(k).rank)
    text = f"{sign(kind)}{'x' if ascii else '×'}{last - first + 1}"
    return kind, text if first < last and len(text) <= room else sign(kind)


def clock(us: int) -> str:
    """A span of time as people read it: ``0:42``, ``1:02:07``."""
    seconds = max(0, us) // 1_000_000
    hours, rest = divmod(seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
