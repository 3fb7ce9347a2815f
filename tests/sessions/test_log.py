"""The event log: what was acknowledged is there, in order, and can't be changed."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import events as ev
from core.errors import LostError, SessionError
from core.events import Event, MarkerPlaced, NewEvent, RunOutput, Unknown
from sessions import schema
from sessions.chain import GENESIS, breaks, link
from sessions.check import check
from sessions.log import PAGE, EventLog, boot_id
from sessions.rows import COMPRESS_FROM, SELECT, pack, unpack

ROOT = Path(__file__).resolve().parent.parent.parent


def marker(text: str = "here", **more: object) -> NewEvent:
    return NewEvent(MarkerPlaced(text), "recorder", **more)  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "s-1130-0000" / "session.db"


# --- creating and opening --------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o277])
def test_file_and_directory_are_private_whatever_the_umask(path: Path, umask: int) -> None:
    old = os.umask(umask)
    try:
        with EventLog.create(path) as log:
            log.append(marker())
            files = list(path.parent.iterdir())
            assert {stat.S_IMODE(f.stat().st_mode) for f in files} == {0o600}
    finally:
        os.umask(old)
    assert len(files) == 3  # the file, -wal and -shm
    for directory in (path.parent, path.parent.parent):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_the_file_is_never_readable_to_others_while_it_is_made(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    real = os.fchmod

    def spy(fd: int, mode: int) -> None:
        seen.append(stat.S_IMODE(os.fstat(fd).st_mode))
        real(fd, mode)

    monkeypatch.setattr(os, "fchmod", spy)
    old = os.umask(0)
    try:
        EventLog.create(path).close()
    finally:
        os.umask(old)
    assert seen == [0o600]


def test_create_refuses_what_is_there_but_takes_an_empty_file(db: Path, path: Path) -> None:
    with pytest.raises(SessionError, match="session already"):
        EventLog.create(db)
    path.parent.mkdir(parents=True)
    path.touch()
    with pytest.raises(SessionError, match="cut off"):
        EventLog.open(path)
    with EventLog.create(path) as log:
        assert log.append(marker())[0].seq == 1


def test_create_follows_no_symlink(path: Path, tmp_path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SessionError, match="can't be created"):
        EventLog.create(path)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("opener", [EventLog.open, EventLog.read])
def test_what_is_no_session_is_a_sentence(
    opener: Callable[[Path], EventLog], tmp_path: Path
) -> None:
    garbage = tmp_path / "garbage.db"
    garbage.write_bytes(random.Random(1).randbytes(9000))
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as conn:
        conn.execute("CREATE TABLE event (seq)")
    conn.close()
    for file, words in (
        (tmp_path / "none.db", "There is no session file"),
        (garbage, "can't be read as a session"),
        (foreign, "not a Pilotage session"),
    ):
        with pytest.raises(SessionError, match=words):
            opener(file)


@pytest.mark.parametrize("opener", [EventLog.open, EventLog.read])
def test_a_newer_file_is_refused_with_a_sentence(
    opener: Callable[[Path], EventLog], db: Path
) -> None:
    with sqlite3.connect(db) as conn:
        conn.execute(f"PRAGMA user_version = {schema.SCHEMA_VERSION + 1}")
    conn.close()
    before = db.read_bytes()
    with pytest.raises(SessionError, match="newer Pilotage"):
        opener(db)
    assert db.read_bytes() == before


def test_the_settings_of_a_writer(log: EventLog) -> None:
    pragma = {
        name: log.connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "busy_timeout", "application_id")
    }
    assert pragma == {
        "journal_mode": "wal",
        "synchronous": 2,  # FULL
        "busy_timeout": 5000,
        "application_id": schema.APPLICATION_ID,
    }


def test_every_migration_is_named_and_recorded(log: EventLog) -> None:
    from sqlite_utils import Database

    steps = schema.migrations()
    assert not steps.pending(Database(log.connection))
    assert len(steps.applied(Database(log.connection))) == schema.SCHEMA_VERSION


def test_opening_to_write_restores_triggers_that_a_tool_dropped(db: Path) -> None:
    from sqlite_utils import Database

    conn = sqlite3.connect(db)
    Database(conn)["event"].transform(types={"tree": str})
    conn.close()
    assert any("trigger event_no_update is missing" in p for p in check(db).problems)
    with EventLog.open(db) as log:
        assert schema.wrong_triggers(log.connection) == []
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            log.connection.execute("DELETE FROM event")


def test_reading_changes_nothing_not_even_missing_triggers(db: Path) -> None:
    conn = sqlite3.connect(db)
    conn.execute("DROP TRIGGER event_no_delete")
    conn.commit()
    conn.close()
    before = db.read_bytes()
    with EventLog.read(db) as log:
        assert log.last_seq() > 0
        with pytest.raises(SessionError, match="reading only"):
            log.append(marker())
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            log.connection.execute("DELETE FROM event")
    assert db.read_bytes() == before


# --- appending -------------------------------------------------------------------------------


def test_what_is_returned_is_what_is_read(path: Path, tell: Callable[..., list]) -> None:
    with EventLog.create(path) as log:
        returned = [e for new in tell() for e in log.append(new)]
    with EventLog.read(path) as log:
        stored = list(log.events())
    assert stored == returned
    assert [e.seq for e in stored] == list(range(1, len(stored) + 1))
    assert [e.body for e in stored] == [new.body for new in tell()]


JSON_TEXT = st.text(max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | JSON_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(JSON_TEXT, inner, max_size=3),
    max_leaves=6,
)


@given(
    st.lists(
        st.builds(
            NewEvent,
            body=st.builds(
                Unknown,
                kind=st.text(min_size=1, max_size=12).map(lambda s: f"x.{s}"),
                v=st.integers(0, 99),
                data=st.dictionaries(JSON_TEXT, VALUES, max_size=4),
            )
            | st.builds(MarkerPlaced, JSON_TEXT, JSON_TEXT)
            | st.builds(RunOutput, JSON_TEXT, st.lists(JSON_TEXT, max_size=5)),
            source=JSON_TEXT,
            run_id=JSON_TEXT,
            tree=JSON_TEXT,
            ts_us=st.none() | st.integers(-(2**63), 2**63 - 1),
        ),
        max_size=6,
        unique_by=lambda n: n.event_id,
    )
)
def test_any_event_survives_and_continues_the_chain(
    tmp_path_factory: pytest.TempPathFactory, new: list[NewEvent]
) -> None:
    path = tmp_path_factory.mktemp("log") / "session.db"
    with EventLog.create(path) as log:
        returned = log.append(*new)
        rows = log.connection.execute(f"{SELECT} ORDER BY seq").fetchall()
        assert list(log.events()) == returned
    assert list(breaks(rows)) == []
    texts = [unpack(row[10]) for row in rows]
    for n, event, text in zip(new, returned, texts, strict=True):
        assert event.kind == (n.body.kind if isinstance(n.body, Unknown) else n.body.KIND)
        # What this release does not know is given back as the bytes it came in.
        assert ev.encode_payload(event.body, event.extra) == text
        assert n.ts_us is None or event.ts_us == n.ts_us
    shutil.rmtree(path.parent)


def test_an_event_id_is_stored_once_and_gives_the_stored_event(log: EventLog) -> None:
    before = log.last_seq()
    first = marker("first", event_id="same")
    stored = log.append(first, marker("between"))
    again = log.append(marker("other words", event_id="same"), marker("new"), first)
    assert again[0] == again[2] == stored[0]
    assert again[1].seq == before + 3 == log.last_seq()


def test_one_append_is_all_or_nothing(log: EventLog) -> None:
    before = log.last_seq()
    with pytest.raises(SessionError, match="Nothing of them was stored"):
        log.append(marker(), marker(ts_us=2**63), marker())
    assert log.last_seq() == before
    assert log.append(marker())[0].seq == before + 1  # and the numbers have no gap


def test_a_full_disk_is_a_sentence_and_loses_nothing(log: EventLog) -> None:
    before = log.last_seq()
    pages = log.connection.execute("PRAGMA page_count").fetchone()[0]
    log.connection.execute(f"PRAGMA max_page_count = {pages}")
    noise = random.Random(2).randbytes(300_000).hex()
    with pytest.raises(SessionError, match=r"full.*stored before is safe"):
        log.append(marker(noise))
    log.connection.execute("PRAGMA max_page_count = 1000000")
    assert log.last_seq() == before
    log.append(marker(noise))
    assert log.last_seq() == before + 1


def test_clocks_and_boot(log: EventLog) -> None:
    mono, wall = time.monotonic_ns() // 1000, time.time_ns() // 1000
    a, b = log.append(marker(), marker(ts_us=5))
    assert mono <= a.mono_us == b.mono_us <= time.monotonic_ns() // 1000
    assert wall <= a.ts_us <= time.time_ns() // 1000
    assert b.ts_us == 5
    assert a.boot_id == boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_secrets_are_gone_from_the_file_and_from_what_is_returned(path: Path) -> None:
    secret = "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH"
    with EventLog.create(path) as log:
        (event,) = log.append(NewEvent(RunOutput("stdout", ["x", f"token {secret}"]), "recorder"))
    assert isinstance(event.body, RunOutput)
    assert event.body.lines == ["x", "token [redacted: Hugging Face token]"]
    assert all(secret.encode() not in f.read_bytes() for f in path.parent.iterdir())


def test_large_bulk_payloads_are_compressed_and_others_stay_readable(path: Path) -> None:
    lines = [f"step {i} loss 0.5" for i in range(1000)]
    with EventLog.create(path) as log:
        log.append(
            NewEvent(RunOutput("stdout", lines), "recorder", run_id="r"),
            NewEvent(RunOutput("stdout", lines[:3]), "recorder", run_id="r"),
            marker("x" * (2 * COMPRESS_FROM)),
        )
        kinds = [r[0] for r in log.connection.execute("SELECT typeof(payload) FROM event")]
        assert kinds == ["blob", "text", "text"]
        (packed,) = log.connection.execute("SELECT payload FROM event WHERE seq = 1").fetchone()
        assert len(packed) < len(json.dumps(lines)) / 4
        assert json.loads(unpack(packed)) == {"stream": "stdout", "lines": lines, "rank": ""}
        assert next(log.events()).body == RunOutput("stdout", lines)


@pytest.mark.parametrize(
    "blob",
    [b"", b"\x28\xb5\x2f\xfd", b"not zstd", b"\x28\xb5\x2f\xfd\xa4\xff\xff\xff\xff" + b"\0" * 9],
)
def test_a_damaged_frame_is_a_sentence(blob: bytes) -> None:
    with pytest.raises(SessionError, match="payload"):
        unpack(blob)
    frame = pack("run.output", "x" * COMPRESS_FROM)
    assert isinstance(frame, bytes)
    with pytest.raises(SessionError, match="payload"):
        unpack(frame[:-3])


def test_a_chain_can_be_recomputed_from_its_description(db: Path) -> None:
    import hashlib

    conn = sqlite3.connect(db)
    prev = "0" * 64
    for row in conn.execute(f"{SELECT} ORDER BY seq"):
        columns = [*row[:10], unpack(row[10])]
        text = json.dumps([prev, *columns], separators=(",", ":"))
        assert row[11] == prev
        assert row[12] == hashlib.sha256(text.encode()).hexdigest() == link(prev, columns)
        prev = row[12]
    conn.close()
    assert prev != GENESIS


# --- append-only -----------------------------------------------------------------------------

COPY = "SELECT {seq}, {id}, ts_us, mono_us, boot_id, source, kind, run_id, tree, v, payload, {prev}, hash FROM event WHERE seq = 2"
HEAD = "(SELECT hash FROM event ORDER BY seq DESC LIMIT 1)"
NEXT = "(SELECT max(seq) + 1 FROM event)"


@pytest.mark.parametrize("recursive", ["ON", "OFF"])
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE event SET payload = '{}' WHERE seq = 2",
        "UPDATE event SET seq = seq + 100",
        "UPDATE OR REPLACE event SET seq = 1 WHERE seq = 2",
        "DELETE FROM event",
        "DELETE FROM event WHERE seq = (SELECT max(seq) FROM event)",
        "REPLACE INTO event SELECT * FROM event WHERE seq = 2",
        f"REPLACE INTO event {COPY.format(seq=NEXT, id='event_id', prev=HEAD)}",
        f"INSERT OR IGNORE INTO event {COPY.format(seq=1000, id=1000, prev=HEAD)}",
        f"INSERT INTO event {COPY.format(seq=-5, id=1000, prev=HEAD)}",
        f"INSERT INTO event {COPY.format(seq=NEXT, id=1000, prev='prev_hash')}",
        f"INSERT INTO event {COPY.format(seq='NULL', id=1000, prev=HEAD)}",
        "INSERT INTO event SELECT * FROM event WHERE seq = 2 ON CONFLICT DO UPDATE SET v = 9",
    ],
)
def test_no_statement_changes_the_past(db: Path, statement: str, recursive: str) -> None:
    conn = sqlite3.connect(db)
    conn.execute(f"PRAGMA recursive_triggers = {recursive}")
    before = conn.execute("SELECT * FROM event").fetchall()
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        conn.execute(statement)
    assert conn.execute("SELECT * FROM event").fetchall() == before
    conn.close()


# --- reading and following -------------------------------------------------------------------


def test_events_by_position_and_kind(log: EventLog) -> None:
    everything = list(log.events())
    assert list(log.events(after=3, upto=6)) == everything[3:6]
    runs = list(log.events(kinds={"run.started", "run.ended"}))
    assert [e.kind for e in runs] == [
        e.kind for e in everything if e.kind in ("run.started", "run.ended")
    ]
    assert list(log.events(kinds=())) == []
    assert log.last_event() == everything[-1]
    assert log.head_hash() == everything[-1].hash


def test_a_history_longer_than_a_page_is_read_whole(path: Path) -> None:
    with EventLog.create(path) as log:
        log.append(*(marker(str(i)) for i in range(PAGE + 5)))
        assert [e.seq for e in log.events()] == list(range(1, PAGE + 6))
        assert len(list(log.events(kinds={"marker.placed"}))) == PAGE + 5


def test_an_empty_log(path: Path) -> None:
    with EventLog.create(path) as log:
        assert (log.last_seq(), log.head_hash(), log.last_event()) == (0, GENESIS, None)
        assert list(log.events()) == []
        assert log.append() == []


async def test_follow_gives_history_then_news_of_itself_and_of_others(db: Path) -> None:
    got: list[Event] = []
    with EventLog.open(db) as own, EventLog.open(db) as other, EventLog.read(db) as reader:
        start = own.last_seq()

        async def collect(log: EventLog, upto: int) -> list[Event]:
            async for some in log.follow(after=2, interval=0.005):
                assert some
                got.extend(some)
                if some[-1].seq >= upto:
                    return got
            raise AssertionError("follow ended")

        for log in (reader, own):
            got.clear()
            task = asyncio.create_task(collect(log, start + 3))
            await asyncio.sleep(0)
            own.append(marker())
            other.append(marker(), marker())
            await asyncio.wait_for(task, 10)
            assert [e.seq for e in got] == list(range(3, start + 4))
            start += 3


def test_data_version_changes_with_every_append_and_only_then(db: Path) -> None:
    with EventLog.open(db) as own, EventLog.read(db) as reader:
        for log in (own, reader):
            before = log.data_version()
            assert log.data_version() == before
            own.append(marker())
            assert log.data_version() != before


def test_threads_share_one_log(log: EventLog) -> None:
    before = log.last_seq()

    def work(name: str) -> None:
        for i in range(25):
            log.append(marker(f"{name}{i}"), marker(f"{name}{i}b"))
            assert log.last_seq() > before

    threads = [threading.Thread(target=work, args=(n,)) for n in "abcd"]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert log.last_seq() == before + 200
    assert list(breaks(log.connection.execute(f"{SELECT} ORDER BY seq"))) == []


# --- several processes, sudden death ---------------------------------------------------------

WRITER = """
import random, sys
from pathlib import Path
from core.events import MarkerPlaced, NewEvent
from sessions.log import EventLog
path, name, count, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
rng = random.Random(seed)
with EventLog.open(path) as log:
    n = 0
    while n < count:
        size = min(rng.randint(1, 12), count - n)
        batch = [
            NewEvent(MarkerPlaced("x" * rng.randint(0, 3000)), name, event_id=f"{name}-{n + i}")
            for i in range(size)
        ]
        for event in log.append(*batch):
            print(event.seq, event.event_id)
        sys.stdout.flush()
        n += size
"""


def start_writer(path: Path, name: str, count: int, seed: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(count), str(seed)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def acknowledged(text: str) -> dict[int, str]:
    """seq -> event_id of every whole line."""
    whole = text[: text.rfind("\n") + 1]
    return {int(seq): event_id for seq, event_id in map(str.split, whole.splitlines())}


def test_kill_minus_nine_loses_nothing_that_was_acknowledged(path: Path) -> None:
    EventLog.create(path).close()
    promised: dict[int, str] = {}
    rng = random.Random(20261130)
    for round_ in range(8):
        writer = start_writer(path, f"w{round_}", 1_000_000, seed=round_)
        assert writer.stdout is not None
        text = "".join(writer.stdout.readline() for _ in range(rng.randint(1, 200)))
        time.sleep(rng.random() * 0.02)  # the moment of death is the point: anywhere in a write
        writer.send_signal(signal.SIGKILL)
        text += writer.stdout.read()
        assert writer.wait() == -signal.SIGKILL
        writer.stdout.close()
        promised |= acknowledged(text)
    report = check(path)
    assert report.problems == []
    with EventLog.open(path) as log:
        stored = {e.seq: e.event_id for e in log.events()}
        assert promised.items() <= stored.items()
        assert list(stored) == list(range(1, len(stored) + 1))
        log.append(marker())
    assert check(path).ok
    assert len(promised) > 100


def test_two_writers_and_a_reader_at_once(path: Path) -> None:
    EventLog.create(path).close()
    writers = [start_writer(path, name, 400, seed) for seed, name in enumerate("ab")]
    seen: list[int] = []
    with EventLog.read(path) as reader:
        while any(w.poll() is None for w in writers):
            seen += [e.seq for e in reader.page(seen[-1] if seen else 0)]
            time.sleep(0.002)
        seen += [e.seq for e in reader.events(seen[-1] if seen else 0)]
        stored = list(reader.events())
    assert seen == list(range(1, 801))  # never a gap that is filled later
    promised: dict[int, str] = {}
    for w in writers:
        assert w.stdout is not None
        promised |= acknowledged(w.stdout.read())
        w.stdout.close()
        assert w.returncode == 0
    assert promised == {e.seq: e.event_id for e in stored}
    for name in "ab":
        mine = [e.event_id for e in stored if e.source == name]
        assert mine == [f"{name}-{i}" for i in range(400)]
    assert check(path).problems == []


def test_two_processes_may_create_or_migrate_at_once(path: Path) -> None:
    """Opening for writing takes the write lock for a migration: one wins, the other finds it done."""
    path.parent.mkdir(parents=True)
    results: list[object] = []

    def create() -> None:
        try:
            with EventLog.create(path) as log:
                results.append(log.append(marker())[0].seq)
        except SessionError as err:
            results.append(str(err))

    threads = [threading.Thread(target=create) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert 1 in results
    assert all(isinstance(r, int) or "already" in str(r) for r in results)
    assert check(path).problems == []


def test_nothing_is_written_to_a_file_that_is_no_longer_there(tmp_path: Path) -> None:
    path = tmp_path / "s" / "session.db"
    with EventLog.create(path) as log:
        log.append(NewEvent(MarkerPlaced("a"), "agent"))
        path.rename(path.with_name("moved.db"))
        with pytest.raises(LostError, match="was deleted while it was open"):
            log.append(NewEvent(MarkerPlaced("b"), "agent"))
        path.write_bytes(b"")
        with pytest.raises(LostError, match="replaced by another file"):
            log.append(NewEvent(MarkerPlaced("b"), "agent"))


def test_a_damaged_file_is_told_from_a_disk_that_is_full_for_now(tmp_path: Path) -> None:
    path = tmp_path / "s" / "session.db"
    with EventLog.create(path) as log:
        log.append(*(NewEvent(MarkerPlaced("x" * 300), "agent") for _ in range(200)))
    pages = bytearray(path.read_bytes())
    pages[8192:] = b"\xff" * (len(pages) - 8192)
    path.write_bytes(pages)
    log = EventLog.open(path)
    try:
        with pytest.raises(LostError, match="is damaged"):
            log.append(NewEvent(MarkerPlaced("b"), "agent"))
    finally:
        log.close()


def test_pages_of_large_events_are_shorter(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sessions.log.PAGE_BYTES", 100_000)
    lines = ["x" * 100] * 100
    with EventLog.create(path) as log:
        log.append(*(NewEvent(RunOutput("stdout", lines), "recorder") for _ in range(300)))
        page = log.page(0)
        assert 0 < len(page) < 100
        assert len(log.page(page[-1].seq, limit=7)) == 7
        assert [e.seq for e in log.events()] == list(range(1, 301))
        assert log.page(300) == []
