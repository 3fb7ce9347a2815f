"""Records of a parity run beside a reference's tensors, read without trust."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.runs.records import from_json, parse, to_json
from core.runs.records_replay import (
    MAX_MODULES,
    REPLAY_KINDS,
    ForwardRecord,
    GradientsRecord,
    PrecisionRecord,
    StartRecord,
)

WHOLE: dict[str, dict[str, Any]] = {
    "start": {
        "roots": 1,
        "matched": 3,
        "missing": ["a"],
        "renamed": 0,
        "natural_error": math.inf,
        "worst": "b",
        "loaded": False,
        "why": "because",
    },
    "batch": {"n": 0, "source": "loader", "state": "same", "error": 0.0, "fed": False},
    "forward": {
        "roots": 2,
        "modules": [
            {"i": 1, "name": "a", "type": "Linear", "error": math.nan, "isolated": 1e-7},
            {"i": 0, "name": "", "type": "Net", "error": math.inf, "sketched": True},
        ],
        "compared": 2,
    },
    "gradients": {"n": 1, "errors": {"a": 1e-7, "b": math.inf}, "worst": "b", "missing": ["c"]},
    "precision": {
        "asked": "fp32",
        "requests": [{"what": "autocast(bfloat16)", "count": 3, "at": "train.py:4"}],
        "env": {"XLA_USE_BF16": "1"},
        "compute": {"float32": 7},
    },
    "copies": {"n": 16, "copies": [{"root": 0, "name": "ema", "distance": 0.02}]},
}


@pytest.mark.parametrize("kind", sorted(REPLAY_KINDS))
def test_what_the_probe_writes_is_read_and_kept(kind: str) -> None:
    value = {"k": kind, "pid": 1, **WHOLE[kind]}
    record = parse(json.dumps(value).encode())
    assert type(record) is REPLAY_KINDS[kind]
    plain = to_json(record)
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert to_json(from_json(plain)) == plain
    for name in WHOLE[kind]:
        assert name in plain, name


def test_the_fields() -> None:
    start = from_json({"k": "start", **WHOLE["start"]})
    assert isinstance(start, StartRecord)
    assert (start.natural_error, start.missing, start.loaded) == (math.inf, ("a",), False)
    forward = from_json({"k": "forward", **WHOLE["forward"]})
    assert isinstance(forward, ForwardRecord)
    assert [m.name for m in forward.modules] == ["a", ""]
    assert forward.modules[0].error is not None and math.isnan(forward.modules[0].error)
    assert forward.modules[1].isolated is None
    gradients = from_json({"k": "gradients", **WHOLE["gradients"]})
    assert isinstance(gradients, GradientsRecord)
    assert gradients.errors == {"a": 1e-7, "b": math.inf}
    precision = from_json({"k": "precision", **WHOLE["precision"]})
    assert isinstance(precision, PrecisionRecord)
    assert precision.requests[0].at == "train.py:4"


def test_lists_are_bounded_and_text_is_cleaned() -> None:
    many = [{"i": n, "name": "\x1b[31mred"} for n in range(MAX_MODULES + 5)]
    forward = from_json({"k": "forward", "modules": many})
    assert isinstance(forward, ForwardRecord)
    assert len(forward.modules) == MAX_MODULES
    assert "\x1b" not in forward.modules[0].name
    errors = {str(n): 0.5 for n in range(MAX_MODULES + 5)} | {"bad": "no"}
    gradients = from_json({"k": "gradients", "errors": errors})
    assert isinstance(gradients, GradientsRecord)
    assert len(gradients.errors) == MAX_MODULES


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["i", "name", "error", "what", "at"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    st.sampled_from(sorted(REPLAY_KINDS)),
    st.dictionaries(
        st.sampled_from(sorted({n for fields in WHOLE.values() for n in fields})), _VALUES
    ),
)
def test_whatever_stands_there_reads_as_a_record(kind: str, fields: dict[str, Any]) -> None:
    record = from_json({"k": kind, **fields})
    assert type(record) is REPLAY_KINDS[kind]
    plain = to_json(record)
    json.dumps(plain, allow_nan=False)
    assert to_json(from_json(plain)) == plain
