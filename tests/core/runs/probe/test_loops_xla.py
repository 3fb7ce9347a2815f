"""Loops on an XLA device against the same loops on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.runs.records import FinishRecord
from tests.core.runs.probe.looping import compare, run_loop

pytestmark = pytest.mark.xla

ENV = {"PJRT_DEVICE": "CPU", "XLA_FLAGS": "--xla_backend_optimization_level=0"}


def test_loops_on_a_device(python: str, mode: str, tmp_path: Path) -> None:
    seen = run_loop(tmp_path, python, "xla_loops.py", mode, needs=("torch_xla",), env=ENV)
    compare(seen, "main")
    finish: FinishRecord = seen.finish
    assert bool(finish.own_compiles) == (mode == "parity")
    signatures = [s.signature for s in seen.steps("main")]
    assert all("C(0.05)" in str(s) and str(s).startswith("B B") for s in signatures[6:])


def test_a_scan_traces_itself_and_that_trains_nothing(python: str, tmp_path: Path) -> None:
    seen = run_loop(tmp_path, python, "xla_scan.py", "light", needs=("torch_xla",), env=ENV)
    assert seen.code == 0, seen.err
    signatures = [str(step.signature).split() for step in seen.steps("main")]
    assert [events.count("B") for events in signatures] == [1, 1]
    finish: FinishRecord = seen.finish
    assert (finish.backwards, finish.eval_samples) == (2, 14)
