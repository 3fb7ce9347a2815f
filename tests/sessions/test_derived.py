"""The derived tables: the same log gives the same tables, and they say what happened."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from core.errors import SessionError
from core.events import (
    CheckEvaluated,
    InterventionRecorded,
    MarkerPlaced,
    NewEvent,
    RunEnded,
    RunStarted,
)
from core.state_parts import Run
from sessions.check import check
from sessions.derive import derive, iso, outcome
from sessions.derived import rebuild, refresh
from sessions.log import EventLog
from sessions.tables import TABLES, VIEWS


def rows(path: Path, sql: str) -> list[dict[str, Any]]:
    conn = sqlite3.connect(path)
    conn.row_factory = sqlite3.Row
    try:
        return [dict(r) for r in conn.execute(sql)]
    finally:
        conn.close()


def dump(path: Path) -> list[str]:
    conn = sqlite3.connect(path)
    try:
        return list(conn.iterdump())
    finally:
        conn.close()


def test_rebuilding_twice_gives_the_same(db: Path) -> None:
    counts = rebuild(db)
    first = dump(db)
    assert rebuild(db) == counts
    assert dump(db) == first
    assert set(counts) == {t.name for t in TABLES}
    assert all(counts.values()), "the story has a row for every table"


def test_a_refresh_equals_a_rebuild(db: Path) -> None:
    rebuild(db)
    with EventLog.open(db) as log:
        log.append(NewEvent(MarkerPlaced("x"), "recorder"))
        log.append(NewEvent(InterventionRecorded("i9", 1, kind="late"), "console:c1"))
        refresh(log)
        again = refresh(log)
    refreshed = dump(db)
    assert rebuild(db) == again
    assert dump(db) == refreshed


def test_the_event_table_and_its_triggers_are_untouched(db: Path) -> None:
    before = rows(db, "SELECT * FROM event")
    rebuild(db)
    assert rows(db, "SELECT * FROM event") == before
    assert check(db).ok


def test_every_foreign_key_points_somewhere(db: Path) -> None:
    rebuild(db)
    assert rows(db, "PRAGMA foreign_key_check") == []
    keys = {
        (t.name, k["table"]) for t in TABLES for k in rows(db, f"PRAGMA foreign_key_list({t.name})")
    }
    assert keys == {
        ("attempt", "run"),
        ("check_run", "check_result"),
        ("check_run", "run"),
        ("finding", "run"),
        ("intervention", "run"),
        ("intervention_change", "intervention"),
    }


def test_the_attempts_and_how_they_came_out(db: Path) -> None:
    rebuild(db)
    found = rows(db, "SELECT * FROM attempt")
    for row in found:
        del row["seq"]
    assert [tuple(row.values()) for row in found] == [
        # run, number, tree, outcome, findings, silent ones, failed checks, interventions before
        ("run2", 1, "t1", "failed loudly", 1, 0, 0, 0),
        ("run3", 2, "t2", "failed silently", 1, 1, 1, 1),
        ("run4", 3, "t3", "ok", 0, 0, 0, 0),
    ]


@pytest.mark.parametrize(
    ("level", "out"), [(0, "failed silently"), (3, "failed silently"), (4, "ok")]
)
def test_a_failed_check_makes_an_exit_of_0_a_silent_failure(
    tmp_path: Path, level: int, out: str
) -> None:
    """But not L4: that a run is dear does not make it wrong."""
    path = tmp_path / "s" / "session.db"
    with EventLog.create(path) as log:
        log.append(
            NewEvent(RunStarted(1, "attempt", "c"), "recorder", run_id="r"),
            NewEvent(RunEnded("exited", 0), "recorder", run_id="r"),
            NewEvent(CheckEvaluated("x", level, "fail", "no", runs=["r"]), "recorder"),
        )
        assert derive(log.events()).dicts("attempt")[0]["outcome"] == out


@pytest.mark.parametrize(
    ("end", "out"),
    [
        (RunEnded("signalled", None, "SIGSEGV"), "failed loudly"),
        (RunEnded("time limit"), "failed loudly"),
        (RunEnded("not started"), "failed loudly"),
        (RunEnded("stopped"), "stopped"),
        (RunEnded("cut off"), "cut off"),
        (None, "running"),
    ],
)
def test_how_an_attempt_ended(end: RunEnded | None, out: str) -> None:
    run = Run("r", 1, 1, "", RunStarted(1, "attempt", "c"), end)
    assert outcome(run, wrong=False) == out


def test_an_intervention_has_its_latest_words_and_its_history(db: Path) -> None:
    rebuild(db)
    first, second = rows(db, "SELECT * FROM intervention ORDER BY seq")
    assert (first["kind"], first["minutes_claimed"], first["category"]) == ("correct", 4.0, "C2")
    assert (first["run_id"], first["tree"], first["tree_after"]) == ("run2", "t1", "t2")
    assert (first["level_before"], first["level_after"]) == (-1, 0)
    assert (second["voided"], second["run_id"], second["level_after"]) == (1, None, 3)
    history = rows(db, "SELECT intervention_id, what, reason FROM intervention_change")
    assert [tuple(h.values()) for h in history] == [
        ("i1", "recorded", None),
        ("i1", "amended", None),
        ("i2", "recorded", None),
        ("i2", "voided", "a slip"),
    ]


def test_the_views(db: Path) -> None:
    rebuild(db)
    for view in VIEWS:
        assert rows(db, f"SELECT * FROM {view}"), view
    assert rows(db, "SELECT kind, interventions, minutes_claimed FROM effort_by_kind") == [
        {"kind": "correct", "interventions": 1, "minutes_claimed": 4.0}
    ]
    latest = rows(db, "SELECT check_name, state FROM check_latest")
    assert {r["check_name"]: r["state"] for r in latest} == {"exit": "pass", "update": "pass"}
    cost = {r["model"]: r for r in rows(db, "SELECT * FROM cost_by_model")}
    assert cost["claude-x"]["usd"] == 0.25
    assert (cost["mystery"]["usd"], cost["mystery"]["unpriced_requests"]) == (None, 1)


def test_unknown_prices_are_never_zero(db: Path) -> None:
    rebuild(db)
    (session,) = rows(db, "SELECT usd, unpriced_requests, measured_level FROM session")
    assert session == {"usd": 0.25, "unpriced_requests": 1, "measured_level": 3}


def test_sqlite_utils_reads_the_tables(db: Path) -> None:
    from sqlite_utils import Database

    rebuild(db)
    database = Database(sqlite3.connect(db))
    assert {t.name for t in TABLES} <= set(database.table_names())
    assert database["run"].pks == ["run_id"]
    assert [r["number"] for r in database.query("SELECT number FROM run ORDER BY number")] == [
        1, 2, 3, 4,
    ]  # fmt: skip
    database.close()


def test_every_column_says_what_it_is() -> None:
    for table in TABLES:
        assert all(c.doc for c in table.columns)
        assert len(set(table.names)) == len(table.names)


def test_tables_of_another_layout_are_made_from_nothing(db: Path) -> None:
    rebuild(db)
    conn = sqlite3.connect(db)
    conn.execute("UPDATE derived_meta SET version = 0")
    conn.execute("DROP TABLE level")
    conn.execute("CREATE TABLE level (old)")
    conn.commit()
    conn.close()
    assert "another release" in " ".join(check(db).notes)
    with EventLog.open(db) as log:
        refresh(log)
    assert check(db).ok
    assert check(db).notes == []


def test_numbers_beyond_sqlite_are_a_sentence_and_harm_nothing(db: Path) -> None:
    rebuild(db)
    before = dump(db)
    with EventLog.open(db) as log:
        log.append(NewEvent(InterventionRecorded("big", 2**70), "importer"))
        with pytest.raises(SessionError, match="log is unharmed"):
            refresh(log)
    after = [line for line in dump(db) if '"event"' not in line and "sqlite_sequence" not in line]
    assert after == [
        line for line in before if '"event"' not in line and "sqlite_sequence" not in line
    ]


def test_an_empty_log_has_an_empty_session_row(tmp_path: Path) -> None:
    path = tmp_path / "s" / "session.db"
    EventLog.create(path).close()
    assert sum(rebuild(path).values()) == 1
    assert check(path).ok
    assert derive([]).tables["run"] == []


def test_times_that_no_calendar_has() -> None:
    assert iso(0) == "1970-01-01T00:00:00.000000Z"
    assert iso(None) is None
    assert iso(2**62) == f"{2**62} us"
