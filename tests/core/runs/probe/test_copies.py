"""Copies of the trained weights, wherever a program holds them, and how far they are from them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.runs.records import FinishRecord
from core.runs.records_replay import CopiesRecord
from tests.core.runs.probe.replaying import run

pytest.importorskip("torch")

AVERAGING = Path(__file__).parent / "programs" / "averaging.py"


def test_averages_in_a_module_a_table_and_a_list_are_found(tmp_path: Path) -> None:
    done = run(tmp_path, "0.9", capture=tmp_path / "capture", program=AVERAGING, steps=4)
    assert done.errors == []
    (record,) = done.of(CopiesRecord)
    assert record.n == 4
    found = {one.name: one.distance for one in record.copies}
    assert set(found) == {"Net", "Shadow.shadow", "main.averages"}
    module, table, listed = json.loads(done.out)
    assert found["Net"] == pytest.approx(module, rel=1e-6)
    assert found["Shadow.shadow"] == pytest.approx(table, rel=1e-6)
    assert found["main.averages"] == pytest.approx(listed, rel=1e-6)
    assert 0 < listed < table < module


def test_samples_of_an_average_are_told_from_those_of_the_trained_model(tmp_path: Path) -> None:
    done = run(tmp_path, "0.9", program=AVERAGING)
    (finish,) = done.of(FinishRecord)
    assert (finish.eval_samples, finish.eval_untrained) == (16 + 5, 5)
