"""A program that looks at what it calls sees what it would have seen without the probe."""

from __future__ import annotations

from pathlib import Path

from tests.core.runs.probe.looping import run_loop, without_calls


def test_signatures_tracebacks_and_warnings_are_the_programs_own(
    python: str, mode: str, tmp_path: Path
) -> None:
    bare = run_loop(tmp_path, python, "unnoticed.py", "none")
    assert bare.code == 1
    assert "ValueError: the data are gone" in bare.err
    seen = run_loop(tmp_path, python, "unnoticed.py", mode)
    if mode == "parity":  # a hook of modules, for one forward pass: torch goes another way there
        assert without_calls(seen.out) == without_calls(bare.out)
    else:
        assert seen.out.splitlines() == bare.out.splitlines()
    assert seen.err.splitlines() == bare.err.splitlines()
    assert seen.code == bare.code
    assert seen.finish.errors == 0


def test_models_are_captured_as_they_would_be_without_the_probe(
    python: str, tmp_path: Path
) -> None:
    """In light mode: in a parity run dropout is off, and so it is in what is captured there."""
    bare = run_loop(tmp_path, python, "traced.py", "none")
    assert bare.code == 0
    assert bare.out.count("aten::linear") or "linear" in bare.out
    seen = run_loop(tmp_path, python, "traced.py", "light")
    assert seen.out.splitlines() == bare.out.splitlines()
    assert seen.code == 0
    assert seen.finish.errors == 0
    assert seen.finish.steps == 3
