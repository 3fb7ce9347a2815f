"""The derived tables: the same log gives the same tables, and they say what happened."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from core.attempts import outcome
from core.effort import effort
from core.errors import SessionError
from core.events import (
    CheckEvaluated,
    InterventionRecorded,
    MarkerPlaced,
    NewEvent,
    RunEnded,
    RunStarted,
)
from sessions.check import check
from sessions.derive import derive, iso
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
        ("chip_sample", "run"),
        ("finding", "run"),
        ("host_sample", "run"),
        ("intervention", "run"),
        ("intervention_change", "intervention"),
        ("run_note", "run"),
        ("run_sample", "run"),
    }


def test_samples_and_notes_of_runs(db: Path) -> None:
    rebuild(db)
    (sample,) = rows(db, "SELECT run_id, rss_mb, swap_mb, processes FROM run_sample")
    assert tuple(sample.values()) == ("run4", 812.5, 0.0, 3)
    (host,) = rows(db, "SELECT cpu_pct, load1, mem_used_mb FROM host_sample")
    assert tuple(host.values()) == (12.5, 0.5, None)
    (chip,) = rows(
        db, "SELECT chip, kind, hbm_used_mb, hbm_total_mb, duty_pct, pids FROM chip_sample"
    )
    assert tuple(chip.values()) == (0, "v5e", 2048.0, None, 0.5, "7")
    (note,) = rows(db, "SELECT run_id, kind, text FROM run_note")
    assert tuple(note.values()) == ("run4", "output not stored", "5 lines are not stored here.")
    (run,) = rows(db, "SELECT lines, lines_not_stored, stalls FROM run WHERE run_id = 'run4'")
    assert tuple(run.values()) == (5, 5, 0)


def test_the_attempts_and_how_they_came_out(db: Path) -> None:
    rebuild(db)
    found = rows(db, "SELECT * FROM attempt")
    for row in found:
        del row["seq"], row["outcome_text"]
    assert [tuple(row.values()) for row in found] == [
        # run, number, tree, outcome, findings, silent ones, failed checks, interventions before
        ("run2", 1, "t1", "loud", 1, 0, 0, 0),
        ("run3", 2, "t2", "silent", 1, 1, 1, 1),
        ("run4", 3, "t3", "passed", 0, 0, 0, 0),
    ]


@pytest.mark.parametrize(("level", "failed"), [(0, 1), (3, 1), (4, 0)])
def test_what_a_table_says_of_an_attempt_is_what_the_cockpit_says(
    tmp_path: Path, level: int, failed: int
) -> None:
    path = tmp_path / "s" / "session.db"
    with EventLog.create(path) as log:
        log.append(
            NewEvent(RunStarted(1, "attempt", "c"), "recorder", run_id="r"),
            NewEvent(RunEnded("exited", 0), "recorder", run_id="r"),
            NewEvent(CheckEvaluated("x", level, "fail", "no", runs=["r"]), "recorder"),
        )
        derived = derive(log.events())
    (row,) = derived.dicts("attempt")
    shown = outcome(derived.state, derived.state.runs["r"])
    assert (row["outcome"], row["outcome_text"]) == (shown.kind, shown.text)
    assert row["failed_checks"] == failed
    assert (row["outcome"] == "silent") == bool(failed)


def test_the_operators_time_at_three_gaps_and_in_four_cells(db: Path) -> None:
    rebuild(db)
    with EventLog.read(db) as log:
        time = effort(derive(log.events()).state)
    found = rows(db, "SELECT gap_s, tail_s, active_minutes FROM operator_time")
    assert found == [
        {"gap_s": gap, "tail_s": 30, "active_minutes": seconds / 60}
        for gap, seconds in time.active_s.items()
    ]
    assert found[1]["active_minutes"] > 0
    (s,) = rows(db, "SELECT * FROM session")
    cells = [s[f"{a}_{o}_s"] for a in ("working", "idle") for o in ("active", "away")]
    assert sum(cells) == pytest.approx(s["span_s"])
    assert (s["agent_s"], s["blocked_s"]) == (time.agent_s, time.blocked_s)


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
    (session,) = rows(db, "SELECT usd, usd_at_least, unpriced_requests FROM session")
    assert session == {"usd": None, "usd_at_least": 0.25, "unpriced_requests": 1}


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
    counts = rebuild(path)
    assert {name for name, count in counts.items() if count} == {"session", "operator_time"}
    assert check(path).ok
    assert derive([]).tables["run"] == []


def test_times_that_no_calendar_has() -> None:
    assert iso(0) == "1970-01-01T00:00:00.000000Z"
    assert iso(None) is None
    assert iso(2**62) == f"{2**62} us"
