"""The tables of a session file: named, forward-only migrations, and the append-only triggers.

Only the ``event`` table is under migrations. Everything else in the file is derived from it
(``sessions.derived``) and simply made again.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import SessionError

if TYPE_CHECKING:
    from sqlite_utils import Database
    from sqlite_utils.migrations import Migrations

APPLICATION_ID = 0x50494C54
"""``PILT``, in the header of the file, so that ``file`` and we can tell what it is."""

UNREADABLE = (sqlite3.Error, UnicodeDecodeError)
"""What reading a damaged file raises; the module also fails to decode its own error messages."""

SCHEMA_VERSION = 1
"""Number of migrations below; kept in ``PRAGMA user_version``."""

EVENT_TABLE = """CREATE TABLE event (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, -- order of the log, 1, 2, 3 ... without gaps
  event_id TEXT NOT NULL UNIQUE, -- made by the producer; appending it again changes nothing
  ts_us INTEGER NOT NULL, -- UTC, microseconds since 1970: a label
  mono_us INTEGER NOT NULL, -- monotonic clock, microseconds: a measure within one boot_id
  boot_id TEXT NOT NULL,
  source TEXT NOT NULL, -- recorder, agent, console:<id>, importer
  kind TEXT NOT NULL, -- noun.past_tense
  run_id TEXT NOT NULL, -- '' where the event belongs to no run
  tree TEXT NOT NULL, -- git tree the event is about, or ''
  v INTEGER NOT NULL, -- version of the payload of this kind
  payload ANY NOT NULL, -- JSON text; a blob is the same JSON as a zstandard frame (zstd -d)
  prev_hash TEXT NOT NULL,
  hash TEXT NOT NULL -- SHA-256 over prev_hash and all columns; see sessions/chain.py
) STRICT"""

EVENT_INDEX = "CREATE INDEX event_kind ON event (kind, seq)"

TRIGGERS = {
    "event_no_update": """CREATE TRIGGER event_no_update BEFORE UPDATE ON event
BEGIN
  SELECT RAISE(ABORT, 'the event log is append-only: an event is never changed');
END""",
    "event_no_delete": """CREATE TRIGGER event_no_delete BEFORE DELETE ON event
BEGIN
  SELECT RAISE(ABORT, 'the event log is append-only: an event is never deleted');
END""",
    # INSERT OR REPLACE fires the delete trigger only under PRAGMA recursive_triggers, which a
    # stranger's connection need not have set. This one catches it in every connection.
    "event_only_append": """CREATE TRIGGER event_only_append BEFORE INSERT ON event
WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM event)
  OR NEW.prev_hash IS NOT coalesce(
    (SELECT hash FROM event ORDER BY seq DESC LIMIT 1),
    '0000000000000000000000000000000000000000000000000000000000000000')
  OR EXISTS (SELECT 1 FROM event WHERE event_id = NEW.event_id)
BEGIN
  SELECT RAISE(ABORT, 'the event log is append-only: an event only follows the last one');
END""",
}


def migrations() -> Migrations:
    """The migrations of the event table; their number is ``SCHEMA_VERSION``."""
    from sqlite_utils.migrations import Migrations

    steps = Migrations("pilotage")

    @steps(name="0001_event")
    def _event(db: Database) -> None:
        db.conn.execute(EVENT_TABLE)
        db.conn.execute(EVENT_INDEX)

    return steps


def version_of(conn: sqlite3.Connection, path: Path) -> int:
    """Schema version of an open file; 0 is a file without tables.

    Raises :class:`SessionError` for a file that is no session, or of a newer release.
    """
    try:
        # In one statement: between two, another process may turn an empty file into a session.
        application, version, tables = conn.execute(
            "SELECT (SELECT application_id FROM pragma_application_id), "
            "(SELECT user_version FROM pragma_user_version), "
            "(SELECT count(*) FROM sqlite_master)"
        ).fetchone()
    except UNREADABLE as err:
        raise unreadable(path, err) from err
    if application == 0 and version == 0 and tables == 0:
        return 0
    if application != APPLICATION_ID:
        raise SessionError(f"{path} is an SQLite file, but not a Pilotage session.")
    if version > SCHEMA_VERSION:
        raise SessionError(
            f"{path} was written by a newer Pilotage (log format {version}; this one reads up to "
            f"{SCHEMA_VERSION}). Update Pilotage to open it; nothing was changed."
        )
    return version


def migrate(conn: sqlite3.Connection, path: Path) -> None:
    """Bring a file that is open for writing to ``SCHEMA_VERSION``, and make sure of its triggers.

    Forward only. Two processes may do this at once: the second finds nothing to do.
    """
    if version_of(conn, path) == SCHEMA_VERSION and not wrong_triggers(conn):
        return
    from sqlite_utils import Database

    conn.execute("BEGIN IMMEDIATE")
    try:
        if version_of(conn, path) != SCHEMA_VERSION:  # again, now that nobody else can write
            migrations().apply(Database(conn))
            conn.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            conn.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        # A migration by sqlite-utils' transform(), ours or a stranger's, drops triggers silently.
        for name, sql in TRIGGERS.items():
            conn.execute(f"DROP TRIGGER IF EXISTS {name}")
            conn.execute(sql)
        wrong = wrong_triggers(conn)
        if wrong:
            raise SessionError(f"{path} could not be made append-only: {' '.join(wrong)}")
        conn.execute("COMMIT")
    except BaseException:
        if conn.in_transaction:
            conn.execute("ROLLBACK")
        raise


def wrong_triggers(conn: sqlite3.Connection) -> list[str]:
    """A sentence for each append-only trigger that is missing or changed."""
    found = _triggers(conn)
    return [
        f"The append-only trigger {name} is missing."
        if name not in found
        else f"The append-only trigger {name} was changed."
        for name, sql in TRIGGERS.items()
        if found.get(name) != sql
    ]


def foreign_triggers(conn: sqlite3.Connection) -> list[str]:
    """Names of other triggers on the event table, such as those of a full-text index."""
    return sorted(set(_triggers(conn)) - set(TRIGGERS))


def _triggers(conn: sqlite3.Connection) -> dict[str, str]:
    return dict(
        conn.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'event'"
        ).fetchall()
    )


def wrong_table(conn: sqlite3.Connection) -> list[str]:
    """A sentence where the event table is missing or is defined otherwise than by us."""
    row = conn.execute(
        "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = 'event'"
    ).fetchone()
    if row is None:
        return ["The event table is missing."]
    if row[0] != EVENT_TABLE:
        return ["The event table was rebuilt by another program: its definition differs."]
    return []


def unreadable(path: Path, err: Exception) -> SessionError:
    """The sentence for a file that SQLite can't read, or not now."""
    passing = ("full", "readonly", "locked", "unable to open", "I/O error")
    if isinstance(err, sqlite3.OperationalError) and any(word in str(err) for word in passing):
        return SessionError(
            f"{path} can't be opened ({err}). Check the free space and the rights of its "
            "directory, then try again."
        )
    return SessionError(
        f"{path} can't be read as a session ({err}). If it is a copy, copy it again together "
        "with its -wal file; else restore it from a backup."
    )
