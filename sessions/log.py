"""The event log of one session: append, read, follow. Several processes share one file.

What :meth:`EventLog.append` has returned is on the disk (WAL with ``synchronous=FULL``) and
survives the death of every process. Readers never write, never migrate and hold no transaction
open between two pages.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
import time
import uuid
from collections.abc import AsyncIterator, Collection, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

from core.errors import LostError, SessionError
from core.events import Event, NewEvent, encode_payload
from core.redact import redact_payload
from sessions import schema
from sessions.chain import GENESIS, link
from sessions.home import make_private_dir
from sessions.rows import (
    COLUMNS,
    SELECT,
    build,
    kind_of,
    pack,
    parse,
    to_event,
    unpacked_size,
)

BUSY_TIMEOUT_MS = 5000
PAGE = 2000
"""Events read at a time: short transactions, and a redraw between two pages of a long history."""

PAGE_BYTES = 8 << 20
"""Bytes of payload, unpacked, from which a page is shorter than that: events of output are large."""

_INSERT = f"INSERT INTO event ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"


class EventLog:
    """An open session file. Safe to share between threads; each append is one transaction."""

    def __init__(self, path: Path, conn: sqlite3.Connection, writable: bool) -> None:
        self.path = path
        self.writable = writable
        self._conn = conn
        self._lock = threading.RLock()
        self._own_appends = 0
        about = path.stat()
        self._identity = (about.st_dev, about.st_ino)

    # --- opening -----------------------------------------------------------------------------

    @classmethod
    def create(cls, path: Path) -> EventLog:
        """A new session file, of mode 0600 in a directory of mode 0700 from the first moment.

        Raises :class:`SessionError` where there is a session already, or the file can't be made.
        """
        make_private_dir(path.parent)
        try:
            # An empty file is what a crash in this very function leaves behind: it may be taken.
            fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                os.fchmod(fd, 0o600)
            finally:
                os.close(fd)
        except OSError as err:
            raise SessionError(f"{path} can't be created ({err.strerror}).") from err
        conn = _connect(path, "rw")
        try:
            if schema.version_of(conn, path) != 0:
                raise SessionError(f"{path} is a session already; open it instead.")
            _set_up_writer(conn, path)
        except BaseException:
            conn.close()
            raise
        return cls(path, conn, writable=True)

    @classmethod
    def open(cls, path: Path) -> EventLog:
        """A session file for reading and appending; migrates it and restores its triggers.

        Raises :class:`SessionError` for what is missing, no session, damaged or too new.
        """
        _must_exist(path)
        conn = _connect(path, "rw")
        try:
            if schema.version_of(conn, path) == 0:
                raise SessionError(f"{path} is empty: its creation was cut off. Delete it.")
            _set_up_writer(conn, path)
        except BaseException:
            conn.close()
            raise
        return cls(path, conn, writable=True)

    @classmethod
    def read(cls, path: Path) -> EventLog:
        """A session file for reading only: nothing in it is changed, not even its schema."""
        _must_exist(path)
        conn = connect_readonly(path)
        try:
            if schema.version_of(conn, path) == 0:
                raise SessionError(f"{path} is empty: its creation was cut off.")
        except BaseException:
            conn.close()
            raise
        return cls(path, conn, writable=False)

    def close(self) -> None:
        """Close the file. A writer first moves the write-ahead log into it, where it can."""
        with self._lock:
            self._conn.close()

    def __enter__(self) -> EventLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def connection(self) -> sqlite3.Connection:
        """The SQLite connection, for the derived tables and for queries."""
        return self._conn

    # --- writing -----------------------------------------------------------------------------

    def append(self, *new: NewEvent) -> list[Event]:
        """Store events, all or none, in this order behind the last one, and return them stored.

        Secrets in them are redacted first. An ``event_id`` that is stored already gives the
        stored event and changes nothing, so a producer that got no answer can try again.
        Raises :class:`SessionError` where the disk, or another writer, does not let it.
        """
        if not self.writable:
            raise SessionError(f"{self.path} was opened for reading only.")
        if not new:
            return []
        mono_us = time.monotonic_ns() // 1000
        now_us = time.time_ns() // 1000
        prepared = [_prepare(n) for n in new]
        self._must_be_ours()
        try:
            with self.transaction() as conn:
                stored, rows = self._place(new, prepared, now_us, mono_us)
                if rows:
                    conn.executemany(_INSERT, rows)
                    self._own_appends += 1
        except (sqlite3.Error, OverflowError) as err:
            if type(err) is sqlite3.DatabaseError:  # its subclasses are states that can pass
                raise LostError(
                    f"{len(new)} event{'s' * (len(new) > 1)} could not be written: {self.path} is "
                    f"damaged ({err}). Copy the directory away and look at it with `pilotage check`."
                ) from err
            raise SessionError(
                f"{len(new)} event{'s' * (len(new) > 1)} could not be written to {self.path} "
                f"({err}). Nothing of them was stored; what was stored before is safe. "
                "Check the free space and the rights of the directory, then try again."
            ) from err
        return stored

    def _must_be_ours(self) -> None:
        """Raise :class:`LostError` where the path no longer leads to the file that is open.

        Writing to a deleted file succeeds, and nobody would ever read it.
        """
        try:
            now = self.path.stat()
        except OSError:
            now = None
        if now is None or (now.st_dev, now.st_ino) != self._identity:
            what = "deleted" if now is None else "replaced by another file"
            raise LostError(
                f"{self.path} was {what} while it was open, so nothing more can be recorded in it. "
                "Start a new session."
            )

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """The connection inside a write transaction: all of it is stored, or nothing."""
        with self._lock:
            self._conn.execute("BEGIN IMMEDIATE")
            try:
                yield self._conn
                self._conn.execute("COMMIT")
            except BaseException:
                if self._conn.in_transaction:
                    self._conn.execute("ROLLBACK")
                raise

    def _place(
        self,
        new: tuple[NewEvent, ...],
        prepared: list[tuple[str, int, str, str | bytes]],
        now_us: int,
        mono_us: int,
    ) -> tuple[list[Event], list[tuple[Any, ...]]]:
        """Events and rows for ``new``, with sequence numbers and hashes; inside a transaction."""
        conn = self._conn
        last = conn.execute("SELECT seq, hash FROM event ORDER BY seq DESC LIMIT 1").fetchone()
        seq, head = last or (0, GENESIS)
        ids = [_plain(n.event_id) for n in new]
        placed: dict[str, Event] = {}
        for start in range(0, len(ids), 500):
            some = ids[start : start + 500]
            query = f"{SELECT} WHERE event_id IN ({','.join('?' * len(some))})"
            for row in conn.execute(query, some):
                placed[row[1]] = to_event(row)
        rows = []
        for n, event_id, (kind, v, text, stored) in zip(new, ids, prepared, strict=True):
            if event_id in placed:
                continue
            seq += 1
            columns = (
                seq,
                event_id,
                now_us if n.ts_us is None else n.ts_us,
                mono_us,
                boot_id(),
                _plain(n.source),
                kind,
                _plain(n.run_id),
                _plain(n.tree),
                v,
            )
            this = link(head, (*columns, text))
            rows.append((*columns, stored, head, this))
            # The body is read back from its JSON: what is live now is what a replay will see.
            placed[event_id] = build(*columns, parse(text), head, this)
            head = this
        return [placed[i] for i in ids], rows

    # --- reading -----------------------------------------------------------------------------

    def events(
        self, after: int = 0, upto: int | None = None, kinds: Collection[str] | None = None
    ) -> Iterator[Event]:
        """Events with ``after < seq <= upto``, in order, of the given kinds (None: of all)."""
        more = True
        while more:
            page, more = self._page(after, upto, kinds, PAGE)
            yield from page
            if page:
                after = page[-1].seq

    def page(
        self,
        after: int = 0,
        upto: int | None = None,
        kinds: Collection[str] | None = None,
        limit: int = PAGE,
    ) -> list[Event]:
        """At most ``limit`` events, as :meth:`events` gives them; empty only where there are no more."""
        return self._page(after, upto, kinds, limit)[0]

    def _page(
        self, after: int, upto: int | None, kinds: Collection[str] | None, limit: int
    ) -> tuple[list[Event], bool]:
        """A page, and whether there may be more behind it."""
        query = f"{SELECT} WHERE seq > ?"
        values: list[Any] = [after]
        if upto is not None:
            query += " AND seq <= ?"
            values.append(upto)
        if kinds is not None:
            query += f" AND kind IN ({','.join('?' * len(kinds))})"
            values += kinds
        rows: list[Any] = []
        size = 0
        with self._lock:
            try:
                cursor = self._conn.execute(f"{query} ORDER BY seq LIMIT ?", (*values, limit))
                while size < PAGE_BYTES and (some := cursor.fetchmany(50)):
                    rows += some
                    size += sum(unpacked_size(row[10]) for row in some)
                cursor.close()
            except schema.UNREADABLE as err:
                raise schema.unreadable(self.path, err) from err
        return [to_event(row) for row in rows], size >= PAGE_BYTES or len(rows) >= limit

    def last_event(self) -> Event | None:
        """The last event; None in an empty log."""
        rows = self._query(f"{SELECT} ORDER BY seq DESC LIMIT 1")
        return to_event(rows[0]) if rows else None

    def last_seq(self) -> int:
        """Number of the last event; 0 in an empty log."""
        return int(self._query("SELECT coalesce(max(seq), 0) FROM event")[0][0])

    def head_hash(self) -> str:
        """Hash of the last event: it stands for the whole log up to there."""
        rows = self._query("SELECT hash FROM event ORDER BY seq DESC LIMIT 1")
        return str(rows[0][0]) if rows else GENESIS

    def data_version(self) -> int:
        """A number that changes whenever the log may have new events, from whichever process."""
        # SQLite's own number leaves out what this very connection committed.
        return int(self._query("PRAGMA data_version")[0][0]) + self._own_appends

    async def follow(self, after: int = 0, interval: float = 0.05) -> AsyncIterator[list[Event]]:
        """Lists of new events for ever: first those behind ``after``, then as they come.

        ``interval`` is in seconds between two looks. Lists are never empty, and at most ``PAGE``
        long; between two lists the event loop gets its turn.
        """
        seen = -1
        while True:
            version = self.data_version()
            if version != seen:
                page = self.page(after)
                if page:
                    after = page[-1].seq
                    yield page
                    await asyncio.sleep(0)
                    continue
                seen = version
            await asyncio.sleep(interval)

    def _query(self, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
        with self._lock:
            try:
                return self._conn.execute(sql, values).fetchall()
            except schema.UNREADABLE as err:
                raise schema.unreadable(self.path, err) from err


def _prepare(new: NewEvent) -> tuple[str, int, str, str | bytes]:
    """Kind, version, redacted JSON text and stored payload of a new event."""
    kind, v = kind_of(new.body)
    text = redact_payload(encode_payload(new.body))
    return _plain(kind), v, text, pack(kind, text)


def _plain(text: str) -> str:
    """Text that can be stored as UTF-8 (a lone surrogate can't)."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


_boot_id = ""


def boot_id() -> str:
    """Names the span in which monotonic clocks compare: the kernel's boot id, else this process."""
    global _boot_id
    if not _boot_id:
        try:
            _boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            pass
        _boot_id = _boot_id or str(uuid.uuid4())
    return _boot_id


def connect_readonly(path: Path) -> sqlite3.Connection:
    """A connection that can change nothing.

    A WAL file in a directory that can't be written (an installed package, a read-only mount)
    is only readable as *immutable*, which is right there: nobody can be writing.
    """
    wal = Path(f"{path}-wal")
    if not os.access(path.parent, os.W_OK) and not (wal.exists() and wal.stat().st_size):
        return _connect(path, "ro", "&immutable=1")
    return _connect(path, "ro")


def _connect(path: Path, mode: str, more: str = "") -> sqlite3.Connection:
    try:
        conn = sqlite3.connect(
            f"file:{quote(str(path.absolute()))}?mode={mode}{more}",
            uri=True,
            isolation_level=None,  # we say BEGIN ourselves
            check_same_thread=False,  # EventLog has a lock
            timeout=BUSY_TIMEOUT_MS / 1000,
        )
    except schema.UNREADABLE as err:
        raise schema.unreadable(path, err) from err
    return conn


def _set_up_writer(conn: sqlite3.Connection, path: Path) -> None:
    try:
        mode = _journal_in_wal(conn)
        if mode != "wal":
            raise SessionError(
                f"{path} can't be switched to a write-ahead log (it stays {mode!r}): the file "
                "system does not support it. Set PILOTAGE_HOME to a local disk."
            )
        conn.execute("PRAGMA synchronous = FULL")
        conn.execute("PRAGMA recursive_triggers = ON")
        schema.migrate(conn, path)
    except schema.UNREADABLE as err:
        raise schema.unreadable(path, err) from err


def _journal_in_wal(conn: sqlite3.Connection) -> str:
    """Switch to a write-ahead log; SQLite does not wait for another's lock here, so we do."""
    deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            return str(conn.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _must_exist(path: Path) -> None:
    if not path.is_file():
        raise SessionError(f"There is no session file {path}.")
