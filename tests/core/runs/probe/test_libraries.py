"""The loops of transformers, accelerate and Lightning on tiny models, without a network."""

from __future__ import annotations

import pytest

from tests.core.runs.probe.looping import FEW_MODES, MATRIX, Seen, compare, run_loop, sections


@pytest.fixture(scope="module", params=FEW_MODES)
def slow_mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def accelerated(python: str, slow_mode: str, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    where = tmp_path_factory.mktemp("accelerated")
    return run_loop(where, python, "accelerated.py", slow_mode, needs=("accelerate",))


@pytest.mark.parametrize("section", sections("accelerated.py"))
def test_accelerate(accelerated: Seen, section: str) -> None:
    compare(accelerated, section)


def test_transformers(
    python: str, slow_mode: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    where = tmp_path_factory.mktemp("trainer")
    needs = ("transformers", "accelerate")
    compare(run_loop(where, python, "trainer.py", slow_mode, needs=needs), "main")


@pytest.mark.parametrize("style", ["automatic", "manual"] if MATRIX else ["automatic"])
def test_lightning(
    python: str, slow_mode: str, style: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    where = tmp_path_factory.mktemp(style)
    compare(run_loop(where, python, "lit.py", slow_mode, style, needs=("lightning",)), "main")
