"""GradScaler and autocast: the loss and the gradients behind the scale, and steps that were none."""

from __future__ import annotations

import pytest

from tests.core.runs.probe.looping import Seen, compare, run_loop, sections


@pytest.fixture(scope="module")
def seen(python: str, mode: str, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return run_loop(tmp_path_factory.mktemp("scaling"), python, "scaling.py", mode)


@pytest.mark.parametrize("section", sections("scaling.py"))
def test_scaling(seen: Seen, section: str) -> None:
    compare(seen, section)
