"""Budgets end the agent in good order, and policies decide what a tool needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from core import events as ev
from core.recorder.budget import over_budget
from core.state import SessionState
from sessions.log import EventLog
from tests.core.recorder.recording import Console, make, record, recording

RUNS = "[[step]]\nrun = true\n" * 3 + '[[step]]\nsay = "still here"\n'


def _said(state: SessionState) -> list[str]:
    return [e.text for e in state.transcript if e.kind == "said"]


def _returned(path: Path) -> list[ev.AgentReturned]:
    with EventLog.read(path) as log:
        return [e.body for e in log.events() if isinstance(e.body, ev.AgentReturned)]


async def test_the_agent_is_told_and_ended_at_its_budget_of_attempts(tmp_path: Path) -> None:
    path = make(tmp_path, RUNS, config="[budgets]\nattempts = 2")
    state = await record(path)
    assert len(state.attempts) == 2 and all(r.ok_exit for r in state.attempts)
    assert [(b.budget, b.limit, b.actual) for b in state.budgets] == [("attempts", 2.0, 2.0)]
    assert isinstance(state.agent_end, ev.AgentFinished)
    assert state.agent_end.reason == "out of budget"
    assert "budget of 2 attempts" in state.agent_end.text
    told = _returned(path)[-1]
    assert not told.ok and told.output == over_budget(state.budgets[0])
    assert "still here" not in _said(state)
    assert state.measurements, "what the agent leaves is measured all the same"


async def test_a_budget_that_is_not_used_up_changes_nothing(tmp_path: Path) -> None:
    state = await record(make(tmp_path, RUNS, config="[budgets]\nattempts = 3\nhours = 1"))
    assert len(state.attempts) == 3 and not state.budgets
    assert "still here" in _said(state)


async def test_hours_end_a_run_in_progress(tmp_path: Path) -> None:
    script = '[[step]]\nrun = "python forever.py"\n'
    path = make(tmp_path, script, config="[budgets]\nhours = 0.0005")  # 1.8 s
    state = await record(path)
    assert [b.budget for b in state.budgets] == ["hours"]
    assert state.budgets[0].actual >= 0.0005
    (attempt,) = state.attempts
    assert attempt.ended is not None and attempt.ended.reason == "stopped"
    assert isinstance(state.agent_end, ev.AgentFinished) and "hours" in state.agent_end.text


@pytest.mark.parametrize(
    ("policy", "asks", "made"), [("allow", 0, True), ("deny", 0, False), ("ask", 1, True)]
)
async def test_a_policy_decides_what_a_tool_needs(
    policy: str, asks: int, made: bool, tmp_path: Path
) -> None:
    script = '[[step]]\nwrite = {path = "new.txt", content = "x"}\n'
    path = make(tmp_path, script, config=f'policy = {{ write = "{policy}" }}')
    async with recording(path):
        with Console(path) as console:
            if asks:
                ask = await console.until(lambda s: s.pending_ask)
                assert "new.txt" in ask.body.question and ask.body.tool == "write"
                console.act(ev.OperatorDecided(ask.body.ask_id, "allow"))
            await console.until(lambda s: s.agent_end)
            state = console.look()
    assert len(state.asks) == asks
    (returned,) = _returned(path)
    assert returned.ok is made
    changed = any("new.txt" in str(s.body) for s in state.snapshots)
    assert changed is made
