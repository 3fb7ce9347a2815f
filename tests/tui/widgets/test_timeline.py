"""The timeline: places, clusters, and the way from moment to moment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tui.widgets.timeline import Timeline
from tui.widgets.timeline_layout import KINDS, Moment, clock, lay_out

S = 1_000_000
MOMENTS = [
    Moment(3, 10 * S, "attempt", "attempt #1"),
    Moment(9, 40 * S, "failed", "attempt #1 failed"),
    Moment(14, 40 * S + 9, "attempt", "attempt #2"),
    Moment(31, 60 * S, "ask", "may it run pip?"),
    Moment(47, 90 * S, "level", "measured L1", "L1"),
]


def drawn(moments: list[Moment], width: int, end: int = 100 * S, ascii: bool = False) -> str:
    row = [" "] * width
    for cluster in lay_out(moments, 0, end, width, ascii):
        row[cluster.column : cluster.column + len(cluster.text)] = cluster.text
    return "".join(row)


def test_moments_stand_at_their_time() -> None:
    assert drawn(MOMENTS, 101) == (
        " " * 10 + "●" + " " * 29 + "✗×2" + " " * 17 + "?" + " " * 29 + "▲L1" + " " * 8
    )


def test_crowded_moments_are_counted_under_the_weightiest_sign() -> None:
    crowd = [Moment(n, 50 * S + n, "attempt") for n in range(12)] + [
        Moment(12, 50 * S + 99, "failed")
    ]
    assert drawn(crowd, 21) == " " * 10 + "✗×13" + " " * 7
    assert drawn([*MOMENTS[:4], MOMENTS[3]._replace(t_us=98 * S)], 5) == "● ✗×4"


def test_the_newest_level_keeps_its_label_in_a_crowd() -> None:
    assert drawn(MOMENTS, 5) == "● ▲L1"
    crowd = [Moment(n, 50 * S + n, "failed") for n in range(9)]
    old = Moment(10, 50 * S + 20, "level", "measured L0", "L0")
    new = Moment(11, 50 * S + 30, "level", "measured L3", "L3")
    later = Moment(12, 70 * S, "ask")
    assert drawn([*crowd, old, later], 101).split() == ["▲L0", "?"]
    assert drawn([*crowd, old, later, new._replace(t_us=99 * S)], 101).split() == [
        "✗×10", "?", "▲L3",
    ]  # fmt: skip
    # What comes right after it does not push the label out, but is counted in with it.
    assert drawn([new, later._replace(t_us=51 * S)], 101).split() == ["▲L3"]
    # At the right edge it takes its neighbours in rather than lose its label.
    end = [Moment(1, 98 * S, "attempt"), new._replace(t_us=100 * S)]
    assert drawn(end, 101).split() == ["▲L3"]


def test_a_refuted_claim_has_a_sign_of_its_own() -> None:
    refuted = Moment(9, 50 * S, "refuted", "claim L3 refuted: measured L0", "L0")
    assert drawn([refuted], 11).strip() == "▼L0"
    assert drawn([refuted], 11, ascii=True).strip() == "VL0"
    two = [refuted, Moment(10, 50 * S, "failed"), Moment(11, 99 * S, "level", "", "L3")]
    assert drawn(two, 101).split() == ["▼×2", "▲L3"]
    assert drawn(two, 101, ascii=True).split() == ["Vx2", "^L3"]


def test_a_mark_is_left_out_where_it_does_not_fit() -> None:
    two = [Moment(1, 50 * S, "level", "", "L1"), Moment(2, 52 * S, "ask")]
    later = Moment(3, 90 * S, "level", "", "L2")
    assert drawn([*two, later], 101)[50:53] == "▲ ?"
    two[1] = Moment(2, 54 * S, "ask")
    assert drawn([*two, later], 101)[50:55] == "▲L1 ?"


def test_ascii_signs() -> None:
    every = [Moment(n, n * 10 * S, kind) for n, kind in enumerate(KINDS)] + [
        Moment(99, 99 * S, "new")
    ]
    assert drawn(every, 101, ascii=True).split() == [
        "V",
        "x",
        "^",
        "!",
        "i",
        "#",
        "?",
        "o",
        "m",
        "g",
        ".",
    ]


@given(
    st.lists(st.tuples(st.integers(-5, 110), st.sampled_from([*KINDS, "else"])), max_size=60),
    st.integers(1, 60),
)
def test_every_moment_is_in_one_cluster_and_none_overlap(
    raw: list[tuple[int, str]], width: int
) -> None:
    moments = [Moment(n, t * S, kind, "", "L1") for n, (t, kind) in enumerate(sorted(raw))]
    clusters = lay_out(moments, 0, 100 * S, width)
    covered = [i for c in clusters for i in range(c.first, c.last + 1)]
    assert covered == list(range(len(moments)))
    end = 0
    for cluster in clusters:
        assert cluster.column >= end
        place = max(0, min(width - 1, round(moments[cluster.first].t_us / (100 * S) * (width - 1))))
        assert cluster.column == place or cluster.column + cell_len(cluster.text) == width
        end = cluster.column + cell_len(cluster.text)
        assert end <= width


@pytest.mark.parametrize(
    ("us", "text"), [(0, "0:00"), (42 * S, "0:42"), (3727 * S, "1:02:07"), (-5, "0:00")]
)
def test_clock(us: int, text: str) -> None:
    assert clock(us) == text


async def test_keys_go_from_moment_to_moment(stage) -> None:
    line = Timeline()
    app = stage(line)
    async with app.run_test(size=(105, 2)) as pilot:
        line.set_moments(MOMENTS, 0, 100 * S)
        seen = []
        for key in ("left", "left", "left", "right", "home", "left", "end", "right"):
            await pilot.press(key)
            seen.append(line.cursor_seq)
        assert seen == [47, 31, 14, 31, 3, 3, 47, 47]
        await pilot.press("home", "shift+right")
        assert line.cursor_seq == 14
        assert app.drawn(1).rstrip() == "● 0:40  attempt #2 · 3 of 5 · 2 of 2 here"
        await pilot.press("enter", "escape", "enter")
        assert [m.seq for m in app.said(Timeline.MomentChosen)] == [14]
        assert app.said(Timeline.MomentReached)[-1].seq is None
        assert app.drawn(1).rstrip() == "session 1:40 · 5 moments"


async def test_from_the_position_of_a_replay(stage) -> None:
    line = Timeline()
    app = stage(line)
    async with app.run_test(size=(105, 2)) as pilot:
        line.set_moments(MOMENTS, 0, 100 * S, position_us=50 * S, end_label="end")
        await pilot.press("right")
        assert line.cursor_seq == 31
        await pilot.press("escape", "left")
        assert line.cursor_seq == 14
        await pilot.press("escape")
        track = app.drawn(0)
        assert track.index("┃") == 50
        assert track[45:50] == "━━━━━"
        assert track[51:55] == "────"
        assert track.rstrip().endswith(" end")
        assert app.drawn(1).rstrip() == "session 1:40 · at 0:50 · 5 moments"
        line.set_position(70 * S)
        assert app.drawn(0).index("┃") == 70


async def test_a_click_chooses(stage) -> None:
    line = Timeline()
    app = stage(line)
    async with app.run_test(size=(105, 2)) as pilot:
        line.set_moments(MOMENTS, 0, 100 * S)
        await pilot.click(Timeline, offset=(60, 0))
        await pilot.click(Timeline, offset=(75, 0))
        assert [m.seq for m in app.said(Timeline.MomentChosen)] == [31]


async def test_moments_that_vanish_take_the_cursor_along(stage) -> None:
    line = Timeline()
    app = stage(line)
    async with app.run_test(size=(80, 2)) as pilot:
        line.set_moments(MOMENTS, 0, 100 * S)
        await pilot.press("end")
        line.set_moments(MOMENTS[:2], 0, 100 * S)
        assert line.cursor_seq is None
        line.set_moments([], 0, 0)
        await pilot.press("left", "right", "home", "end", "enter", "shift+left")
        assert app.drawn(1).rstrip() == "Nothing has happened yet."


@pytest.mark.parametrize("size", [(1, 1), (3, 2), (4, 3), (20, 2), (80, 1)])
async def test_hostile_labels_and_any_size(stage, size) -> None:
    line = Timeline()
    app = stage(line)
    bad = "\x1b[31m\u202e宽👩\u200d💻\n[red]"
    async with app.run_test(size=size) as pilot:
        line.styles.height = size[1]
        line.set_moments([Moment(n, n * S, "level", bad, bad) for n in range(30)], 0, 29 * S, 5 * S)
        await pilot.press("end")
        for y in range(size[1]):
            strip = line.render_line(y)
            assert sum(cell_len(s.text) for s in strip) == size[0]
            assert "\x1b" not in strip.text
            assert "\n" not in strip.text


async def test_ascii_draws_nothing_else(stage) -> None:
    line = Timeline(ascii=True)
    app = stage(line)
    async with app.run_test(size=(80, 2)) as pilot:
        line.set_moments(MOMENTS, 0, 100 * S, 50 * S)
        assert app.drawn().isascii()
        await pilot.press("end")
        assert app.drawn().isascii()
