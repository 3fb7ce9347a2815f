"""The vocabulary: every kind survives JSON, strangers' payloads never raise."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import events as ev

TEXT = st.text(max_size=40)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
WHOLE = st.integers(-(2**53), 2**53)
VALUE = st.recursive(
    st.none() | st.booleans() | WHOLE | NUMBER | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
OBJECT = st.dictionaries(TEXT, VALUE, max_size=4)
BY_ANNOTATION = {
    "str": TEXT,
    "int": WHOLE,
    "float": NUMBER,
    "bool": st.booleans(),
    "JSON": OBJECT,
    "list[str]": st.lists(TEXT, max_size=4),
    "list[int]": st.lists(WHOLE, max_size=4),
    "list[JSON]": st.lists(OBJECT, max_size=3),
}


@st.composite
def bodies(draw: st.DrawFn) -> ev.Body:
    cls = draw(st.sampled_from(sorted(ev.BODIES.values(), key=lambda c: c.KIND)))
    values = {}
    for f in dataclasses.fields(cls):
        spec = str(f.type)
        strategy = BY_ANNOTATION[spec.removesuffix(" | None")]
        values[f.name] = draw(strategy | st.none() if spec.endswith(" | None") else strategy)
    return cls(**values)


def reread(body: ev.Body, kind: str, v: int) -> tuple[ev.Body, dict]:
    return ev.decode_body(kind, v, json.loads(ev.encode_payload(body)))


@given(bodies())
def test_every_kind_survives_its_json(body: ev.Body) -> None:
    assert reread(body, body.KIND, body.VERSION) == (body, {})


@given(bodies())
def test_the_json_is_canonical(body: ev.Body) -> None:
    text = ev.encode_payload(body)
    again, _ = reread(body, body.KIND, body.VERSION)
    assert ev.encode_payload(again) == text
    keys = list(json.loads(text))
    assert keys == sorted(keys)


@given(st.text(max_size=20), st.integers(1, 99), OBJECT)
def test_an_unknown_kind_survives_byte_for_byte(kind: str, v: int, payload: dict) -> None:
    kind = f"x.{kind}"
    text = ev.encode_payload(ev.Unknown(kind, v, payload))
    body, extra = ev.decode_body(kind, v, json.loads(text))
    assert body == ev.Unknown(kind, v, json.loads(text))
    assert extra == {}
    assert ev.encode_payload(body) == text


@given(st.sampled_from(sorted(ev.BODIES)), st.integers(0, 3), VALUE)
def test_a_strange_payload_never_raises(kind: str, v: int, payload: object) -> None:
    body, extra = ev.decode_body(kind, v, payload)  # type: ignore[arg-type]
    json.loads(ev.encode_payload(body, extra))


def test_kinds_are_noun_past_tense_and_of_the_design() -> None:
    for kind, cls in ev.BODIES.items():
        noun, verb = kind.split(".")
        assert noun.isalpha() and verb.isalpha() and kind == cls.KIND
    for kind in (
        "session.opened recorder.started recorder.recovered recorder.stopped operator.attached "
        "operator.heartbeat operator.decided operator.interrupted operator.messaged agent.said "
        "agent.called agent.returned agent.used agent.asked agent.claimed agent.finished "
        "agent.failed tree.snapshotted run.started run.output run.stepped run.signalled run.ended "
        "finding.opened finding.recategorised finding.resolved check.evaluated level.measured "
        "intervention.recorded intervention.amended intervention.voided intervention.restored "
        "marker.placed budget.reached"
    ).split():
        assert kind in ev.BODIES


def test_a_newer_version_of_a_known_kind_is_unknown() -> None:
    cls = ev.MarkerPlaced
    payload = {"text": "x", "colour": "red"}
    body, _ = ev.decode_body(cls.KIND, cls.VERSION + 1, payload)
    assert body == ev.Unknown(cls.KIND, cls.VERSION + 1, payload)


def test_an_unknown_field_is_kept() -> None:
    body, extra = ev.decode_body("marker.placed", 1, {"text": "x", "colour": "red"})
    assert body == ev.MarkerPlaced("x")
    assert extra == {"colour": "red"}
    assert json.loads(ev.encode_payload(body, extra))["colour"] == "red"


def test_a_missing_field_takes_its_default_and_a_required_one_makes_it_unknown() -> None:
    assert ev.decode_body("marker.placed", 1, {"text": "x"})[0] == ev.MarkerPlaced("x", "")
    assert isinstance(ev.decode_body("marker.placed", 1, {"author": "a"})[0], ev.Unknown)


@pytest.mark.parametrize(
    "payload",
    [
        {"stream": "stdout", "lines": "no list"},
        {"stream": "stdout", "lines": [1, 2]},
        {"stream": None, "lines": []},
    ],
)
def test_a_field_of_another_type_makes_it_unknown(payload: dict) -> None:
    body, _ = ev.decode_body("run.output", 1, payload)
    assert body == ev.Unknown("run.output", 1, payload)


def test_a_truth_value_is_no_number() -> None:
    payload = {"level": True, "text": ""}
    assert isinstance(ev.decode_body("agent.claimed", 1, payload)[0], ev.Unknown)


def test_numbers_without_json_become_words() -> None:
    body = ev.RunStepped([{"loss": math.nan, "norm": math.inf, "low": -math.inf, "ok": [1.5]}])
    assert json.loads(ev.encode_payload(body)) == {
        "records": [{"loss": "nan", "norm": "inf", "low": "-inf", "ok": [1.5]}]
    }


def test_a_lone_surrogate_is_replaced() -> None:
    text = ev.encode_payload(ev.MarkerPlaced("a\ud800b"))
    assert json.loads(text)["text"] == "a?b"


def test_a_number_that_is_none_survives_in_a_field_of_its_own() -> None:
    for value in (math.nan, math.inf, -math.inf):
        body = ev.BudgetReached("dollars", limit=1.0, actual=value)
        back, extra = ev.decode_body(body.KIND, body.VERSION, json.loads(ev.encode_payload(body)))
        assert isinstance(back, ev.BudgetReached)
        assert not extra
        assert back.actual == value or (math.isnan(back.actual) and math.isnan(value))
