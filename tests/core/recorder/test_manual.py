"""Without an agent: the operator edits, and starts attempts by answering one question."""

from __future__ import annotations

import asyncio
from pathlib import Path

from core import events as ev
from core.config import load
from core.money import agent_cost
from core.state import fold
from sessions.log import EventLog
from sessions.opening import create, play_headless
from tests.core.recorder.recording import TRAIN, Console, recording

CONFIG = """
[project]
path = "proj"
[reference]
command = "python train.py"
[target]
command = "python train.py --device xla"
[metric]
name = "acc"
pattern = 'acc ([0-9.]+)'
[agent]
driver = "manual"
"""


def _session(tmp_path: Path, more: str = "") -> Path:
    (tmp_path / "proj").mkdir()
    (tmp_path / "proj" / "train.py").write_text(TRAIN)
    (tmp_path / "pilotage.toml").write_text(CONFIG + more)
    return create(load(tmp_path), "0.0.test")


async def test_headless_it_runs_the_target_once_measures_and_ends(tmp_path: Path) -> None:
    path = _session(tmp_path)
    await asyncio.to_thread(play_headless, path, lambda line: None)
    with EventLog.read(path) as log:
        state = fold(log.events())
    assert state.phase == "finished" and state.over
    (reference,) = state.runs_for("reference")
    assert reference.ok_exit
    (attempt,) = state.attempts
    assert attempt.ok_exit and "--device xla" in attempt.started.command
    assert state.measurements[-1].tree == state.tree
    assert not state.interventions
    (ask,) = state.asks.values()
    assert ask.decision is not None and ask.decision.reason == "Nobody watches this session."
    assert agent_cost(state).text == "no agent cost"


async def test_the_operator_edits_and_starts_attempts_by_answers(tmp_path: Path) -> None:
    path = _session(tmp_path)

    async def answer(decision: str, **more: str) -> None:
        ask = await console.until(lambda s: s.pending_ask)
        console.act(ev.OperatorDecided(ask.body.ask_id, decision, **more))
        await console.until(lambda s: not s.asks[ask.body.ask_id].pending or None)

    async with recording(path):
        with Console(path) as console:
            said = await console.until(
                lambda s: next((e for e in s.transcript if e.kind == "said"), None)
            )
            worktree = Path(said.text.split(" in ", 1)[1].split(". ", 1)[0])
            assert worktree.is_dir() and (worktree / "train.py").read_text() == TRAIN
            (worktree / "train.py").write_text(TRAIN.replace("0.9", "0.8"))
            # The question stands beside a diff that has the edit in it, before any run.
            seen = await console.until(lambda s: s.snapshots[1] if len(s.snapshots) > 1 else None)
            assert seen.body.cause == "outside" and "train.py" in seen.body.patch
            await answer("allow")
            await answer("edit", reason="python train.py --steps 1")
            await console.until(lambda s: s.pending_ask)
            console.act(ev.OperatorInterrupted(), ev.OperatorMessaged("m1", "are you there?"))
            await answer("deny")
            await console.until(lambda s: s.agent_end)
            state = console.look()
    commands = [r.started.command for r in state.attempts]
    assert commands == ["python train.py --device xla", "python train.py --steps 1"]
    assert any(line.text == "acc 0.8" for line in state.attempts[0].lines)
    assert state.attempts[0].tree != state.snapshots[0].body.tree
    said = [e.text for e in state.transcript if e.kind == "said"]
    assert any("no agent here" in text for text in said)
    assert isinstance(state.agent_end, ev.AgentFinished)


async def test_budgets_hold_for_the_operator_as_driver_too(tmp_path: Path) -> None:
    path = _session(tmp_path, "[budgets]\nattempts = 1\n")
    async with recording(path):
        with Console(path) as console:
            ask = await console.until(lambda s: s.pending_ask)
            console.act(ev.OperatorDecided(ask.body.ask_id, "allow"))
            again = await console.until(
                lambda s: s.pending_ask if len(s.asks) > 1 and s.pending_ask else None
            )
            console.act(ev.OperatorDecided(again.body.ask_id, "allow"))
            await console.until(lambda s: s.agent_end)
            state = console.look()
    assert len(state.attempts) == 1
    assert [b.budget for b in state.budgets] == ["attempts"]
