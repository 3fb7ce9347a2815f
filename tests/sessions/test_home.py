"""Where sessions live, and how one is named."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest

from core.errors import SessionError
from sessions.home import (
    DB_NAME,
    find,
    home,
    make_private_dir,
    new_session_id,
    session_dir,
    session_ids,
)


def make(session_id: str) -> Path:
    path = session_dir(session_id) / DB_NAME
    path.parent.mkdir(parents=True)
    path.touch()
    return path


def test_home_is_the_environment_or_the_platform(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PILOTAGE_HOME", str(tmp_path / "a"))
    assert home() == tmp_path / "a"
    monkeypatch.setenv("PILOTAGE_HOME", "~/b")
    assert home() == Path.home() / "b"
    monkeypatch.delenv("PILOTAGE_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert home() == tmp_path / "data" / "pilotage"
    assert not home().exists()


@pytest.mark.parametrize(
    ("title", "start"),
    [
        ("MeLoRA on TPU!", "melora-on-tpu"),
        ("", "session"),
        ("../../etc", "etc"),
        ("größe", "gr-e"),
        ("x" * 99, "x" * 16),
        ("inkformer on xla-cpu", "inkformer-on-xla"),
        ("---", "session"),
    ],
)
def test_new_ids_are_readable_and_valid(title: str, start: str) -> None:
    session_id = new_session_id(title)
    assert re.fullmatch(rf"{re.escape(start)}-\d{{4}}-[0-9a-f]{{4}}", session_id)
    assert session_dir(session_id).parent == home()


@pytest.mark.parametrize("bad", ["", ".", "..", "a/b", "/etc", "A", "-a", "a" * 65, "a\n"])
def test_no_id_leaves_the_home(bad: str) -> None:
    with pytest.raises(SessionError, match="no session id"):
        session_dir(bad)


def test_find_by_id_prefix_and_path(tmp_path: Path) -> None:
    a = make("melora-1130-a7f3")
    b = make("melora-1130-b000")
    c = make("melora-1130-b000-again")
    (home() / "Not-An-Id").mkdir()
    assert session_ids() == ["melora-1130-a7f3", "melora-1130-b000", "melora-1130-b000-again"]
    assert find("melora-1130-a7f3") == find("melora-1130-a") == a
    assert find("melora-1130-b000") == b  # a whole id beats being the beginning of another
    assert find(str(c)) == find(c) == find(c.parent) == find(str(c.parent)) == c


def test_what_is_not_found_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SessionError, match="There are none yet"):
        find("x")
    make("melora-1130-a7f3")
    make("melora-1130-b000")
    with pytest.raises(SessionError, match="names 2 sessions: melora-1130-a7f3, melora"):
        find("mel")
    with pytest.raises(SessionError, match="lists them"):
        find("x")
    with pytest.raises(SessionError, match="no session"):
        find("")
    with pytest.raises(SessionError, match="no session file"):
        find(tmp_path / "none" / DB_NAME)
    monkeypatch.setenv("PILOTAGE_HOME", str(tmp_path / "missing"))
    assert session_ids() == []


def test_private_directories(tmp_path: Path) -> None:
    make_private_dir(tmp_path / "a" / "b")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700
    make_private_dir(tmp_path / "a" / "b")
    (tmp_path / "file").touch()
    with pytest.raises(SessionError, match="PILOTAGE_HOME"):
        make_private_dir(tmp_path / "file" / "c")
