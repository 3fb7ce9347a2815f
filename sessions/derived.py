"""The derived tables in a session file: made from the log, never the other way round."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from core.errors import SessionError
from sessions.derive import derive
from sessions.log import EventLog
from sessions.tables import DERIVED_VERSION, META, TABLES, VIEWS


def rebuild(path: Path) -> dict[str, int]:
    """Make the derived tables of a session file anew; returns the number of rows of each."""
    with EventLog.open(path) as log:
        return refresh(log, from_nothing=True)


def refresh(log: EventLog, from_nothing: bool = False) -> dict[str, int]:
    """Bring the derived tables up to the last event, in one transaction.

    Cheap to call where nothing is new; else it derives everything again (about 50k events/s).
    Returns the rows of each table. Raises :class:`SessionError` where they can't be written.
    """
    conn = log.connection
    if not from_nothing and meta_of(conn) == (DERIVED_VERSION, log.last_seq(), log.head_hash()):
        return _counts(conn)
    derived = derive(log.events())
    try:
        with log.transaction() as conn:
            meta = meta_of(conn)
            if from_nothing or meta is None or meta[0] != DERIVED_VERSION:
                _create(conn)
            for table in reversed(TABLES):
                conn.execute(f"DELETE FROM {table.name}")
            for table in TABLES:
                conn.executemany(table.insert, derived.tables[table.name])
            conn.execute("DELETE FROM derived_meta")
            values = (DERIVED_VERSION, derived.state.seq, derived.head_hash)
            conn.execute("INSERT INTO derived_meta VALUES (?, ?, ?)", values)
    except (sqlite3.Error, OverflowError) as err:
        raise SessionError(
            f"The derived tables of {log.path} could not be made ({err}); the log is unharmed. "
            "Check the free space, then run `pilotage rebuild`."
        ) from err
    return {name: len(rows) for name, rows in derived.tables.items()}


def _create(conn: sqlite3.Connection) -> None:
    for name in VIEWS:
        conn.execute(f"DROP VIEW IF EXISTS {name}")
    for table in reversed(TABLES):
        conn.execute(f"DROP TABLE IF EXISTS {table.name}")
    conn.execute("DROP TABLE IF EXISTS derived_meta")
    for table in TABLES:
        conn.execute(table.sql)
    conn.execute(META)
    for sql in VIEWS.values():
        conn.execute(sql)


def meta_of(conn: sqlite3.Connection) -> tuple[int, int, str] | None:
    """Layout version, last event and its hash of the derived tables; None where there are none."""
    known = conn.execute(
        "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'derived_meta'"
    ).fetchone()
    if not known[0]:
        return None
    row = conn.execute("SELECT version, upto_seq, head_hash FROM derived_meta").fetchone()
    return None if row is None else (int(row[0]), int(row[1]), str(row[2]))


def _counts(conn: sqlite3.Connection) -> dict[str, int]:
    return {
        t.name: int(conn.execute(f"SELECT count(*) FROM {t.name}").fetchone()[0]) for t in TABLES
    }
