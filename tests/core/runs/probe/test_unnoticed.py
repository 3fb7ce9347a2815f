"""A program that looks at what it calls sees what it would have seen without the probe."""

from __future__ import annotations

from pathlib import Path

from tests.core.runs.probe.looping import run_loop


def test_signatures_tracebacks_and_warnings_are_the_programs_own(
    python: str, mode: str, tmp_path: Path
) -> None:
    bare = run_loop(tmp_path, python, "unnoticed.py", "none")
    assert bare.code == 1
    assert "ValueError: the data are gone" in bare.err
    seen = run_loop(tmp_path, python, "unnoticed.py", mode)
    assert seen.out.splitlines() == bare.out.splitlines()
    assert seen.err.splitlines() == bare.err.splitlines()
    assert seen.code == bare.code
    assert seen.finish.errors == 0
