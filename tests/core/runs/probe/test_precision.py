"""What a program asks of half precision: counted as it is, or counted and not done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.runs.records import ProbeErrorRecord
from core.runs.records_replay import PrecisionRecord

PROGRAM = (Path(__file__).parent / "programs" / "precise.py").read_text()
OWN = (
    "bfloat16 float16 bfloat16 bfloat16 float16 float16 bfloat16 float16 float64 float16 "
    "float16 bfloat16 bfloat16 float16 bfloat16 meta"
)
FP32 = (
    "float32 float32 float32 float32 float32 float32 float32 float32 float64 float32 "
    "float32 float32 float32 float32 float32 meta"
)
ASKED = {
    "matmul precision(high)": 1,
    "set_default_dtype(bfloat16)": 1,
    "Tensor.half()": 2,
    "Tensor.bfloat16()": 1,
    "Tensor.to(bfloat16)": 1,
    "Tensor.to(float16)": 1,
    "Tensor.type(float16)": 1,
    "Tensor.type(bfloat16)": 1,
    "zeros(float16)": 1,
    "Module.half()": 1,
    "Module.bfloat16()": 1,
    "Module.to(bfloat16)": 2,
    "Module.type(float16)": 1,
    "autocast(bfloat16)": 6,
}


def _line(text: str) -> str:
    (number,) = [n for n, line in enumerate(PROGRAM.splitlines(), 1) if line.strip() == text]
    return f"program.py:{number}"


def _totals(record: PrecisionRecord) -> dict[str, int]:
    totals: dict[str, int] = {}
    for request in record.requests:
        totals[request.what] = totals.get(request.what, 0) + (request.count or 0)
    return totals


def test_requests_are_counted_and_followed(run: Callable[..., Any], tmp_path: Path) -> None:
    env = {"XLA_USE_BF16": "1", "XLA_DOWNCAST_BF16": "0"}
    done = run(tmp_path, PROGRAM, mode="parity", steps=100, env=env)
    assert done.code == 0, done.err
    assert done.of(ProbeErrorRecord) == []
    assert done.out == f"{OWN} bfloat16 bfloat16 bfloat16 bfloat16\n1\n"
    first, last = done.of(PrecisionRecord)
    assert (first.asked, first.env) == ("own", {"XLA_USE_BF16": "1"})
    assert first.compute == {"bfloat16": 3}
    assert _totals(first) == ASKED | {"autocast(bfloat16)": 2}
    assert _totals(last) == ASKED
    at = {r.at: r.count for r in last.requests if r.what == "autocast(bfloat16)"}
    inside = _line('with torch.autocast("cpu", dtype=torch.bfloat16):')
    assert at == {inside: 3, _line("(inner + decorated(x)).float().sum().backward()"): 3}


def test_requests_are_counted_and_not_followed(run: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    env = {
        "XLA_USE_BF16": "1",
        "PILOTAGE_PROBE_PRECISION": "fp32",
        "HF_HUB_OFFLINE": "1",
        "PJRT_DEVICE": "CPU",
    }
    done = run(tmp_path, PROGRAM, str(tmp_path), mode="parity", steps=100, env=env)
    assert done.code == 0, done.err
    assert done.of(ProbeErrorRecord) == []
    # The last checkpoint is one in float32: the model was not made a half one.
    whole = "float32 float32 float32 float32 float32 float32"
    assert done.out == f"{FP32} {whole}\nNone\n"
    first, last = done.of(PrecisionRecord)
    assert (first.asked, first.env) == ("fp32", {"XLA_USE_BF16": "1"})
    assert first.compute == {"float32": 3}
    more = {"from_pretrained(bfloat16)": 1, "Module.to(bfloat16)": 3}
    assert _totals(last) == ASKED | more
