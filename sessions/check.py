"""Whether a session file is what its recorder wrote: every doubt is a sentence.

The file is only read. What a check can't find is a whole log written anew by somebody who
recomputed every hash: compare ``head_hash`` with one noted elsewhere (every export states it).
"""

from __future__ import annotations

import sqlite3
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from core.errors import PilotageError
from core.events import Event
from sessions import schema
from sessions.chain import GENESIS, breaks
from sessions.derive import derive
from sessions.derived import meta_of
from sessions.log import connect_readonly
from sessions.rows import SELECT, to_event
from sessions.tables import DERIVED_VERSION, TABLES

SHOWN = 20
"""Problems of one sort that are listed one by one; the rest is counted."""


@dataclass(slots=True)
class CheckReport:
    """The outcome of :func:`check`. ``notes`` are worth knowing and no problem."""

    path: str
    ok: bool = True
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    events: int = 0
    first_bad_seq: int | None = None
    head_hash: str = GENESIS

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON object, its fields by their names."""
        return asdict(self)

    def _problem(self, text: str, seq: int | None = None) -> None:
        self.ok = False
        self.problems.append(text)
        if seq is not None and (self.first_bad_seq is None or seq < self.first_bad_seq):
            self.first_bad_seq = seq


def check(path: Path) -> CheckReport:
    """Verify a session file: SQLite's own check, schema, triggers, chain and derived tables.

    Never raises for what is in the file, and never changes it.
    """
    report = CheckReport(str(path))
    if not path.is_file():
        report._problem(f"There is no session file {path}.")
        return report
    try:
        conn = connect_readonly(path)
    except PilotageError as err:
        report._problem(str(err))
        return report
    try:
        # Text that is not UTF-8 must be a wrong hash, not a crash.
        conn.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        if schema.version_of(conn, path) == 0:
            report._problem(f"{path} is empty: its creation was cut off.")
            return report
        conn.execute("BEGIN")  # one picture, even while somebody appends
        _check_file(conn, report)
        if not schema.wrong_table(conn) or _has_event_columns(conn):
            _check_chain(conn, report)
            if report.ok:
                _check_derived(conn, report)
    except PilotageError as err:
        report._problem(str(err))
    except schema.UNREADABLE as err:
        report._problem(str(schema.unreadable(path, err)))
    finally:
        conn.close()
    return report


def _check_file(conn: sqlite3.Connection, report: CheckReport) -> None:
    for (line,) in conn.execute(f"PRAGMA quick_check({SHOWN})"):
        if line != "ok":
            report._problem(f"SQLite finds the file damaged: {line}.")
    for sentence in (*schema.wrong_table(conn), *schema.wrong_triggers(conn)):
        report._problem(sentence)
    for name in schema.foreign_triggers(conn):
        report.notes.append(
            f"Another program has put the trigger {name!r} on the event table; Pilotage leaves it."
        )


def _has_event_columns(conn: sqlite3.Connection) -> bool:
    try:
        conn.execute(f"{SELECT} LIMIT 0")
    except sqlite3.Error:
        return False
    return True


def _check_chain(conn: sqlite3.Connection, report: CheckReport) -> None:
    count, last = conn.execute("SELECT count(*), coalesce(max(seq), 0) FROM event").fetchone()
    report.events = count
    more = 0
    for found in breaks(conn.execute(f"{SELECT} ORDER BY seq")):
        if more or len(report.problems) >= SHOWN:
            more += 1
        else:
            report._problem(found.text, found.seq)
    if more:
        report._problem(f"{more} more breaks of the chain follow.")
    head = conn.execute("SELECT hash FROM event ORDER BY seq DESC LIMIT 1").fetchone()
    report.head_hash = str(head[0]) if head else GENESIS
    try:
        row = conn.execute("SELECT seq FROM sqlite_sequence WHERE name = 'event'").fetchone()
    except sqlite3.Error:
        return  # no AUTOINCREMENT: the table was rebuilt, which is reported already
    given = int(row[0]) if row else 0
    if given > last:
        # A transaction that is rolled back takes its numbers back with it, so this is no gap
        # that could come about by itself.
        report._problem(
            f"The log ends at event {last}, but numbers up to {given} were given: the last "
            f"{given - last} events were taken out.",
            last + 1,
        )
    elif given < last:
        report._problem(
            f"SQLite's counter says {given} events were written, but there are {last}: events "
            "were put in past it.",
            given + 1,
        )


def _check_derived(conn: sqlite3.Connection, report: CheckReport) -> None:
    meta = meta_of(conn)
    if meta is None:
        report.notes.append("There are no derived tables yet; `pilotage rebuild` makes them.")
        return
    version, upto, head = meta
    if version != DERIVED_VERSION:
        report.notes.append(
            "The derived tables have the layout of another release; `pilotage rebuild` makes "
            "them anew."
        )
        return
    if upto < report.events:
        report.notes.append(
            f"The derived tables stand at event {upto} of {report.events}; `pilotage rebuild` "
            "brings them up to date."
        )
    events: list[Event] = [
        to_event(r) for r in conn.execute(f"{SELECT} WHERE seq <= ? ORDER BY seq", (upto,))
    ]
    derived = derive(events)
    if derived.state.seq != upto or derived.head_hash != head:
        report._problem("The derived tables were made from another log; run `pilotage rebuild`.")
        return
    for table in TABLES:
        try:
            found = conn.execute(table.select).fetchall()
        except sqlite3.Error as err:
            report._problem(
                f"The derived table {table.name} can't be read ({err}); run `pilotage rebuild`."
            )
            continue
        if found != derived.tables[table.name]:
            report._problem(
                f"The derived table {table.name} says something else than the log; run "
                "`pilotage rebuild`."
            )
