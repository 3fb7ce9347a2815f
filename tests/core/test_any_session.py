"""The rules answer for every session: nothing stored, however odd, stops them or counts as a pass."""

from __future__ import annotations

import json

from hypothesis import given, settings

from core.attempts import KINDS, outcome
from core.effort import effort
from core.events import Event, encode_payload
from core.findings import detect, resolved
from core.levels import STATES, ladder
from core.money import costs
from core.state import fold
from core.verify.evaluate import measure
from tests.core.arbitrary import damaged, logs


@settings(max_examples=150)
@given(logs() | damaged())
def test_every_rule_answers_for_every_session(log: list[Event]) -> None:
    state = fold(log)
    before = repr(state)
    now = ladder(state)
    assert {lv.state for lv in now.levels} <= set(STATES)
    assert isinstance(now.text, str)
    results, level = measure(state, state.tree)
    for body in (*results, level):
        json.loads(encode_payload(body))
        assert body.level < 0 or body.level <= 4
    assert all(r.reason for r in results if r.state == "not run")
    for run_id, run in state.runs.items():
        assert outcome(state, run).kind in KINDS
        for finding in (*detect(state, run_id), *resolved(state, run_id)):
            json.loads(encode_payload(finding))
    result = effort(state)
    assert abs(result.cells.sum - result.span_s) < 1e-3
    amount = costs(state)
    assert amount.agent.text
    assert repr(state) == before  # rules read, and change nothing
