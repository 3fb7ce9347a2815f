"""Probe records are read from a stranger's process: every line gets an answer, none an exception."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.runs import record_fields, records
from core.runs.records import Clip, Malformed, StepRecord, Unknown, from_json, parse, to_json

LINE = (
    b'{"k":"step","pid":7,"tid":8,"rank":0,"t":1.5,"wall":2.5,"n":3,"loss":NaN,'
    b'"loss_source":"backward","grad_norm":Infinity,"clips":[{"fn":"clip_grad_norm_",'
    b'"max_norm":1.0,"norm_type":2.0,"total_norm":-Infinity}],"signature":"B C(1) S",'
    b'"groups":[{"lr":0.1,"weight_decay":0}],"fallbacks":{"aten::nonzero":2},"new_field":[1]}\n'
)


def test_a_step_is_read_with_the_numbers_json_does_not_have() -> None:
    step = parse(LINE)
    assert isinstance(step, StepRecord)
    assert (step.pid, step.tid, step.rank, step.n, step.t) == (7, 8, 0, 3, 1.5)
    assert step.loss is not None
    assert math.isnan(step.loss)
    assert step.grad_norm == math.inf
    assert step.clips == (Clip("clip_grad_norm_", 1.0, 2.0, -math.inf),)
    assert step.groups == ({"lr": 0.1, "weight_decay": 0},)
    assert step.fallbacks == {"aten::nonzero": 2}
    assert step.update_norm is None


def test_the_payload_form_is_strict_json_and_comes_back() -> None:
    step = parse(LINE)
    assert isinstance(step, StepRecord)
    payload = to_json(step)
    text = json.dumps(payload, allow_nan=False)
    assert payload["loss"] == "nan"
    assert "update_norm" not in payload
    assert to_json(from_json(json.loads(text))) == payload


@pytest.mark.parametrize(
    "line",
    [b"", b"\n", b"{", b"[]", b"3", b"null", b'{"k":3}', b'{"n":1}', b"\xff\xfe", b"[" * 100_000],
)
def test_what_is_no_record_says_so(line: bytes) -> None:
    assert isinstance(parse(line), Malformed)


def test_a_line_is_bounded() -> None:
    huge = b'{"k":"hello","python":"' + b"x" * records.MAX_LINE + b'"}'
    found = parse(huge)
    assert isinstance(found, Malformed)
    assert len(found.text) <= 200


def test_texts_and_lists_are_bounded_and_clean() -> None:
    value = {"k": "hello", "python": "\x1b[31m" + "3" * 10_000, "argv": ["a\x07"] * 9_999}
    hello = parse(json.dumps(value).encode())
    assert isinstance(hello, records.Hello)
    assert set(hello.python) == {"3"}
    assert len(hello.python) <= record_fields.MAX_TEXT
    assert hello.argv == ("a␇",) * record_fields.MAX_ITEMS


def test_an_unknown_kind_survives_by_name() -> None:
    record = parse(b'{"k":"quantum","pid":1,"x":2}')
    assert record == Unknown(pid=1, kind="quantum")
    assert isinstance(record, Unknown)
    assert to_json(record) == {"k": "quantum", "pid": 1}


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = sorted({name for cls in records.KINDS.values() for name in cls.__slots__})


@given(
    st.sampled_from(sorted(records.KINDS)),
    st.dictionaries(st.sampled_from([*FIELDS, "pid", "t"]), JSONS, max_size=6),
)
def test_any_value_in_any_field_is_survived(kind: str, fields: dict[str, Any]) -> None:
    record = parse(json.dumps({**fields, "k": kind}).encode())
    assert not isinstance(record, Malformed)
    payload = json.loads(json.dumps(to_json(record), allow_nan=False))
    assert to_json(from_json(payload)) == payload


@given(st.binary(max_size=200))
def test_any_bytes_are_survived(line: bytes) -> None:
    parse(line)
