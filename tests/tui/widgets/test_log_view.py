"""The log: following, reading back, searching, and harmless display."""

from __future__ import annotations

import time
import unicodedata

import pytest
from rich.cells import cell_len

from tui.widgets.log_view import LogView, PlainLine, is_error


def lines(count: int, start: int = 0) -> list[PlainLine]:
    return [PlainLine("stdout", f"step {n}") for n in range(start, start + count)]


async def test_follows_the_end_until_one_moves_away(stage) -> None:
    view = LogView()
    app = stage(view)
    async with app.run_test(size=(40, 10)) as pilot:
        view.set_lines(data := lines(100), "r1")
        await pilot.pause()
        assert "step 99" in app.drawn(9)
        data += lines(5, 100)
        view.set_lines(data, "r1")
        await pilot.pause()
        assert "step 104" in app.drawn(9)
        assert view.follow

        await pilot.press("pageup")
        top = view.scroll_offset.y
        assert not view.follow
        data += lines(142, 105)
        view.set_lines(data, "r1")
        await pilot.pause()
        assert view.scroll_offset.y == top
        assert view.new_lines == 142
        assert app.drawn(9).rstrip().endswith("142 new ↓")
        assert app.said(LogView.FollowChanged)[-1].text == "142 new ↓"

        await pilot.press("end")
        assert view.follow
        assert view.new_lines == 0
        assert "step 246" in app.drawn(9)
        assert app.said(LogView.FollowChanged)[-1].text == ""


async def test_one_line_up_stops_following_without_moving(stage) -> None:
    view = LogView()
    app = stage(view)
    async with app.run_test(size=(40, 10)) as pilot:
        view.extend(lines(50))
        await pilot.pause()
        top = view.scroll_offset.y
        await pilot.press("up")
        view.extend(lines(3, 50))
        await pilot.pause()
        assert (view.scroll_offset.y, view.cursor, view.new_lines) == (top, 48, 3)
        await pilot.press("down", "down")
        assert view.new_lines == 2


async def test_the_wheel_stops_following_and_starts_it_again(stage) -> None:
    view = LogView()
    app = stage(view)
    async with app.run_test(size=(40, 10)) as pilot:
        view.extend(lines(50))
        await pilot.pause()
        view.scroll_to(y=20, animate=False)
        await pilot.pause()
        view.extend(lines(5, 50))
        await pilot.pause()
        assert (view.follow, view.scroll_offset.y, view.new_lines) == (False, 20, 5)
        view.scroll_to(y=45, animate=False)
        await pilot.pause()
        assert (view.follow, view.new_lines, view.cursor) == (True, 0, 54)


async def test_follow_survives_a_change_of_size(stage) -> None:
    view = LogView()
    app = stage(view)
    async with app.run_test(size=(40, 10)) as pilot:
        view.extend(lines(50))
        await pilot.pause()
        for size in ((40, 4), (30, 20), (80, 7)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            assert view.follow
            assert "step 49" in app.drawn(size[1] - 1)


async def test_a_wide_line_does_not_stop_following(stage) -> None:
    view = LogView()
    app = stage(view)
    async with app.run_test(size=(40, 10)) as pilot:
        for n in range(30):
            view.extend([PlainLine("stdout", "x" * n * 10)])
            await pilot.pause()
        assert view.follow
        assert view.scroll_offset.y == 20


async def test_another_document_starts_at_its_end_and_a_shorter_one_is_clamped(stage) -> None:
    view = LogView()
    app = stage(view)
    async with app.run_test(size=(40, 10)) as pilot:
        view.set_lines(lines(100), "r1")
        await pilot.press("home")
        view.set_lines(lines(60), "r2")
        await pilot.pause()
        assert (view.follow, view.cursor) == (True, 59)
        await pilot.press("up")
        view.set_lines(lines(20), "r2")  # a replay steps back
        await pilot.pause()
        assert view.cursor == 19
        assert "step 19" in app.drawn(9)
        view.set_lines([], "r2")
        await pilot.pause()
        assert view.row_count() == 0
        await pilot.press("up", "down", "pageup", "end", "home", "enter", "e", "n")
        assert not app.said(LogView.LineChosen)


async def test_stderr_and_errors_have_signs(stage) -> None:
    view = LogView(numbers=True)
    app = stage(view)
    data = [
        PlainLine("stdout", "fine"),
        PlainLine("stderr", "warning"),
        PlainLine("stderr", "ValueError: no"),
    ]
    async with app.run_test(size=(40, 10)) as pilot:
        view.set_lines(data, 1)
        await pilot.press("home")
        assert [app.drawn(y).rstrip() for y in range(3)] == [
            " ▸1 fine",
            "▌ 2 warning",
            "▌✗3 ValueError: no",
        ]
        view.ascii = True
        assert [app.drawn(y).rstrip() for y in range(3)] == [
            " >1 fine",
            "! 2 warning",
            "!x3 ValueError: no",
        ]
        plain, warned = view.render_line(0), view.render_line(1)
        assert list(plain)[-1].style != list(warned)[-2].style
        await pilot.press("number_sign")
        assert app.drawn(1).rstrip() == "! warning"


@pytest.mark.parametrize(
    "text",
    [
        "Traceback (most recent call last):",
        "RuntimeError: Found no NVIDIA driver",
        "torch.cuda.OutOfMemoryError: CUDA out of memory",
        "  jax.errors.TracerArrayConversionError: x",
        "F0000 00:00:1700000000 pjrt_client.cc:12] Check failed",
        "error: unrecognized argument",
        "[rank0] ERROR trainer: lost",
        "Segmentation fault (core dumped)",
    ],
)
def test_lines_that_report_errors(text: str) -> None:
    assert is_error(text)


@pytest.mark.parametrize(
    "text",
    [
        "step 3 loss 0.1",
        "mean squared error 0.02",
        "errors 0",
        "def on_error(self):",
        "Killed 3 of",
    ],
)
def test_lines_that_do_not(text: str) -> None:
    assert not is_error(text)


async def test_first_and_next_error(stage) -> None:
    view = LogView()
    app = stage(view)
    data = lines(300)
    data[120] = PlainLine("stderr", "Traceback (most recent call last):")
    data[200] = PlainLine("stderr", "KeyError: 'x'")
    async with app.run_test(size=(40, 10)) as pilot:
        view.set_lines(data, 1)
        await pilot.press("e")
        assert view.cursor == 120
        assert "Traceback" in app.drawn(3)  # what led to it stands above
        await pilot.press("E")
        assert view.cursor == 200
        await pilot.press("E")
        assert view.cursor == 200


async def test_search_from_the_keyboard(stage) -> None:
    view = LogView()
    app = stage(view)
    async with app.run_test(size=(60, 10)) as pilot:
        view.set_lines(lines(2000), 1)
        await pilot.press("home", "slash", *"step 15", "backspace", "backspace")
        assert app.drawn(9).startswith("/step ▏")
        await pilot.press(*"7e", "backspace")
        # Keys with a meaning of their own are text while one types.
        assert view.cursor == 0
        await pilot.press("enter")
        await pilot.pause()
        assert view.cursor == 7
        assert app.drawn(9).rstrip().endswith("/step 7  1 of 111")
        await pilot.press("n")
        assert view.cursor == 70
        await pilot.press("N", "N")
        assert view.cursor == 799
        row = view.cursor - view.scroll_offset.y
        marked = [s.text for s in view.render_line(row) if s.style and s.style.underline]
        assert marked == ["step 7"]
        await pilot.press("escape")
        assert view.search_text == ""
        assert app.said(LogView.SearchChanged)[-1].text == ""


async def test_search_by_expression_and_one_that_is_none(stage) -> None:
    view = LogView()
    app = stage(view)
    async with app.run_test(size=(60, 10)) as pilot:
        view.set_lines(lines(500), 1)
        await pilot.press("home", "slash", "ctrl+r", *r"p [34]99$", "enter")
        await pilot.pause()
        assert (view.cursor, view.search_text) == (399, "regex /p [34]99$  1 of 2")
        await pilot.press("slash", "(", "enter")
        await pilot.pause()
        assert "Not a regular expression" in app.drawn(9)
        assert view.cursor == 399


async def test_a_catastrophic_expression_ends_in_a_sentence(stage) -> None:
    view = LogView()
    app = stage(view)
    async with app.run_test(size=(80, 10)) as pilot:
        view.set_lines([PlainLine("stdout", "a" * 400 + "!")] * 50, 1)
        await pilot.pause()
        view.search(r"(a+)+$", regex=True)
        await pilot.pause()
        assert "takes too long" in app.drawn(9)
        cpu = time.process_time()
        app.drawn()
        assert time.process_time() - cpu < 0.1


async def test_search_finds_what_arrives_later(stage) -> None:
    view = LogView()
    app = stage(view)
    async with app.run_test(size=(60, 10)) as pilot:
        view.extend(lines(10))
        await pilot.pause()
        view.search("step 1234")
        assert view.search_text == "/step 1234  no match"
        view.extend(lines(2000, 10))
        while not view.search_done:
            await pilot.pause(0.01)
        assert view.search_text == "/step 1234  1 match"


async def test_a_match_out_of_sight_is_scrolled_to(stage) -> None:
    view = LogView()
    app = stage(view)
    async with app.run_test(size=(60, 10)) as pilot:
        view.extend([PlainLine("stdout", "宽" * 200 + "needle" + "x" * 500)])
        await pilot.pause()
        view.search("needle")
        await pilot.pause()
        assert "needle" in app.drawn(0)
        await pilot.press("0")
        assert view.scroll_offset.x == 0


async def test_sideways_to_the_end_of_a_line(stage) -> None:
    view = LogView()
    app = stage(view)
    async with app.run_test(size=(40, 5)) as pilot:
        view.extend([PlainLine("stdout", "a" * 60 + "END")])
        await pilot.pause()
        assert app.drawn(0).endswith("›")
        await pilot.press(*["right"] * 8)
        assert app.drawn(0).rstrip().endswith("END")


async def test_enter_and_double_click_choose_a_line(stage) -> None:
    view = LogView()
    app = stage(view)
    async with app.run_test(size=(40, 10)) as pilot:
        view.extend(lines(5))
        await pilot.press("up", "enter")
        await pilot.click(LogView, offset=(5, 1), times=2)
        assert [message.index for message in app.said(LogView.LineChosen)] == [3, 1]


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (5, 2), (80, 24)])
async def test_hostile_text_is_harmless_and_measured_right(stage, size) -> None:
    hostile = [
        "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b]52;c;eA==\x07",
        "\tcol\tumn\t宽\tend",
        "宽" * 30,
        "👩\u200d💻🚀 ❤\ufe0f 🇩🇪 e\u0301",
        "\u202enihtyna\u200b\u2066x",
        "[red]markup[/red] [link=x]y[/link]",
        "\r\n\x0b\x0c\x85\u2028 \ud800",
        "x" * 1_000_000,
        "\x1b宽" * 300_000,
        "",
    ]
    view = LogView(numbers=True)
    app = stage(view)
    async with app.run_test(size=size) as pilot:
        view.set_lines([PlainLine("stderr", text) for text in hostile] * 2, 1)
        await pilot.pause()
        view.search("a")
        for x in (0, 1, 3, 17, 19_990):
            view.scroll_to(x=x, animate=False)
            for top in range(0, view.row_count(), size[1]):
                view.move_cursor(top)
                width = view.scrollable_content_region.width
                for y in range(size[1]):
                    strip = view.render_line(y)
                    assert sum(cell_len(s.text) for s in strip) == strip.cell_length == width
                    assert not {unicodedata.category(c) for c in strip.text} & {"Cc", "Cf", "Cs"}
        view.move_cursor(5)
        view.scroll_to(x=0, animate=False)
        if size == (80, 24):
            assert "[red]markup[/red] [link=x]y[/link]" in app.drawn()


async def test_200_000_lines_cost_what_is_in_sight(stage) -> None:
    class Counted(list):
        looked = 0

        def __getitem__(self, index):
            Counted.looked += 1
            return super().__getitem__(index)

    view = LogView()
    app = stage(view)
    data = Counted(lines(200_000))
    async with app.run_test(size=(80, 24)) as pilot:
        view.set_lines(data, 1)
        await pilot.press("pageup", "home", "end")
        assert "step 199999" in app.drawn(23)
        assert Counted.looked < 24 * 20


async def test_empty(stage) -> None:
    view = LogView(empty="The run has not printed anything.")
    app = stage(view)
    async with app.run_test(size=(50, 4)):
        assert app.drawn(0).strip() == "The run has not printed anything."


def ranked(count: int, start: int = 0) -> list[PlainLine]:
    """Lines of two ranks in turn."""
    return [PlainLine("stdout", f"step {n // 2}", str(n % 2)) for n in range(start, start + count)]


async def test_ranks_are_told_apart_and_can_be_read_alone(stage) -> None:
    view = LogView()
    app = stage(view)
    async with app.run_test(size=(40, 10)) as pilot:
        data = [PlainLine("stderr", "W launching"), *ranked(40)]
        view.set_lines(data, "r1", ["0", "1"])
        await pilot.pause()
        assert "1│step 19" in app.drawn(9)
        assert "0│step 19" in app.drawn(8)
        assert view.rank_text == "2 ranks"

        await pilot.press("o")
        assert (view.rank_text, view.row_count()) == ("rank 0 of 2", 20)
        assert [app.drawn(y).strip(" ▸") for y in (8, 9)] == ["step 18", "step 19"]
        data += ranked(10, 40)
        view.set_lines(data, "r1", ["0", "1"])
        await pilot.pause()
        assert "step 24" in app.drawn(9)
        assert view.follow
        await pilot.press("home", "enter")
        assert app.said(LogView.LineChosen)[-1].index == 1  # the line of the log, not of the rank
        await pilot.press("o")
        assert (view.rank_text, view.row_count()) == ("rank 1 of 2", 25)
        await pilot.press("o")
        assert (view.rank_text, view.row_count()) == ("2 ranks", 51)


async def test_a_replay_that_steps_back_keeps_the_rank(stage) -> None:
    view = LogView()
    app = stage(view)
    async with app.run_test(size=(40, 10)) as pilot:
        view.set_lines(ranked(40), "r1", ["0", "1"])
        view.show_rank("1")
        view.set_lines(ranked(10), "r1", ["0", "1"])
        await pilot.pause()
        assert view.row_count() == 5
        assert "step 4" in app.drawn(4)


async def test_the_name_of_a_rank_cannot_break_the_screen(stage) -> None:
    view = LogView()
    app = stage(view)
    async with app.run_test(size=(40, 5)) as pilot:
        rank = "\x1b[31m" + "x" * 500
        view.set_lines([PlainLine("stdout", "hello", rank)], "r1", [rank])
        await pilot.pause()
        assert "\x1b" not in app.drawn(0)
        assert "hello" in app.drawn(0)


async def test_without_ranks_the_key_says_so_and_changes_nothing(stage) -> None:
    view = LogView()
    app = stage(view)
    async with app.run_test(size=(40, 10)) as pilot:
        view.set_lines(lines(3), "r1")
        await pilot.press("o")
        assert (view.rank_text, view.row_count()) == ("", 3)
