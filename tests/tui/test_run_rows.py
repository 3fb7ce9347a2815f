"""Rows over a run's lines: each gap is one row, and numbers stay those that the run printed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import run_lines
from core.run_lines import GAP, LogLine, RunLines
from tui.panes.run_rows import RunRows


def lines(count: int, start: int = 0) -> list[LogLine]:
    return [LogLine(n, "stdout", f"l{n}") for n in range(start, start + count)]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"FIRST": 3, "LAST": 4, "NOTABLE": 2}.items():
        monkeypatch.setattr(run_lines, name, value)


def test_a_run_that_is_kept_whole_has_a_row_a_line() -> None:
    kept = RunLines(lines(5))
    rows = RunRows(kept).follow()
    assert [line.text for line in rows] == ["l0", "l1", "l2", "l3", "l4"]
    kept.extend(lines(2, 5))
    assert len(rows.follow()) == 7 and rows.number(6) == 6 and rows.epoch == 0


@pytest.mark.usefixtures("small")
def test_a_gap_is_one_row_and_rows_after_it_keep_their_numbers() -> None:
    kept = RunLines(lines(40))
    rows = RunRows(kept).follow()
    assert kept.missing
    gaps = [line for line in rows if line.stream == GAP]
    assert len(gaps) == len(list(kept.gaps()))
    assert all(
        rows[i].text == f"l{rows.number(i)}" for i in range(len(rows)) if rows[i].stream != GAP
    )


@given(st.lists(st.tuples(st.integers(1, 30), st.booleans()), max_size=20))
def test_rows_are_the_kept_lines_and_the_gaps_whatever_comes(parts: list[tuple[int, bool]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"FIRST": 3, "LAST": 4, "NOTABLE": 2}.items():
            patch.setattr(run_lines, name, value)
        kept, printed = RunLines(), 0
        rows = RunRows(kept)
        for count, elided in parts:
            if elided:
                kept.elide(count)
            else:
                kept.extend(lines(count, printed))
            printed += count
            rows.follow()
            shown = [(rows.number(i), rows[i].stream == GAP) for i in range(len(rows))]
            expected = sorted(
                [(n, False) for n, _ in kept.numbered()]
                + [(first, True) for first, _ in kept.gaps()]
            )
            assert shown == expected
