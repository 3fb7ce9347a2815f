"""Ranks of one run: each with its own losses, both with the gradients they share."""

from __future__ import annotations

import pytest

from tests.core.runs.probe.looping import FEW_MODES, Seen, compare, run_loop


@pytest.fixture(scope="module", params=FEW_MODES)
def seen(
    python: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Seen:
    return run_loop(tmp_path_factory.mktemp("ranks"), python, "ranks.py", request.param)


@pytest.mark.parametrize("rank", [0, 1])
def test_ranks(seen: Seen, rank: int) -> None:
    compare(seen, f"rank_{rank}")
