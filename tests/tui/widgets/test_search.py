"""The search: what it finds, in which order, and that no pattern can hold it up."""

from __future__ import annotations

import signal
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui.widgets.search import Query, Scan, SearchError

ROWS = ["alpha", "Beta [x]", "gamma alpha", "delta", "ALPHA"]


def scanned(query: Query, rows: list[str], origin: int = 0) -> Scan:
    scan = Scan(query, origin)
    while not scan.step(rows.__getitem__, len(rows), 10):
        pass
    return scan


def test_text_is_not_a_pattern() -> None:
    assert Query("[x]").hits(ROWS) == [1]
    assert Query("a.p").hits(ROWS) == []


def test_capitals_make_it_case_sensitive() -> None:
    assert Query("alpha").hits(ROWS) == [0, 2, 4]
    assert Query("ALPHA").hits(ROWS) == [4]
    assert Query("^[A-Z]", regex=True).hits(ROWS) == [1, 4]


def test_spans() -> None:
    assert Query("a").spans("banana") == [(1, 2), (3, 4), (5, 6)]
    assert Query("x*", regex=True).spans("axxa") == [(1, 3)]


def test_a_broken_expression_is_a_sentence() -> None:
    with pytest.raises(SearchError, match="Not a regular expression: "):
        Query("(", regex=True)


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(a|a)*b", r"(\w+\s?)+\$"])
def test_a_catastrophic_expression_is_given_up(pattern: str) -> None:
    before = signal.getsignal(signal.SIGVTALRM)
    cpu = time.process_time()
    query = Query(pattern, regex=True)
    with pytest.raises(SearchError, match="takes too long"):
        query.hits(["a" * 60 + "c"])
    with pytest.raises(SearchError, match="takes too long"):
        query.spans("a" * 60 + "c")
    assert time.process_time() - cpu < 2
    assert signal.getsignal(signal.SIGVTALRM) is before
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_other_threads_get_text_search_only() -> None:
    said: list[str] = []

    def work() -> None:
        said.append(str(Query("alpha").hits(ROWS)))
        try:
            Query("a+", regex=True).hits(ROWS)
        except SearchError as error:
            said.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert said[0] == "[0, 2, 4]"
    assert "main thread" in said[1]


def test_slices_stop_in_time_and_go_on() -> None:
    rows = [f"row {n}" for n in range(5_000)]
    scan = Scan(Query("row 4999"), 0)
    assert not scan.step(rows.__getitem__, len(rows), 0.0)
    steps = 1
    while not scan.step(rows.__getitem__, len(rows), 0.0):
        steps += 1
    assert steps > 10
    assert scan.count == 1
    rows.append("row 4999 again")
    assert not scan.done(len(rows))
    assert scan.step(rows.__getitem__, len(rows), 1)
    assert scan.count == 2


@given(
    st.lists(st.sampled_from(["hit", "miss"]), min_size=1, max_size=30),
    st.integers(0, 29),
    st.integers(0, 29),
)
def test_next_and_rank_agree_with_the_plain_list(kinds: list[str], origin: int, row: int) -> None:
    rows = kinds
    origin, row = min(origin, len(rows)), min(row, len(rows) - 1)
    scan = scanned(Query("hit"), rows, origin)
    hits = [index for index, kind in enumerate(rows) if kind == "hit"]
    assert scan.count == len(hits)
    below = [hit for hit in hits if hit > row]
    above = [hit for hit in hits if hit < row]
    assert scan.next_from(row, 1) == (below[0] if below else hits[0] if hits else None)
    assert scan.next_from(row, -1) == (above[-1] if above else hits[-1] if hits else None)
    assert scan.rank(row) == (hits.index(row) + 1 if row in hits else None)
