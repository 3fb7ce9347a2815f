"""A stranger's files can't stop the scan, hang it, run anything, or reach the terminal."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from core.risk import Scan, list_files, scan
from core.risk import tree as limits
from core.risk.describe import describe, summary
from core.risk.module import Module, Unreadable
from core.text import clean

CUDA = "import torch\nmodel.cuda()\n"


def _scan(root: Path) -> Scan:
    return scan(list_files(root))


def test_broken_and_old_files_are_told_and_the_rest_is_scanned(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(CUDA)
    (tmp_path / "broken.py").write_text("import torch\ndef f(:\n")
    (tmp_path / "old.py").write_text("import torch\nprint 'hello'\n")
    (tmp_path / "deep.py").write_text("import torch\nx = " + "(" * 5000 + ")" * 5000)
    (tmp_path / "deeper.py").write_text("import torch\nx = " + "-" * 90_000 + "1")
    (tmp_path / "null.py").write_bytes(b"import torch\n\0\n")
    (tmp_path / "book.ipynb").write_text('{"cells": [3]}')
    found = _scan(tmp_path)
    assert [h.path for h in found.hits] == ["good.py"]
    notes = " ".join(found.notes)
    assert "old.py looks like Python 2" in notes
    assert "broken.py has a syntax error in line 2" in notes
    assert "book.ipynb is no notebook" in notes
    assert "null.py is binary" in notes


def test_a_keyword_of_old_pythons_does_not_hide_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import torch\n\ny = y.cuda(async=True)\nasync def f():\n    pass\n"
    )
    found = _scan(tmp_path)
    assert [(h.rule, h.line, h.source) for h in found.hits] == [
        ("cuda-move", 3, "y = y.cuda(async=True)")
    ]
    assert not found.notes


def test_text_in_any_encoding_is_read(tmp_path: Path) -> None:
    (tmp_path / "latin.py").write_bytes(b"# caf\xe9\n" + CUDA.encode())
    (tmp_path / "mark.py").write_bytes(b"\xef\xbb\xbf" + CUDA.encode())
    (tmp_path / "wide.py").write_bytes(CUDA.encode("utf-16"))
    (tmp_path / "dos.py").write_bytes(CUDA.replace("\n", "\r\n").encode())
    assert {(h.path, h.line) for h in _scan(tmp_path).hits} == {
        ("latin.py", 3),
        ("mark.py", 2),
        ("wide.py", 2),
        ("dos.py", 2),
    }


def test_what_is_no_source_is_left_out(tmp_path: Path) -> None:
    for name in (".git", "node_modules", "venv", "build", "site-packages"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.py").write_text(CUDA)
    (tmp_path / "my-env").mkdir()
    (tmp_path / "my-env" / "pyvenv.cfg").touch()
    (tmp_path / "my-env" / "a.py").write_text(CUDA)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.json").write_text('{"device": "cuda"}')
    (tmp_path / "src" / "data").mkdir(parents=True)
    (tmp_path / "src" / "data" / "loader.py").write_text(CUDA)
    found = list_files(tmp_path)
    assert found.files == ["src/data/loader.py"]
    assert found.skipped[".git"] == 1 and found.skipped["environments"] == 1


def test_links_pipes_and_loops_do_not_hold_it(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(CUDA)
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "self.py").symlink_to("self.py")
    (tmp_path / "gone.py").symlink_to("nowhere.py")
    (tmp_path / "zero.py").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.py")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s.py"))
        found = _scan(tmp_path)
    assert [h.path for h in found.hits] == ["a.py"]


def test_large_files_and_many_files_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "big.py").write_text(CUDA + "#" * limits.MAX_BYTES)
    (tmp_path / "a.py").write_text(CUDA)
    found = _scan(tmp_path)
    assert [h.path for h in found.hits] == ["a.py"]
    assert any("big.py has 2.0 MB" in n for n in found.notes)
    monkeypatch.setattr(limits, "MAX_FILES", 10)
    for number in range(30):
        (tmp_path / f"f{number}.py").touch()
    listing = list_files(tmp_path)
    assert len(listing.files) == 10 and any("Over 10 files" in n for n in listing.notes)
    deep = tmp_path / "/".join(["d"] * (limits.MAX_DEPTH + 5))
    deep.mkdir(parents=True)
    (deep / "x.py").write_text(CUDA)
    assert not any("x.py" in f for f in list_files(tmp_path / "d").files)


def test_a_long_line_takes_no_long_time_and_little_room(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\nx = [" + "model.cuda(), " * 50_000 + "]\n")
    (tmp_path / "run.sh").write_text("python " + "a=" * 400_000 + "\n" + "--" * 400_000)
    (tmp_path / "requirements.txt").write_text("-" * 500_000 + "\n" + "a-" * 300_000)
    (tmp_path / "conf.yaml").write_text("- " * 500_000 + "\n" + '"' * 500_000)
    found = _scan(tmp_path)
    assert all(len(h.source) <= 200 for h in found.hits)
    assert [h.rule for h in found.hits] == ["cuda-move"]


def test_nothing_of_a_file_reaches_the_terminal_as_a_command(tmp_path: Path) -> None:
    name = "a\x1b[2Jb.py"
    (tmp_path / name).write_text("import torch\nmodel.cuda()  # \x1b]0;title\x07 \u202e\n")
    found = _scan(tmp_path)
    for text in (describe(found), summary(found, "x"), json.dumps(found.to_json())):
        assert all(clean(line) == line for line in text.split("\n"))
    assert len(found.hits) == 1


def test_the_text_fits_80_columns(tmp_path: Path) -> None:
    place = tmp_path / ("directory_" * 6) / ("another_" * 6)
    place.mkdir(parents=True)
    (place / "a_file.py").write_text(
        "import torch\n" + "some_long_model_name.cuda()  # " * 1 + "x" * 200 + "\n" * 3 + CUDA * 20
    )
    text = describe(_scan(tmp_path))
    assert max(len(line) for line in text.split("\n")) <= 80
    assert "and 15 more (--json lists all)" in text


def test_notebooks_name_cell_and_line(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# model.cuda()"]},
        {"cell_type": "code", "source": ["!pip install torch\n", "import torch\n", "%time"]},
        {"cell_type": "code", "source": "%%bash\nnvidia-smi"},
        {"cell_type": "code", "source": ["x = 1\n", "model.cuda()"]},
    ]
    (tmp_path / "n.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4}))
    (hit,) = _scan(tmp_path).hits
    assert (hit.cell, hit.line, hit.sure, hit.source) == (4, 2, True, "model.cuda()")
    assert hit.place == "n.ipynb cell 4:2"


def test_nothing_is_executed(tmp_path: Path) -> None:
    flag = tmp_path / "ran"
    (tmp_path / "setup.py").write_text(f"import torch\nopen({str(flag)!r}, 'w')\n1 / 0\n")
    (tmp_path / "conftest.py").write_text("raise SystemExit")
    _scan(tmp_path)
    assert not flag.exists()


def test_warnings_of_the_strangers_code_are_not_ours(recwarn: pytest.WarningsRecorder) -> None:
    Module("a.py", "import torch\nx = '\\d'\nassert (1, 2)\nx is 1\n")
    assert not recwarn.list
    with pytest.raises(Unreadable, match="syntax error"):
        Module("a.py", "def f(:\n")
