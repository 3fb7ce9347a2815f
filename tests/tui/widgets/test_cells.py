"""Untrusted text as terminal cells."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.style import Style

from tui.widgets.cells import MAX_LINE, fit, measured, paint, printable, window

BASE = Style()
_TEXTS = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from("\x1b\x9b\t\r\n\u200b\u200d\u202e\ufe0f\u0301宽🚀👩é \U000e0041"),
    ),
    max_size=60,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain [red]text[/]", "plain [red]text[/]"),
        ("\x1b[31mred\x1b[0m", "␛[31mred␛[0m"),
        ("a\tb\tc", "a   b   c"),
        ("宽\tb", "宽  b"),
        ("\x1b\tb", "␛   b"),
        ("a\rb\x00\x7f", "a␍b␀␡"),
        ("\x9b31m", "<U+009B>31m"),
        ("user\u202egnp", "user<U+202E>gnp"),
        ("a\u200bb", "a<U+200B>b"),
        ("❤\ufe0f", "❤"),
        ("👩\u200d💻", "👩💻"),
        ("x\u200dy", "x<U+200D>y"),
        ("e\u0301", "e\u0301"),
        ("e" + "\u0301" * 50, "e\u0301\u0301"),
        ("a\ud800b", "a\N{REPLACEMENT CHARACTER}b"),
        ("nbsp\xa0x", "nbsp x"),
    ],
)
def test_pictures(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(_TEXTS)
def test_nothing_printable_controls_a_terminal(text: str) -> None:
    shown = printable(text)
    assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
    shown.encode("utf-8")


@given(_TEXTS, st.integers(0, 40), st.integers(0, 30))
def test_a_window_has_exactly_its_width(text: str, x: int, width: int) -> None:
    segments = paint(printable(text), [], x, width, BASE)
    assert sum(cell_len(segment.text) for segment in segments) == width


@given(_TEXTS, st.integers(0, 40))
def test_fit_has_exactly_its_width(text: str, width: int) -> None:
    assert cell_len(fit(printable(text), width)) == width


def test_a_wide_character_cut_at_either_edge_leaves_blanks() -> None:
    assert "".join(s.text for s in paint("宽宽宽", [], 1, 4, BASE)) == " 宽 "
    assert window("宽宽宽", 1, 4) == (1, 2, 1, 3)


def test_spans_stay_on_their_characters_when_scrolled() -> None:
    bold = Style(bold=True)
    segments = paint("ab宽cd", [(2, 4, bold)], 2, 4, BASE)
    assert [(s.text, bool(s.style and s.style.bold)) for s in segments] == [
        ("宽c", True),
        ("d", False),
    ]


def test_later_spans_lie_over_earlier_ones() -> None:
    one, two = Style(bold=True), Style(italic=True)
    segments = paint("abcd", [(0, 3, one), (2, 4, two)], 0, 4, BASE)
    assert [(s.text, s.style) for s in segments] == [("ab", one), ("c", one + two), ("d", two)]


def test_a_long_line_tells_what_is_not_shown() -> None:
    shown = printable("x" * 1_000_000)
    assert shown.endswith(" … 980,000 more characters not shown")
    assert len(shown) < MAX_LINE + 50


@given(_TEXTS)
def test_measured_agrees_with_printable(text: str) -> None:
    assert measured(text) == (printable(text), cell_len(printable(text)))


def test_measured_cuts_long_lines_too() -> None:
    shown, cells = measured("宽" * 30_000)
    assert shown == printable("宽" * 30_000)
    assert cells == cell_len(shown)


def test_zero_width_characters_can_not_fill_a_window() -> None:
    start, end, _, cells = window("\u0e31" * 10_000, 0, 10)
    assert (start, cells) == (0, 0)
    assert end <= 40
