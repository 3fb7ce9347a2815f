"""By XLA's own counters the probe compiles, runs and reads nothing. Counts are exact: a test."""

from __future__ import annotations

import sys

import pytest

from core.bench import probe

pytestmark = pytest.mark.xla


def test_the_probe_adds_no_compile_no_execution_and_no_transfer() -> None:
    model = probe.Model("mlp", 16, 2)
    # Twelve steps: the two that compile, the first ten, and a read of the loss by the program.
    (difference,), wrong = probe.count(sys.executable, "xla", [model], steps=12)
    assert difference == dict.fromkeys(
        [
            *("compile_times", "compiles", "executes", "fallbacks", "scalar_reads"),
            *("transfers_from", "transfers_to"),
        ],
        0,
    )
    assert wrong == []
