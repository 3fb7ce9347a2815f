"""Ranks of a parity run end together: who is first waits, though not for ever."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from core.runs.probe.pilotage_probe import process, ranks, together


def as_rank(
    monkeypatch: pytest.MonkeyPatch, place: Path, rank: int | None, world: int | None
) -> None:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    monkeypatch.setattr(process, "writer", SimpleNamespace(directory=str(place)))
    monkeypatch.setattr(ranks, "find", lambda tid, own: (rank, world, "RANK"))


def test_a_rank_waits_until_the_others_have_made_their_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_rank(monkeypatch, tmp_path, 0, 2)
    left = threading.Event()
    thread = threading.Thread(target=lambda: (together.wait(), left.set()))
    thread.start()
    while not (tmp_path / "ended.0").exists():
        assert thread.is_alive()
    assert not left.is_set()
    (tmp_path / "ended.1").touch()
    assert left.wait(10)
    thread.join()


@pytest.mark.parametrize(("rank", "world"), [(None, None), (0, 1), (3, None)])
def test_a_process_on_its_own_waits_for_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int | None, world: int | None
) -> None:
    as_rank(monkeypatch, tmp_path, rank, world)
    together.wait()
    assert list(tmp_path.iterdir()) == []


def test_a_rank_that_never_comes_is_not_waited_for_any_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_rank(monkeypatch, tmp_path, 1, 2)
    monkeypatch.setattr(together, "WAIT_S", 0.05)
    together.wait()
    assert [p.name for p in tmp_path.iterdir()] == ["ended.1"]


def test_ranks_of_other_machines_are_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_rank(monkeypatch, tmp_path, 5, 8)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    together.wait()
    assert list(tmp_path.iterdir()) == []
