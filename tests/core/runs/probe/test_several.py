"""Several optimizers, and optimizers of unusual kinds."""

from __future__ import annotations

import pytest

from tests.core.runs.probe.looping import Seen, compare, run_loop, sections


@pytest.fixture(scope="module")
def seen(python: str, mode: str, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return run_loop(tmp_path_factory.mktemp("several"), python, "several.py", mode)


@pytest.mark.parametrize("section", sections("several.py"))
def test_several(seen: Seen, section: str) -> None:
    compare(seen, section)
