"""The lines of a run in memory: bounded, numbered as printed, and nothing telling is lost early."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import run_lines
from core.metric import read_metric
from core.run_lines import GAP, LogLine, RunLines, Sieve


def line(text: str, seq: int = 1) -> LogLine:
    return LogLine(seq, "stdout", text)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"FIRST": 3, "LAST": 4, "NOTABLE": 2}.items():
        monkeypatch.setattr(run_lines, name, value)


def test_a_short_run_is_kept_whole_and_reads_like_a_list() -> None:
    lines = RunLines([line(f"l{i}") for i in range(10)])
    assert len(lines) == 10 and lines.missing == 0 and list(lines.gaps()) == []
    assert lines[0].text == "l0" and lines[-1].text == "l9"
    assert [x.text for x in lines[2:4]] == ["l2", "l3"]
    assert [x.text for x in lines[-2:]] == ["l8", "l9"]
    assert [x.text for x in reversed(lines)][:1] == ["l9"]
    assert [n for n, _ in lines.numbered()] == list(range(10))
    with pytest.raises(IndexError):
        lines[10]


@pytest.mark.usefixtures("small")
def test_the_first_the_last_and_the_telling_lines_stay_under_their_numbers() -> None:
    texts = [f"l{i}" for i in range(40)]
    texts[10] = "ValueError: bad"
    texts[20] = "RuntimeError: worse"
    texts[30] = "TypeError: one too many"
    lines = RunLines()
    for text in texts:
        lines.append(line(text))
    assert len(lines) == 40
    kept = dict(lines.numbered())
    assert [kept[n].text for n in (0, 1, 2, 10, 20)] == [texts[n] for n in (0, 1, 2, 10, 20)]
    assert 30 not in kept  # only so many from between, the earliest ones
    assert [lines[n].text for n in range(36, 40)] == texts[36:]
    assert lines.missing == 40 - len(kept)


@pytest.mark.usefixtures("small")
def test_a_gap_says_which_lines_it_stands_for() -> None:
    lines = RunLines(line(f"l{i}") for i in range(3))
    lines.elide(1_000_000)
    lines.append(line("end", seq=9))
    assert len(lines) == 1_000_004 and lines.missing == 1_000_000
    assert lines[3] == lines[1_000_002]
    assert (lines[3].stream, lines[3].seq) == (GAP, 9)
    assert lines[3].text == "… lines 4 to 1,000,003 are not kept here"
    assert list(lines.gaps()) == [(3, 1_000_002)]
    assert [x.text for x in lines] == ["l0", "l1", "l2", "end"]
    assert [x.text for x in lines[-5:]] == ["end"]


def test_lines_that_were_never_kept_are_a_gap_too() -> None:
    lines = RunLines()
    lines.elide(5)
    assert len(lines) == 5 and lines[4].stream == GAP and list(lines) == []
    assert list(lines.gaps()) == [(0, 4)]


def test_long_lines_are_bounded_by_their_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_lines, "FIRST_CHARS", 1000)
    monkeypatch.setattr(run_lines, "LAST_CHARS", 1000)
    lines = RunLines(line("x" * 100) for _ in range(500))
    assert len(lines) == 500
    assert sum(len(x.text) for x in lines) <= 1000 + 1000 * 1.25 + 100


@pytest.mark.usefixtures("small")
def test_the_metric_is_read_although_many_lines_follow_it() -> None:
    lines = RunLines(sieve=Sieve("acc ([0-9.]+)"))
    lines.extend(line(f"l{i}") for i in range(20))
    lines.append(line("acc 0.9"))
    lines.extend(line(f"m{i}") for i in range(50))
    assert read_metric(lines, {"pattern": "acc ([0-9.]+)"}) == 0.9


def test_a_sieve_keeps_a_traceback_with_its_frames_and_no_flood() -> None:
    flood = [f"step {i} loss 0.5" for i in range(300)]
    trace = ["Traceback (most recent call last):", '  File "a.py", line 3', "KeyError: 'x'"]
    keeps = Sieve().keeps([*flood, *trace])
    assert keeps[:300] == [False] * 300 and keeps[300:] == [True] * 3
    for pattern in ("^acc=(.*)$", r"\Aacc=(.*)\Z", "acc=([0-9])"):
        assert Sieve(pattern).keeps(["x", "acc=5", "acc"]) == [False, True, False]
    assert Sieve("(").keeps(["a"]) == [False]  # no pattern at all is no reason to fail
    assert Sieve(3).keeps(["loss nan", "info"]) == [True, False]


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.sampled_from(["extend", "elide", "error"])), max_size=60
    )
)
def test_numbers_never_move(acts: list[tuple[int, str]]) -> None:
    old = run_lines.FIRST, run_lines.LAST, run_lines.NOTABLE
    run_lines.FIRST, run_lines.LAST, run_lines.NOTABLE = 3, 4, 2
    try:
        lines, printed = RunLines(), 0
        counter = itertools.count()
        for size, act in acts:
            if act == "elide":
                lines.elide(size)
                next(itertools.islice(counter, size, size), None)
            else:
                lines.extend(line(f"{act} {next(counter)}") for _ in range(size))
            printed += size
            assert len(lines) == printed
        for number, kept in lines.numbered():
            assert kept.text.split()[1] == str(number)
            assert lines[number] is kept
        assert lines.missing == sum(b - a + 1 for a, b in lines.gaps())
        assert len(list(lines)) <= 3 + 2 + 4 * 1.25 + 9
        for first, last in lines.gaps():
            assert lines[first].stream == lines[last].stream == GAP
    finally:
        run_lines.FIRST, run_lines.LAST, run_lines.NOTABLE = old
