"""The plot: which dots, which labels, and how gaps are told."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tui.widgets.plot import LinePlot
from tui.widgets.plot_data import Series, bounds, columns, short, ticks

NAN = math.nan


def dots(one: Series, width: int, height: int, log: bool = False) -> list[str]:
    box = bounds([one], log)
    assert box is not None
    grid = [[" "] * width for _ in range(height)]
    for column, top, bottom in columns(one, box, width, height, log):
        for row in range(top, bottom + 1):
            grid[row][column] = "x"
    return ["".join(row) for row in grid]


def test_a_rising_line() -> None:
    assert dots(Series("a", range(5), [0, 1, 2, 3, 4]), 5, 5) == [
        "    x",
        "   x ",
        "  x  ",
        " x   ",
        "x    ",
    ]


def test_distant_points_are_joined_and_steep_pieces_have_no_holes() -> None:
    assert dots(Series("a", [0, 6], [0, 2]), 7, 3) == ["     xx", "  xxx  ", "xx     "]
    steep = dots(Series("a", [0, 1], [0, 9]), 2, 10)
    assert all(row.strip() for row in steep)


def test_a_gap_stays_open() -> None:
    assert dots(Series("a", range(6), [1, 1, NAN, math.inf, 0, 0]), 6, 2) == ["xx    ", "    xx"]


def test_a_column_shows_its_extremes() -> None:
    ys = [0.0] * 1000
    ys[501] = 9.0
    shown = dots(Series("a", range(1000), ys), 10, 4)
    assert [row.count("x") for row in shown] == [1, 1, 1, 10]


def test_logarithmic_rows_and_what_it_leaves_out() -> None:
    one = Series("a", range(4), [1, 10, 100, 1000])
    assert dots(one, 4, 4, log=True) == ["   x", "  x ", " x  ", "x   "]
    below = Series("a", range(4), [1, -1, 0, 100])
    assert dots(below, 4, 3, log=True) == ["   x", "    ", "x   "]
    assert bounds([Series("a", [0], [-1])], True) is None


@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=60),
    st.integers(1, 30),
    st.integers(1, 20),
    st.booleans(),
)
def test_dots_stay_inside_for_any_numbers(
    ys: list[float], width: int, height: int, log: bool
) -> None:
    one = Series("a", list(range(len(ys))), ys)
    box = bounds([one], log)
    if box is None:
        return
    found = columns(one, box, width, height, log)
    assert found
    for column, top, bottom in found:
        assert 0 <= column < width
        assert 0 <= top <= bottom < height


def test_unequal_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="'a' has 2 x and 1 y values"):
        Series("a", [1, 2], [1])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.41234, "0.4123"),
        (1200, "1200"),
        (12345.6, "12346"),
        (3.2e-5, "3.2e-5"),
        (2e7, "2e7"),
        (-0.5, "-0.5"),
        (NAN, "nan"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
    ],
)
def test_short_numbers(value: float, text: str) -> None:
    assert short(value) == text


def test_ticks_are_round() -> None:
    assert ticks(0.13, 2.4, 4) == pytest.approx([0.5, 1.0, 1.5, 2.0])
    assert ticks(0, 100, 5) == [0, 20, 40, 60, 80, 100]
    assert ticks(1, 1, 4) == []


async def test_lines_are_told_apart_without_colour(stage) -> None:
    xs = list(range(50))
    plot = LinePlot([Series("loss", xs, xs), Series("reference", xs, [49 - x for x in xs])])
    app = stage(plot)
    async with app.run_test(size=(50, 12)):
        legend = app.drawn(0)
        assert "━━● loss 49" in legend
        assert "╍╍○ reference 0" in legend
        assert app.drawn(1).rstrip().endswith("●")
        assert app.drawn(10).rstrip().endswith("○")
        assert "┤" in app.drawn()
        assert app.drawn(11).rstrip().endswith("step 49")
        plot.ascii = True
        plot.set_series(plot._series)
        assert app.drawn().isascii()
        assert {"*", "o"} <= set(app.drawn())


async def test_reading_values(stage) -> None:
    xs = list(range(0, 1000, 10))
    plot = LinePlot([Series("loss", xs, [x / 10 for x in xs])])
    app = stage(plot)
    async with app.run_test(size=(60, 10)) as pilot:
        await pilot.press("left")
        assert "loss 99" in app.drawn(0)
        assert "at step 990" in app.drawn(0)
        await pilot.press("home", "right")
        assert plot.cursor_x == 20
        assert "loss 2 " in app.drawn(0)
        await pilot.press("escape")
        assert plot.cursor_x is None
        assert [m.x for m in app.said(LinePlot.CursorMoved)] == [990, 0, 20, None]


async def test_log_axis_key(stage) -> None:
    plot = LinePlot([Series("loss", range(4), [1, 10, 100, 1000])])
    app = stage(plot)
    async with app.run_test(size=(60, 14)) as pilot:
        await pilot.press("y")
        assert app.drawn(0).rstrip().endswith("log")
        labels = [row.split("┤")[0].strip() for row in app.drawn().splitlines() if "┤" in row]
        assert labels == ["1000", "100", "10", "1"]
        plot.set_series([Series("loss", range(3), [0, -1, -2])])
        assert "No value above zero" in app.drawn(0)


async def test_no_numbers_are_said_and_marked(stage) -> None:
    plot = LinePlot(empty="No step yet.")
    app = stage(plot)
    async with app.run_test(size=(40, 10)):
        assert app.drawn(0).strip() == "No step yet."
        plot.set_series([Series("loss", [0, 1], [NAN, math.inf])])
        assert "No value is a number so far" in app.drawn(0)
        plot.set_series([Series("loss", range(5), [1, 2, NAN, 3, NAN])])
        assert app.drawn(9).count("×") == 2
        assert "loss nan" in app.drawn(0)


async def test_a_fifth_line_is_refused(stage) -> None:
    with pytest.raises(ValueError, match="4 lines apart; 5 were given"):
        LinePlot().set_series([Series(str(n), [0], [0]) for n in range(5)])


@pytest.mark.parametrize("name", ["loss", "\x1b[31m宽宽\u202e[red]", "x" * 500])
async def test_any_size_is_filled_exactly(stage, name: str) -> None:
    plot = LinePlot(
        [Series(name, range(9), [1, 2, 1e9, NAN, -5, 0, 1, 1, 1]), Series("one", [4], [2])]
    )
    app = stage(plot)
    async with app.run_test(size=(80, 24)):
        for width in (1, 2, 5, 13, 14, 40, 200):
            for height in (1, 2, 3, 4, 5, 30):
                for plot.cursor_x in (None, 3):
                    strips = plot.draw(width, height)
                    assert len(strips) == height
                    for strip in strips:
                        assert sum(cell_len(s.text) for s in strip) == width
                        assert "\x1b" not in strip.text


async def test_5_000_values_are_drawn_in_no_time(stage) -> None:
    xs = list(range(5_000))
    plot = LinePlot([Series("loss", xs, [math.sin(x) for x in xs])])
    app = stage(plot)
    async with app.run_test(size=(80, 24)):
        plot.draw(80, 12)
        cpu = time.process_time()
        for _ in range(20):
            plot.draw(80, 12)
        # The promise is 5 ms; twice that leaves room for a slower machine.
        assert (time.process_time() - cpu) / 20 < 0.010
