"""Exports: the same bytes twice, no formula, no control character, and where it came from."""

from __future__ import annotations

import csv
import io
import json
import os
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import SessionError
from core.events import InterventionRecorded, NewEvent
from sessions.derived import rebuild
from sessions.export import EXPORTS, FORMATS, PROVENANCE, cell, columns, export, export_file
from sessions.log import EventLog
from sessions.tables import BY_NAME


def exported(path: Path, what: str, fmt: str = "csv") -> str:
    out = io.StringIO()
    export(path, what, fmt, out)
    return out.getvalue()


def table(path: Path, what: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(exported(path, what), newline="")))


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("what", sorted(EXPORTS))
def test_twice_is_the_same_bytes_and_the_file_is_unchanged(db: Path, what: str, fmt: str) -> None:
    before = db.read_bytes()
    first = exported(db, what, fmt)
    assert first.count("\n") > 1 or fmt == "jsonl"
    assert exported(db, what, fmt) == first
    assert db.read_bytes() == before
    rebuild(db)  # and the derived tables in the file make no difference
    assert exported(db, what, fmt) == first


@pytest.mark.parametrize("what", sorted(EXPORTS))
def test_each_row_says_where_it_came_from(db: Path, what: str) -> None:
    with EventLog.read(db) as log:
        stated = ("demo-1130-a7f3", 1, log.last_seq(), log.head_hash())
    rows = table(db, what)
    assert rows
    assert list(rows[0]) == list(columns(what))
    assert [tuple(r[n] for n in PROVENANCE) for r in rows] == [tuple(map(str, stated))] * len(rows)
    objects = [json.loads(line) for line in exported(db, what, "jsonl").splitlines()]
    assert [tuple(o[n] for n in PROVENANCE) for o in objects] == [stated] * len(rows)
    assert stated[3] in exported(db, what, "markdown")
    about = export(db, what, "csv", io.StringIO())
    assert (about.session_id, about.from_seq, about.to_seq, about.chain_hash) == stated
    assert about.rows == len(rows)


def test_every_exported_column_is_documented() -> None:
    for what, chosen in EXPORTS.items():
        assert chosen.doc
        known = set(BY_NAME[chosen.table].names) | {"history", "runs", "reference_runs"}
        known |= set(BY_NAME["run"].names) if what == "attempts" else set()
        assert set(columns(what)) <= known | set(PROVENANCE)
        assert set(chosen.brief) <= set(columns(what))


def test_the_intervention_log_shows_amendments_and_voided_ones(db: Path) -> None:
    first, second = table(db, "interventions")
    assert first["kind"] == "correct"
    assert first["minutes_claimed"] == "4.0"
    assert (first["voided"], second["voided"]) == ("0", "1")
    history = json.loads(first["history"])
    assert [h["what"] for h in history] == ["recorded", "amended"]
    assert history[1]["changes"] == {"kind": "correct", "minutes_claimed": 4.0}
    assert history[1]["author"] == "ada"
    assert json.loads(second["history"])[1]["reason"] == "a slip"


def test_numbers_stay_numbers_and_formulas_become_text(db: Path) -> None:
    first, _ = table(db, "interventions")
    assert first["level_before"] == "-1"
    assert first["trigger"] == "'=cmd|'/c calc'!A1"
    (ask,) = table(db, "asks")
    assert ask["reason"] == "'=no"
    objects = [json.loads(line) for line in exported(db, "interventions", "jsonl").splitlines()]
    assert objects[0]["level_before"] == -1
    assert objects[0]["trigger"] == "=cmd|'/c calc'!A1"  # JSON has no formulas


def test_attempts_have_the_columns_of_their_runs(db: Path) -> None:
    rows = table(db, "attempts")
    assert [(r["outcome"], r["exit_code"], r["steps"]) for r in rows] == [
        ("loud", "1", "0"),
        ("silent", "0", "2"),
        ("passed", "0", "0"),
    ]
    assert rows[1]["max_rss_mb"] == "812.5"


def test_checks_name_their_runs(db: Path) -> None:
    rows = {r["check_name"]: r for r in table(db, "checks") if r["state"] == "pass"}
    assert (rows["exit"]["runs"], rows["exit"]["reference_runs"]) == ("run3", "ref")


TEXTS = st.text(max_size=40) | st.text("=+-@\t\r\n'\"|\x1b\x9b\u202e\uff1d,;a1", max_size=12)


@given(TEXTS)
def test_no_cell_starts_a_formula_or_holds_a_control_character(text: str) -> None:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow([cell(text), 1])
    (back,) = csv.reader(io.StringIO(out.getvalue(), newline=""))
    assert back[1] == "1"
    assert not unicodedata.normalize("NFKC", back[0][:1]).startswith(("=", "+", "-", "@"))
    assert not back[0].startswith(("\t", "\r", "\n"))
    assert not any(unicodedata.category(c) == "Cc" and c not in "\t\n" for c in back[0])
    if text.isprintable() and text.isascii() and text[:1] not in "=+-@":
        assert back[0] == text


@pytest.mark.parametrize("fmt", FORMATS)
def test_hostile_words_in_every_field_stay_inert(tmp_path: Path, fmt: str, tell: Callable) -> None:
    evil = "=1+1\x1b]52;c;aGk=\x07\x9b31m\u202e|\n# x\r<script>`a`\x00"
    path = tmp_path / "s" / "session.db"
    recorded = InterventionRecorded(evil, 1, evil, evil, 0, evil, evil, evil, evil, evil)
    with EventLog.create(path) as log:
        log.append(*tell(), NewEvent(recorded, evil))
    text = exported(path, "interventions", fmt)
    assert not any(unicodedata.category(c) == "Cc" and c != "\n" for c in text)
    assert "\u202e" not in text
    if fmt == "csv":
        last = list(csv.reader(io.StringIO(text, newline="")))[-1]
        assert sum(value.startswith("'=1+1") for value in last) >= 6
        assert not any(value.startswith("=") for value in last)
    if fmt == "markdown":
        line = text.splitlines()[-1]
        assert "<script>" not in line
        assert line.count(" | ") == len(EXPORTS["interventions"].brief) - 1
    if fmt == "jsonl":
        assert json.loads(text.splitlines()[-1])["kind"] == evil


def test_a_wrong_name_is_a_sentence_that_lists_the_right_ones(db: Path) -> None:
    with pytest.raises(SessionError, match=r"no export 'x': choose interventions, attempts"):
        exported(db, "x")
    with pytest.raises(SessionError, match=r"no export format 'xls': choose csv"):
        exported(db, "runs", "xls")


def test_a_file_is_replaced_as_a_whole(db: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    target.write_text("old")
    export_file(db, "interventions", "csv", target)
    assert target.read_bytes() == exported(db, "interventions").encode()
    assert [f.name for f in tmp_path.iterdir() if f.suffix == ".part"] == []
    with pytest.raises(SessionError, match="can't be written"):
        export_file(db, "interventions", "csv", tmp_path / "missing" / "out.csv")


def test_what_is_no_plain_file_is_written_to_and_never_replaced(db: Path, tmp_path: Path) -> None:
    """As root, `-o /dev/full` once put a file in the place of the device."""
    fifo, link, real = tmp_path / "fifo", tmp_path / "link.csv", tmp_path / "real.csv"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        export_file(db, "interventions", "csv", fifo)
        assert os.read(reader, 100_000) == exported(db, "interventions").encode()
    finally:
        os.close(reader)
    assert fifo.is_fifo()
    real.write_text("old")
    link.symlink_to(real)
    export_file(db, "interventions", "csv", link)
    assert link.is_symlink() and real.read_bytes() == exported(db, "interventions").encode()
    with pytest.raises(SessionError, match="can't be written"):
        export_file(db, "interventions", "csv", Path("/dev/full"))
    assert Path("/dev/full").is_char_device()


def test_standard_output_of_any_encoding(
    db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="ascii", newline=""))
    with EventLog.open(db) as log:
        log.append(NewEvent(InterventionRecorded("i7", 1, text="größer"), "console:c1"))
    export_file(db, "interventions", "csv")
    assert b"gr\\xf6\\xdfer" in raw.getvalue()


def test_an_empty_table_has_its_header(tmp_path: Path) -> None:
    path = tmp_path / "s" / "session.db"
    EventLog.create(path).close()
    assert exported(path, "findings").splitlines() == [",".join(columns("findings"))]
    assert exported(path, "findings", "jsonl") == ""
