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
    "failed": Kind("✗", "x", 0, "failed"),
    "level": Kind("▲", "^", 1, "level"),
    "finding": Kind("!", "!", 2, "finding"),
    "intervention": Kind("i", "i", 3, "intervention"),
    "claim": Kind("◆", "#", 4, "claim"),
    "ask": Kind("?", "?", 5, "question"),
    "attempt": Kind("●", "o", 6, "attempt"),
    "marker": Kind("m", "m", 7, "mark"),
}
"""Signs by kind. ``failed`` is an attempt that has ended badly."""

_OTHER = Kind("·", ".", 8, "event")


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

    A cluster shows the sign of its weightiest kind and how many it holds: ``✗3``.
    """
    out: list[Cluster] = []
    if width < 1 or not moments:
        return out
    span = max(1, end_us - start_us)
    places = [
        max(0, min(width - 1, round((m.t_us - start_us) / span * (width - 1)))) for m in moments
    ]
    groups: list[list[int]] = []  # column, first, last
    for at, column in enumerate(places):
        if groups:
            before = groups[-1]
            size = before[2] - before[1] + 1
            if before[0] + (1 if size == 1 else 1 + len(str(size))) > column:
                before[2] = at
                continue
        groups.append([column, at, at])
    for number, (column, first, last) in enumerate(groups):
        kind = min((moments[i].kind for i in range(first, last + 1)), key=lambda k: kind_of(k).rank)
        look = kind_of(kind)
        text = look.ascii if ascii else look.sign
        count = last - first + 1
        if count > 1:
            text += str(count)
        elif moments[first].mark:
            mark = text + printable(moments[first].mark)
            limit = groups[number + 1][0] - 1 if number + 1 < len(groups) else width
            if cell_len(mark) == len(mark) and column + len(mark) <= limit:
                text = mark
        # At the right edge a text moves left, unless that would cover its neighbour.
        left = out[-1].column + cell_len(out[-1].text) if out else 0
        column = max(left, min(column, width - cell_len(text)))
        if column + cell_len(text) > width:
            text = text[: max(0, width - column)]
        out.append(Cluster(column, text, kind, first, last))
    return out


def clock(us: int) -> str:
    """A span of time as people read it: ``0:42``, ``1:02:07``."""
    seconds = max(0, us) // 1_000_000
    hours, rest = divmod(seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
