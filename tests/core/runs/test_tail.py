"""Following files that are still being written, line by line."""

from __future__ import annotations

from pathlib import Path

from core.runs import records, tail
from core.runs.records import Hello, Malformed, StepRecord, Unknown
from core.runs.tail import RecordTail


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_only_whole_lines_are_read_and_each_once(tmp_path: Path) -> None:
    follow = RecordTail(tmp_path)
    assert follow.read() == []
    append(tmp_path / "1.jsonl", b'{"k":"hello","pid":1}\n{"k":"st')
    (hello,) = follow.read()
    assert isinstance(hello, Hello)
    assert follow.read() == []
    append(tmp_path / "1.jsonl", b'ep","n":1}\n')
    append(tmp_path / "2.jsonl", b'{"k":"new"}\n')
    step, other = follow.read()
    assert isinstance(step, StepRecord)
    assert step.n == 1
    assert other == Unknown(kind="new")
    assert follow.finish() == []


def test_a_line_cut_off_by_a_kill_is_reported_at_the_end(tmp_path: Path) -> None:
    append(tmp_path / "1.jsonl", b'{"k":"step","n":1}\n{"k":"step","n":')
    follow = RecordTail(tmp_path)
    step, cut = follow.finish()
    assert isinstance(step, StepRecord)
    assert isinstance(cut, Malformed)
    assert follow.finish() == []


def test_an_endless_line_is_reported_once_and_skipped(tmp_path: Path) -> None:
    append(tmp_path / "1.jsonl", b"x" * (3 * records.MAX_LINE) + b'\n{"k":"hello"}\n')
    found = RecordTail(tmp_path).finish()
    assert [type(r) for r in found] == [Malformed, Hello]


def test_a_run_of_very_many_processes_is_not_followed_into_all(tmp_path: Path) -> None:
    for number in range(tail.MAX_FILES + 20):
        append(tmp_path / f"{number}.jsonl", b'{"k":"hello"}\n')
    assert len(RecordTail(tmp_path).finish()) == tail.MAX_FILES


def test_a_directory_that_is_not_there_yet_holds_nothing(tmp_path: Path) -> None:
    assert RecordTail(tmp_path / "later").finish() == []
