"""torch.compile: what is compiled still shows or is said not to, and the probe compiles nothing."""

from __future__ import annotations

import pytest

from tests.core.runs.probe.looping import FEW_MODES, MATRIX, Seen, compare, run_loop, sections


@pytest.fixture(scope="module", params=FEW_MODES)
def seen(
    python: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Seen:
    return run_loop(tmp_path_factory.mktemp("compiled"), python, "compiled.py", request.param)


@pytest.mark.parametrize("section", sections("compiled.py"))
def test_compiled(seen: Seen, section: str) -> None:
    compare(seen, section)


@pytest.mark.skipif(not MATRIX, reason="test_probe.py has one such program; this is for the matrix")
def test_the_same_graphs_as_without_the_probe(
    seen: Seen, python: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    bare = run_loop(tmp_path_factory.mktemp("bare"), python, "compiled.py", "none")
    mine, theirs = (
        [line for line in run.out.splitlines() if line.startswith("graphs")] for run in (bare, seen)
    )
    assert mine == theirs
    assert seen.err.count("\n") <= bare.err.count("\n"), seen.err
