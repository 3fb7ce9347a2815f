"""The gallery: all widgets together, in both themes, without colour and without Unicode."""

from __future__ import annotations

import pytest

from tui.theme import THEMES
from tui.widgets import DiffView, LinePlot, LogView, Timeline
from tui.widgets.gallery import Gallery

WIDGETS = (DiffView, LogView, LinePlot, Timeline)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (40, 12)])
@pytest.mark.parametrize("theme", [theme.name for theme in THEMES])
async def test_it_draws_in_every_theme_and_size(theme: str, size: tuple[int, int]) -> None:
    app = Gallery(theme)
    async with app.run_test(size=size) as pilot:
        await pilot.press("tab", "e", "tab", "left", "tab", "left")
        picture = app.export_screenshot()
        assert "3:10" in picture
        assert "+5" in picture
        for kind in WIDGETS:
            assert app.query_one(kind).HELP.startswith("# ")


async def test_no_colour_leaves_every_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = Gallery()
    async with app.run_test(size=(120, 40)) as pilot:
        assert app.no_color
        log = app.query_one(LogView)
        log.focus()
        await pilot.press("home")
        rows = [log.render_line(y).text.rstrip() for y in range(7)]
        assert rows[0] == " ▸step 0 loss 2.3000  1.9 it/s"
        assert rows[5].startswith("▌ pt-xla-profiler")
        diff = app.query_one(DiffView)
        signs = {diff.render_line(y).text[7:8] for y in range(2, 9)}
        assert {"+", "-", " "} == signs


async def test_a_theme_changes_every_widget() -> None:
    app = Gallery(THEMES[0].name)
    async with app.run_test(size=(120, 40)) as pilot:
        before = {kind: list(app.query_one(kind).render_line(0)) for kind in WIDGETS}
        await pilot.press("t")
        await pilot.pause()
        for kind in WIDGETS:
            after = list(app.query_one(kind).render_line(0))
            assert [s.text for s in after] == [s.text for s in before[kind]]
            assert [s.style for s in after] != [s.style for s in before[kind]]
