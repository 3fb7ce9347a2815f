"""Each loop program runs in each Python that is named, in both modes of the probe."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.core.runs.probe import replaying
from tests.core.runs.probe.looping import MODES, PYTHONS


@pytest.fixture(scope="module", params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    """Both modes of the probe."""
    return str(request.param)


@pytest.fixture(scope="module", params=PYTHONS, ids=lambda p: Path(p).parent.parent.name)
def python(request: pytest.FixtureRequest) -> str:
    """Each interpreter in turn."""
    return str(request.param)


@pytest.fixture(scope="session")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``programs/replayed.py`` wrote of its tensors on the CPU."""
    where = tmp_path_factory.mktemp("captured")
    done = replaying.run(where, "cpu", capture=where / "capture")
    assert not done.errors
    return where / "capture"
