"""The loss of a step, whatever it came from."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.runs.probe.looping import Seen, compare, run_loop, sections


@pytest.fixture(scope="module")
def seen(python: str, mode: str, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return run_loop(tmp_path_factory.mktemp("losses"), python, "losses.py", mode)


@pytest.mark.parametrize("section", sections("losses.py"))
def test_losses(seen: Seen, section: str) -> None:
    compare(seen, section)


def test_a_loop_without_an_optimizer_shows_in_the_totals(seen: Seen) -> None:
    assert seen.code == 0, seen.err
    finish: Any = seen.finish
    assert finish.steps == sum(len(told["steps"]) for told in seen.told.values())
    assert finish.backwards > finish.steps
    assert finish.eval_samples == 3 * 7
