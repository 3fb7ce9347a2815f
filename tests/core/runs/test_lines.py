"""Output of strangers' programs, cut anywhere by the pipe."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.runs.lines import LineSplitter


def lines(*chunks: bytes, max_bytes: int = 16 * 1024) -> list[str]:
    splitter = LineSplitter(max_bytes)
    found = [line for chunk in chunks for line in splitter.feed(chunk)]
    return found + splitter.close()


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"dos\r\nline\r\n", ["dos", "line"]),
        (b"  1%\r 50%\r100%\n", ["100%"]),
        (b" 50%\r100%\r\n", ["100%"]),
        (b"100%\r\x1b[K\nnext\n", ["100%", "next"]),
        (b"100%\r    \n", ["100%"]),
        (b"bad \xff\xfe utf\n", ["bad \ufffd\ufffd utf"]),
        ("é€😀\n".encode(), ["é€😀"]),
        (b"\x1b[31mred\x1b[0m\n", ["red"]),
        (b"bell\x07\n", ["bell␇"]),
        (b"", []),
    ],
)
def test_what_a_stream_shows(raw: bytes, shown: list[str]) -> None:
    assert lines(raw) == shown
    assert lines(*(raw[i : i + 1] for i in range(len(raw)))) == shown  # byte by byte


def test_a_long_line_is_cut_and_says_by_how_much() -> None:
    assert lines(b"x" * 30 + b"\nnext\n", max_bytes=10) == [
        "x" * 10 + " … [cut: 20 more bytes]",
        "next",
    ]


def test_a_cut_does_not_split_a_character() -> None:
    assert lines("xxxxxxxx€€\n".encode(), max_bytes=10) == ["xxxxxxxx … [cut: 6 more bytes]"]


def test_a_redrawn_line_forgets_an_overlong_state() -> None:
    assert lines(b"x" * 30 + b"\rdone\n", max_bytes=10) == ["done"]


def test_a_stream_without_newlines_takes_no_more_memory_than_a_line() -> None:
    splitter = LineSplitter(max_bytes=100)
    for _ in range(1000):
        assert splitter.feed(b"y" * 10_000) == []
    assert len(splitter._state) == 100
    assert splitter.close() == ["y" * 100 + f" … [cut: {10_000_000 - 100} more bytes]"]


def test_progress_is_what_the_unfinished_line_shows() -> None:
    splitter = LineSplitter()
    splitter.feed(b"start\n 10%")
    assert splitter.progress == " 10%"
    splitter.feed(b"\r 20%\r")
    assert splitter.progress == " 20%"
    splitter.feed(b"\n")
    assert splitter.progress == ""


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=8))
def test_the_cutting_of_the_pipe_does_not_matter(raw: bytes, cuts: list[int]) -> None:
    places = sorted({0, len(raw), *(c for c in cuts if c <= len(raw))})
    chunks = [raw[a:b] for a, b in pairwise(places)]
    assert lines(*chunks, max_bytes=50) == lines(raw, max_bytes=50)
