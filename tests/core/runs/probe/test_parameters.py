"""Frozen, replaced, added, tied and shared parameters."""

from __future__ import annotations

import pytest

from tests.core.runs.probe.looping import Seen, compare, run_loop, sections


@pytest.fixture(scope="module")
def seen(python: str, mode: str, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return run_loop(tmp_path_factory.mktemp("parameters"), python, "parameters.py", mode)


@pytest.mark.parametrize("section", sections("parameters.py"))
def test_parameters(seen: Seen, section: str) -> None:
    compare(seen, section)
