"""No byte of untrusted text may reach the terminal as a control, whatever it was wrapped in."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.text import clean, clean_block, clean_lines

BIDI = [chr(c) for c in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))]
HOSTILE = st.text(
    alphabet=st.one_of(
        st.sampled_from(["\x1b", "[", "]", "P", "\\", "\x07", "\x9b", "\x9d", "m", "3", ";", "\t"]),
        st.sampled_from(["\n", "\r", "\x85", "\u2028", "\ud800", "\U000e0041", *BIDI]),
        st.characters(),
    )
)


@given(HOSTILE)
def test_nothing_a_terminal_obeys_survives(text: str) -> None:
    result = clean(text)
    assert not [c for c in result if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]
    assert not set(result) & set(BIDI)
    result.encode()  # no lone surrogate: it can be written


@given(HOSTILE)
def test_cleaning_twice_changes_nothing_more(text: str) -> None:
    once = clean(text)
    assert clean(once) == once


@given(HOSTILE)
def test_a_block_keeps_exactly_its_newlines(text: str) -> None:
    assert clean_block(text).count("\n") == text.count("\n")


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x9b31mred", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPq#0\x1b\\sixel", "sixel"),
        ("\x1b(Bplain\x1b=", "plain"),
        ("a\x1b]0;never ended", "a␛]0;never ended"),
        ("bell\x07 nul\x00 del\x7f", "bell␇ nul␀ del␡"),
        ("c1 \x85", "c1 �"),
        ("two\nlines", "two␊lines"),
        ("a\tb", "a       b"),
        ("if admin\u202e {", "if admin⟨202E⟩ {"),
        ("zero\u200bwidth\ufeff", "zero⟨200B⟩width⟨FEFF⟩"),
        ("naïve 東京 🏳️‍🌈 é", "naïve 東京 🏳️‍🌈 é"),
    ],
)
def test_examples(raw: str, shown: str) -> None:
    assert clean(raw) == shown


def test_lines_split_at_newlines_only() -> None:
    assert clean_lines("a\r\nb\x0bc\u2028d\n") == ["a", "b␋c␤d", ""]


def test_a_long_run_of_unterminated_escapes_is_not_quadratic() -> None:
    import time

    began = time.perf_counter()
    clean("\x1b]" * 200_000)
    clean("\x1b[" + "0" * 400_000)
    assert time.perf_counter() - began < 5  # a quadratic scan takes minutes
