"""A detector that fails is a fault of ours: the run, the others and the session go on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from core import events as ev
from core.detectors.base import DETECTORS, Look, Sighting
from core.findings import detect, resolved
from core.recorder.detecting import Detecting
from tests.core.scene import Scene


def scene_with_a_cuda_error() -> tuple[Scene, str]:
    scene = Scene().snapshot("t1")
    run_id = scene.start()
    scene.add(
        ev.RunOutput(
            "stderr",
            [
                "Traceback (most recent call last):",
                "AssertionError: Torch not compiled with CUDA enabled",
            ],
        ),
        run_id,
    )
    scene.add(ev.RunEnded("exited", 1, duration_s=2.0), run_id)
    return scene, run_id


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> str:
    """A detector that raises whatever it looks at."""

    def look(at: Look) -> Sighting | None:
        raise NameError("name 'limit' is not defined")

    monkeypatch.setattr(DETECTORS["params_unchanged"], "look", look)
    return "params_unchanged"


def test_without_somebody_to_tell_the_error_is_raised(broken: str) -> None:
    scene, run_id = scene_with_a_cuda_error()
    with pytest.raises(NameError):
        detect(scene.state, run_id)


def test_the_others_speak_and_the_operator_is_told_once(broken: str, tmp_path: Path) -> None:
    scene, run_id = scene_with_a_cuda_error()
    notes: list[str] = []
    journal = cast(Any, SimpleNamespace(state=scene.state))
    detecting = Detecting(journal, tmp_path, notes.append)
    new = detecting.new(run_id)
    assert [b.detector for b in new if isinstance(b, ev.FindingOpened)] == ["cuda_assumed"]
    (said,) = [b for b in new if isinstance(b, ev.RunSignalled)]
    assert broken in said.records[0]["text"] and str(tmp_path) in said.records[0]["text"]
    assert "NameError" in notes[0] and "Traceback" in notes[0]
    again = detecting.new(run_id)
    assert not [b for b in again if isinstance(b, ev.RunSignalled)] and len(notes) == 1
    for body in new:
        scene.add(body, run_id)
    assert scene.state.runs[run_id].notices == [said.records[0]["text"]]


def test_a_finding_is_not_over_because_its_detector_failed(broken: str) -> None:
    scene, first = scene_with_a_cuda_error()
    scene.add(
        ev.FindingOpened(
            f"{first}.{broken}", broken, "C2", "the weights do not change", silent=False
        ),
        first,
    )
    second = scene.start()
    scene.add(ev.RunEnded("exited", 0, duration_s=2.0), second)
    over = resolved(scene.state, second, lambda name, error: None)
    assert f"{first}.{broken}" not in {f.finding_id for f in over}
