"""`check` finds what was done to a file, says it in a sentence, and changes nothing."""

from __future__ import annotations

import hashlib
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

import sessions.check as module
from core.events import MarkerPlaced, NewEvent
from sessions.check import CheckReport, check
from sessions.derived import rebuild
from sessions.log import EventLog
from sessions.schema import TRIGGERS


def tamper(path: Path, *statements: str) -> None:
    """Change a file as somebody would who knows about the triggers and puts them back."""
    conn = sqlite3.connect(path)
    for name in TRIGGERS:
        conn.execute(f"DROP TRIGGER IF EXISTS {name}")
    for statement in statements:
        conn.execute(statement)
    for sql in TRIGGERS.values():
        conn.execute(sql)
    conn.commit()
    conn.close()


def digest(directory: Path) -> dict[str, str]:
    return {
        f.name: hashlib.sha256(f.read_bytes()).hexdigest()
        for f in directory.iterdir()
        if not f.name.endswith("-shm")
    }


def test_a_true_log_is_ok(db: Path) -> None:
    report = check(db)
    assert (report.ok, report.problems, report.first_bad_seq) == (True, [], None)
    assert report.notes == ["There are no derived tables yet; `pilotage rebuild` makes them."]
    with EventLog.read(db) as log:
        assert report.events == log.last_seq()
        assert report.head_hash == log.head_hash()
    rebuild(db)
    assert check(db).notes == []


def test_it_changes_nothing_and_works_beside_a_writer(db: Path) -> None:
    rebuild(db)
    with EventLog.open(db) as log:
        log.append(NewEvent(MarkerPlaced("x"), "recorder"))
        before = digest(db.parent)
        assert "session.db-wal" in before
        report = check(db)
        assert report.ok
        assert report.notes == [
            (
                f"The derived tables stand at event {report.events - 1} of {report.events}; "
                "`pilotage rebuild` brings them up to date."
            )
        ]
        assert digest(db.parent) == before
    before = digest(db.parent)
    check(db)
    assert {k: v for k, v in digest(db.parent).items() if k == "session.db"} == before


def test_it_looks_at_one_moment_while_others_append(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = module._check_chain

    def append_meanwhile(conn: sqlite3.Connection, report: CheckReport) -> None:
        with EventLog.open(db) as log:
            log.append(NewEvent(MarkerPlaced("x"), "recorder"))
        real(conn, report)

    before = check(db)
    monkeypatch.setattr(module, "_check_chain", append_meanwhile)
    during = check(db)
    assert (during.events, during.head_hash) == (before.events, before.head_hash)
    assert during.ok


def test_it_reads_a_file_in_a_directory_that_cannot_be_written(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whoever runs the tests may be root, to whom every directory is writable: say it is not.
    monkeypatch.setattr("sessions.log.os.access", lambda *_: False)
    names = sorted(f.name for f in db.parent.iterdir())
    assert check(db).ok
    assert sorted(f.name for f in db.parent.iterdir()) == names == ["session.db"]


@pytest.mark.parametrize(
    ("statement", "words", "seq"),
    [
        ("UPDATE event SET payload = json_set(payload, '$.text', 'other') WHERE seq = 31",
         "Event 31 was changed after it was written", 31),
        ("UPDATE event SET ts_us = ts_us + 1 WHERE seq = 4", "Event 4 was changed", 4),
        ("UPDATE event SET tree = 't9' WHERE seq = 9", "Event 9 was changed", 9),
        ("UPDATE event SET mono_us = 1 WHERE seq = 1", "Event 1 was changed", 1),
        ("UPDATE event SET hash = lower(hex(randomblob(32))) WHERE seq = 5", "Event 5", 5),
        ("UPDATE event SET prev_hash = hash WHERE seq = 6", "Event 6 does not continue", 6),
        ("UPDATE event SET payload = x'00' WHERE seq = 7", "Event 7 has a damaged payload", 7),
        ("UPDATE event SET payload = 5 WHERE seq = 7", "Event 7", 7),
        ("UPDATE event SET source = CAST(x'ff' AS TEXT) WHERE seq = 8", "Event 8 was changed", 8),
        ("DELETE FROM event WHERE seq = 10", "Before event 11, event 10 is missing", 11),
        ("DELETE FROM event WHERE seq BETWEEN 10 AND 12", "events 10 to 12 are missing", 13),
        ("DELETE FROM event WHERE seq = 1", "event 1 is missing", 2),
    ],
)  # fmt: skip
def test_what_was_done_to_an_event_is_named(db: Path, statement: str, words: str, seq: int) -> None:
    tamper(db, statement)
    report = check(db)
    assert not report.ok
    assert words in " ".join(report.problems)
    assert report.first_bad_seq == seq
    assert len(report.problems) <= 3  # one edit is not a thousand problems


def test_two_events_that_changed_places_are_found(db: Path) -> None:
    tamper(
        db,
        "UPDATE event SET seq = -1 WHERE seq = 4",
        "UPDATE event SET seq = 4 WHERE seq = 5",
        "UPDATE event SET seq = 5 WHERE seq = -1",
    )
    assert check(db).first_bad_seq == 4


def test_a_tail_that_was_cut_off_is_found(db: Path) -> None:
    events = check(db).events
    tamper(db, f"DELETE FROM event WHERE seq > {events - 2}")
    report = check(db)
    assert report.first_bad_seq == events - 1
    assert report.problems == [
        (
            f"The log ends at event {events - 2}, but numbers up to {events} were given: the last 2 "
            "events were taken out."
        )
    ]


def test_a_payload_of_bytes_that_only_looks_compressed_is_found(db: Path) -> None:
    tamper(db, "UPDATE event SET payload = x'28b52ffda0ffffffff' WHERE seq = 12")
    assert "Event 12 has a damaged payload" in " ".join(check(db).problems)


def test_missing_changed_and_foreign_triggers(db: Path) -> None:
    conn = sqlite3.connect(db)
    conn.execute("DROP TRIGGER event_no_delete")
    conn.execute("DROP TRIGGER event_no_update")
    conn.execute("CREATE TRIGGER event_no_update BEFORE UPDATE ON event BEGIN SELECT 1; END")
    conn.execute("CREATE TRIGGER event_ai AFTER INSERT ON event BEGIN SELECT 1; END")
    conn.commit()
    conn.close()
    report = check(db)
    assert report.problems == [
        "The append-only trigger event_no_update was changed.",
        "The append-only trigger event_no_delete is missing.",
    ]
    assert "'event_ai'" in report.notes[0]


def test_derived_tables_that_say_something_else(db: Path) -> None:
    rebuild(db)
    conn = sqlite3.connect(db)
    conn.execute("UPDATE intervention SET voided = 0")
    conn.execute("DROP TABLE finding")
    conn.commit()
    conn.close()
    report = check(db)
    assert len(report.problems) == 2
    assert "derived table finding can't be read" in report.problems[0]
    assert "derived table intervention says something else" in report.problems[1]
    rebuild(db)
    assert check(db).ok


def test_derived_tables_of_another_log(db: Path, tmp_path: Path, tell: Callable) -> None:
    rebuild(db)
    other = tmp_path / "other" / "session.db"
    with EventLog.create(other) as log:
        log.append(*tell("other-1130-0000"))
    rebuild(other)
    conn = sqlite3.connect(db)
    conn.execute("UPDATE derived_meta SET head_hash = ?", (check(other).head_hash,))
    conn.commit()
    conn.close()
    assert "made from another log" in check(db).problems[0]


@pytest.mark.parametrize("keep", [0, 1, 50, 100, 512, 4096, 5000, 9000])
def test_a_truncated_file_is_a_sentence(db: Path, keep: int) -> None:
    db.write_bytes(db.read_bytes()[:keep])
    report = check(db)
    assert not report.ok
    assert all(p.endswith(".") for p in report.problems)


def test_any_damage_is_a_sentence_or_harmless(db: Path) -> None:
    rebuild(db)
    whole = db.read_bytes()
    rng = random.Random(7)
    found = 0
    for _ in range(80):
        damaged = bytearray(whole)
        start = rng.randrange(len(damaged))
        damaged[start : start + 200] = rng.randbytes(len(damaged[start : start + 200]))
        db.write_bytes(bytes(damaged))
        for extra in db.parent.glob("session.db-*"):
            extra.unlink()
        report = check(db)
        assert report.ok == (not report.problems)
        found += not report.ok
    assert found > 20  # the rest hit pages that hold nothing


def test_no_file_and_no_session(tmp_path: Path) -> None:
    assert "no session file" in check(tmp_path / "x.db").problems[0]
    (tmp_path / "y.db").write_text("hello, I am no database at all, but a text\n" * 100)
    assert "can't be read as a session" in check(tmp_path / "y.db").problems[0]
    assert not check(tmp_path).ok


def test_the_report_as_json_has_its_fields(db: Path) -> None:
    assert set(check(db).to_json()) == {
        "path", "ok", "problems", "notes", "events", "first_bad_seq", "head_hash",
    }  # fmt: skip
