"""Reading saved logs: any size, packed or not, and what is no log."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core import log_file
from core.detectors.output_look import MAX_TEXT, Line, LogLook
from core.diagnose import diagnose, diagnose_text
from core.errors import PilotageError
from core.log_file import LogText, read_log

NAN = "step 1 loss 2.31\nstep 2 loss nan\nstep 3 loss nan\n"


def write(folder: Path, data: bytes | str, name: str = "a.log") -> str:
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return str(path)


def test_lines_keep_their_numbers(tmp_path: Path) -> None:
    log = read_log(write(tmp_path, "a\nb\r\n\nc"))
    assert [(x.no, x.text) for x in log.lines] == [(1, "a"), (2, "b"), (3, ""), (4, "c")]
    assert log.total == 4
    assert log.notes == []


@pytest.mark.parametrize("packed", [gzip.compress, bz2.compress, lzma.compress])
def test_packed_logs_are_read_by_what_they_are(tmp_path: Path, packed: object) -> None:
    data = packed(NAN.encode())  # type: ignore[operator]
    found = diagnose(write(tmp_path, data, "no-ending"))
    assert [f["detector"] for f in found["findings"]] == ["nan"]
    assert found["findings"][0]["evidence"][0] == {"line": 2, "text": "step 2 loss nan"}


def test_a_packed_log_that_was_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    text = "".join(f"step {i} loss {os.urandom(8).hex()}\n" for i in range(200_000))
    log = read_log(write(tmp_path, gzip.compress(text.encode())[:-100_000]))
    assert log.lines
    assert "damaged or cut" in log.notes[0]
    with pytest.raises(PilotageError, match="damaged"):
        read_log(write(tmp_path, gzip.compress(NAN.encode())[:14]))


def test_utf_16_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    assert read_log(write(tmp_path, NAN.encode("utf-16"))).lines[1].text == "step 2 loss nan"
    assert read_log(write(tmp_path, b"\xef\xbb\xbf" + NAN.encode())).lines[0].text[:6] == "step 1"


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BufferedReader(io.BytesIO(NAN.encode()))  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=buffer))
    assert diagnose("-")["category"] == "C5"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b"\x00\x01PK\x00\x00" * 100, "binary"),
        (bytes(range(1, 256)) * 20, "binary"),
        (None, "There is no file"),
    ],
)
def test_what_is_no_log_gets_a_sentence(tmp_path: Path, data: bytes | None, words: str) -> None:
    name = write(tmp_path, data) if data is not None else str(tmp_path / "gone.log")
    with pytest.raises(PilotageError, match=words):
        diagnose(name)
    with pytest.raises(PilotageError, match="folder"):
        diagnose(str(tmp_path))


def test_the_states_of_a_progress_bar_are_read_one_by_one(tmp_path: Path) -> None:
    bars = "\r".join(
        f"Training: {i}/900 [00:40<01:00, loss={2.3 - i / 900:.3f}]" for i in range(900)
    )
    log = read_log(write(tmp_path, "start\n" + bars + "\nend\n"))
    states = [x for x in log.lines if x.no == 2]
    assert 300 <= len(states) <= log_file.MAX_STATES + 200
    assert states[0].text.startswith("Training: 0/900")
    assert states[-1].text.startswith("Training: 899/900")
    assert log.lines[-1] == Line(3, "end")


def test_of_a_long_log_the_telling_lines_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_file, "FIRST_LINES", 50)
    monkeypatch.setattr(log_file, "LAST_LINES", 80)
    monkeypatch.setattr(log_file, "BLOCK", 4096)
    monkeypatch.setattr(log_file, "SAMPLED", 100)
    lines = [f"step {i} loss {2.3 * 0.9999**i:.4f}" for i in range(1, 20_001)]
    lines[11_110] = "pt-xla-profiler: CompileTime too slow: longest instance took 13m05s576ms438us."
    log = read_log(write(tmp_path, "\n".join(lines)))
    assert log.total == 20_000
    assert [x.no for x in log.lines[:50]] == list(range(1, 51))
    assert [x.no for x in log.lines[-80:]] == list(range(19_921, 20_001))
    assert all(x.text == lines[x.no - 1] for x in log.lines)
    assert 230 < len(log.lines) < 700
    found = diagnose_text(log)
    assert found["findings"][0]["detector"] == "compile_too_slow"
    assert found["findings"][0]["evidence"][0]["line"] == 11_111
    assert "were only counted" in found["notes"][0]


def test_one_endless_line_is_read_in_bounds(tmp_path: Path) -> None:
    log = read_log(write(tmp_path, b"loss=1.0 " * 3_000_000))
    assert [len(x.text) for x in log.lines] == [log_file.MAX_LINE]


def test_a_log_of_long_lines_is_cut_before_patterns_see_it() -> None:
    look = LogLook([Line(i, "compile nan " * 160) for i in range(1, 12_001)])
    assert sum(len(x.text) for x in look.lines) <= MAX_TEXT


@given(st.binary(max_size=400))
@settings(max_examples=60, deadline=None)
def test_bytes_of_any_kind_are_text_or_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    name = write(tmp_path_factory.mktemp("x"), data)
    said = ""
    found = {}
    try:
        found = diagnose(name)
    except PilotageError as error:
        said = str(error)
    assert said.endswith(".") or set(found) >= {"file", "category", "silent", "findings"}


WORDS = st.sampled_from(
    "loss nan acc 0.1 grad_norm step 10 epoch compile 31 min error: Killed aten::nonzero rank 1 hash "
    "ab12cd missing keys ['a.0.b'] 0 bytes checkpoint.pt params M cpu xla tensor( Traceback (most "
    "recent call last): RuntimeError: RSS GB it/s [ 3/10 [00:10< 8 chips expected got = : , ( )".split(
        " "
    )
)


@given(st.lists(st.lists(WORDS, max_size=14).map(" ".join), max_size=12))
@settings(max_examples=150, deadline=None)
def test_words_in_any_order_never_break_a_detector(texts: list[str]) -> None:
    lines = [Line(i, t) for i, t in enumerate(texts, 1)]
    found = diagnose_text(LogText("x", lines, len(lines), 1))
    for finding in found["findings"]:
        assert finding["evidence"]
        assert all(0 < (item["line"] or 1) <= len(lines) for item in finding["evidence"])


def test_a_log_in_latin_1_and_with_colours_is_text(tmp_path: Path) -> None:
    log = read_log(
        write(tmp_path, "perte \xe9poque 0.5\n".encode("latin-1") + b"\x1b[31mred\x1b[0m\n")
    )
    assert log.total == 2
