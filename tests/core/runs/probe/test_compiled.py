"""torch.compile: what is compiled still shows, or is said not to."""

from __future__ import annotations

import pytest

from tests.core.runs.probe.looping import Seen, compare, run_loop, sections


@pytest.fixture(scope="module")
def seen(python: str, mode: str, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return run_loop(tmp_path_factory.mktemp("compiled"), python, "compiled.py", mode)


@pytest.mark.parametrize("section", sections("compiled.py"))
def test_compiled(seen: Seen, section: str) -> None:
    compare(seen, section)
