"""The pictures of the README are drawn from a session by one command."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import PilotageError
from tests.tui.session_events import demo, write
from tui.pictures import PICTURES, draw


def test_every_picture_is_drawn_and_shows_its_moment(tmp_path: Path) -> None:
    home = tmp_path / "demo"
    home.mkdir()
    path = write(home / "session.db", demo("finished"))
    made = draw(tmp_path / "pictures", str(path))
    assert [p.name for p in made] == [f"{p.name}.svg" for p in PICTURES]
    texts = {p.stem: p.read_text("utf-8").replace("&#160;", " ") for p in made}
    assert "REPLAY" in texts["cockpit"]
    assert "refuted" in texts["refuted"] and "FAIL" in texts["refuted"]
    assert "clip to norm 1.0 in all 16 steps" in texts["evidence"]
    assert "WAITING ON YOU" in texts["ask"]
    assert "FINISHED" in texts["light"]


def test_a_session_that_is_none_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "session.db").write_bytes(b"nothing")
    with pytest.raises(PilotageError, match="can't be read as a session"):
        draw(tmp_path / "pictures", str(tmp_path / "session.db"))
