"""The list of sessions: fast, honest about what it can't read, and in step with the fold."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from core import events as ev
from core.events import Event, NewEvent
from core.state import SessionState, fold
from sessions.catalog import LIGHT_KINDS, age, as_rows, describe, entry, listing
from sessions.home import DB_NAME, session_dir
from sessions.log import EventLog


def put(session_id: str, *new: NewEvent) -> Path:
    path = session_dir(session_id) / DB_NAME
    with EventLog.create(path) as log:
        log.append(*new)
    return path


def test_no_sessions() -> None:
    assert listing() == []
    assert "pilotage demo" in describe([])


def test_an_entry_says_what_the_fold_says(tell: Callable) -> None:
    path = put("demo-1130-a7f3", *tell())
    with EventLog.read(path) as log:
        whole = fold(log.events())
        last = log.last_seq()
    (found,) = listing()
    assert (found.session_id, found.path, found.title) == ("demo-1130-a7f3", str(path), "Demo")
    assert found.state == whole.phase == "finished"
    assert found.measured_level == whole.measured_level == 3
    assert found.claimed_level == whole.claimed_level == 3
    assert found.attempts == len(whole.attempts) == 3
    assert (found.interventions, found.open_findings) == (1, 1)
    assert (found.usd, found.usd_at_least, found.cost) == (None, 0.25, "at least $0.25")
    assert found.events == last
    assert found.last_ts_us == whole.last_ts_us
    assert found.problem == ""


def test_it_never_reads_what_is_heavy(tell: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    put("demo-1130-a7f3", *tell())
    seen: set[str] = set()
    real = EventLog.events

    def spy(self: EventLog, *args: object, **more: object) -> Iterator[Event]:
        for event in real(self, *args, **more):  # type: ignore[arg-type]
            seen.add(event.kind)
            yield event

    monkeypatch.setattr(EventLog, "events", spy)
    listing()
    assert seen
    assert seen <= LIGHT_KINDS
    assert not LIGHT_KINDS & {"run.output", "run.stepped", "run.signalled", "tree.snapshotted"}


@pytest.mark.parametrize("alive", [True, False])
def test_its_phase_is_that_of_the_whole_fold_at_any_point(
    tell: Callable, alive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sessions.catalog.recorder_alive", lambda _: alive)
    path = put("part-1130-0000")
    state = SessionState()
    seen = set()
    with EventLog.open(path) as log:
        for new in tell():
            state.apply(*log.append(new))
            (found,) = listing()
            cut_off = state.recorder_up and not alive
            assert found.state == ("cut off" if cut_off else state.phase)
            assert found.attempts == len(state.attempts)
            assert found.claimed_level == state.claimed_level
            seen.add(found.state)
    assert seen == (
        {"idle", "working", "waiting", "finished"} if alive else {"idle", "cut off", "finished"}
    )


def test_broken_sessions_are_listed_last_with_their_problem(tell: Callable) -> None:
    put("good-1130-0000", *tell())
    put("empty-1130-0000")
    newer = put("newer-1130-0000", *tell())
    with sqlite3.connect(newer) as conn:
        conn.execute("PRAGMA user_version = 99")
    conn.close()
    torn = put("torn-1130-0000", *tell())
    torn.write_bytes(torn.read_bytes()[:5000])
    junk = session_dir("junk-1130-0000")
    junk.mkdir()
    (junk / DB_NAME).write_text("no database")
    (session_dir("nothing-1130-0000")).mkdir()  # no file: no session
    found = listing()
    assert [e.session_id for e in found] == [
        "good-1130-0000", "empty-1130-0000", "junk-1130-0000", "newer-1130-0000", "torn-1130-0000",
    ]  # fmt: skip
    assert all(e.problem.endswith(".") and e.state == "unreadable" for e in found[1:])
    text = describe(found)
    assert "newer Pilotage" in text
    assert text.splitlines()[1].startswith("good-1130-0000")


def test_the_latest_activity_comes_first() -> None:
    for session_id, ts in (("a-1130-0000", 5), ("b-1130-0000", 9), ("c-1130-0000", 7)):
        put(session_id, NewEvent(ev.MarkerPlaced("x"), "recorder", ts_us=ts))
    assert [e.session_id for e in listing()] == ["b-1130-0000", "c-1130-0000", "a-1130-0000"]


def test_an_unknown_price_is_unknown_and_no_use_costs_nothing(tell: Callable) -> None:
    put("free-1130-0000", NewEvent(ev.MarkerPlaced("x"), "recorder", ts_us=2))
    put("dark-1130-0000", NewEvent(ev.AgentUsed("mystery"), "agent", ts_us=1))
    free, dark = listing()
    assert free.usd == 0
    assert (dark.usd, dark.usd_at_least) == (None, 0)
    assert "unknown" in describe([dark])


def test_titles_are_a_strangers_text() -> None:
    put("x-1130-0000", NewEvent(ev.SessionOpened("x-1130-0000", "a\x1b]0;t\x07\nb", "p"), "c"))
    text = describe(listing())
    assert "\x1b" not in text
    assert len(text.splitlines()) == 2


def test_rows_are_json_objects(tell: Callable) -> None:
    put("demo-1130-a7f3", *tell())
    (row,) = as_rows(listing())
    assert row["session_id"] == "demo-1130-a7f3"
    assert row["started_at"] == "2026-11-30T00:53:20.000000Z"


def test_an_entry_outside_the_home(db: Path) -> None:
    assert entry("demo-1130-a7f3", db).problem == ""


def test_ages() -> None:
    spans = [-5, 0, 59, 60, 3599, 3600, 86399, 86400]
    assert [age(s) for s in spans] == [
        "0 s", "0 s", "59 s", "1 min", "59 min", "1 h", "23 h", "1 d",
    ]  # fmt: skip
