"""The list of wrapped rows: wrapping, the cursor, following."""

from __future__ import annotations

from rich.text import Text
from textual.app import App, ComposeResult

from tui.panes.rows import Row, RowList


class RowsApp(App[None]):
    """One list on a small screen."""

    def __init__(self, follow: bool = False) -> None:
        super().__init__()
        self.follow = follow
        self.said: list[tuple[str, str]] = []

    def compose(self) -> ComposeResult:
        yield RowList(follow=self.follow, id="rows")

    def on_row_list_chosen(self, event: RowList.Chosen) -> None:
        self.said.append(("chosen", event.key))

    def on_row_list_go_to(self, event: RowList.GoTo) -> None:
        self.said.append(("go", event.key))


def rows(count: int, first: int = 0) -> list[Row]:
    """Rows of one line."""
    return [Row(Text(f"row {i}"), f"k{i}") for i in range(first, first + count)]


def test_a_row_wraps_behind_its_lead() -> None:
    lines = Row(Text("one two three\nfour"), lead=Text("? ")).lines(9)
    assert [line.plain.rstrip() for line in lines] == ["? one two", "  three", "  four"]


def test_wide_characters_are_measured_in_cells() -> None:
    for line in Row(Text("日本語" * 5 + " 🚢" * 4)).lines(10):
        assert line.cell_len <= 10


def test_a_word_longer_than_the_line_is_folded() -> None:
    lines = Row(Text("x" * 25)).lines(10)
    assert [len(line.plain) for line in lines] == [10, 10, 5]


def test_hostile_markup_is_text() -> None:
    assert Row(Text("[red]x[/]")).lines(20)[0].plain == "[red]x[/]"


async def test_the_cursor_stays_on_its_row_while_others_come() -> None:
    app = RowsApp()
    async with app.run_test(size=(30, 5)) as pilot:
        view = app.query_one(RowList)
        view.set_rows(rows(10))
        await pilot.press("down", "down", "enter")
        assert view.cursor == "k1"
        view.set_rows(rows(12, -2))
        await pilot.press("g")
        await pilot.pause()
        assert app.said == [("chosen", "k1"), ("go", "k1")]


async def test_the_cursor_is_scrolled_into_sight() -> None:
    app = RowsApp()
    async with app.run_test(size=(30, 5)) as pilot:
        view = app.query_one(RowList)
        view.set_rows(rows(30))
        await pilot.press("end")
        assert view.cursor == "k29" and view.scroll_offset.y == 25
        await pilot.press("home")
        assert view.cursor == "k0" and view.scroll_offset.y == 0


async def test_following_stops_with_the_cursor_and_begins_again_at_the_end() -> None:
    app = RowsApp(follow=True)
    async with app.run_test(size=(30, 5)) as pilot:
        view = app.query_one(RowList)
        view.set_rows(rows(20))
        await pilot.pause()
        await pilot.pause()
        assert view.scroll_offset.y == 15
        await pilot.press("up", "up")
        assert view.cursor == "k18"
        view.set_rows(rows(40))
        await pilot.pause()
        assert view.scroll_offset.y == 15, "the operator reads; nothing may move"
        await pilot.press("end")
        view.set_rows(rows(45))
        view.set_rows(rows(50))  # before the first ones have been laid out
        await pilot.pause()
        await pilot.pause()
        assert view.scroll_offset.y == 45


async def test_the_same_rows_paint_nothing() -> None:
    app = RowsApp()
    async with app.run_test(size=(30, 5)) as pilot:
        view = app.query_one(RowList)
        view.set_rows(rows(5))
        await pilot.pause()
        painted: list[object] = []
        view.refresh = lambda *a, **k: painted.append(a) or view  # type: ignore[method-assign]
        view.set_rows(rows(5))
        assert not painted
        view.set_rows(rows(6))
        assert painted
