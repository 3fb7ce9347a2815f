"""A session without a person: the script plays the operator too."""

from __future__ import annotations

import asyncio
from pathlib import Path

from core import events as ev
from core.effort import effort
from core.state import fold
from sessions.log import EventLog
from sessions.opening import play_headless
from tests.core.recorder.recording import make

SCRIPT = """
[[step]]
shell = "touch allowed"
[[step]]
shell = "touch denied"
if_denied = "as you wish"
[[step]]
run = true
[[step]]
claim = 0
[[step]]
say = "last"
"""

OPERATOR = """
[[operator]]
on = "ask"
match = "touch allowed"
action = "allow"
after_s = 1

[[operator]]
on = "ended"
match = "attempt"
action = "intervene"
kind = "code"
trigger = "own review"
category = "C2"
text = "changed it myself"

[[operator]]
on = "claim"
match = "L0"
action = "message"
text = "let us see"
"""


async def test_the_script_plays_the_operator(tmp_path: Path) -> None:
    path = make(tmp_path, SCRIPT + OPERATOR)
    lines: list[str] = []
    await asyncio.to_thread(play_headless, path, lines.append)
    with EventLog.read(path) as log:
        events = list(log.events())
    state = fold(events)
    assert state.phase == "finished" and state.over and not state.consoles
    worktree = path.parent / "worktree"
    assert (worktree / "allowed").exists() and not (worktree / "denied").exists()
    denied = list(state.asks.values())[1].decision
    assert denied is not None and denied.reason == "The script has no answer to this."
    kinds = {(i.kind, i.text) for i in state.interventions.values()}
    assert ("code", "changed it myself") in kinds and ("guidance", "let us see") in kinds
    code = next(i for i in state.interventions.values() if i.kind == "code")
    assert code.recorded.at_tree == state.attempts[0].tree and not code.recorded.automatic
    assert all(
        e.source == "console:script" for e in events if isinstance(e.body, ev.OperatorDecided)
    )
    # Nobody was there, so nobody's time was spent.
    assert set(effort(state).active_s.values()) == {0}
    text = "\n".join(lines)
    for part in ("run #1, reference", "agent asks: May I run: touch denied", "operator: allow",
                 "agent claims L0", "measured: none", "agent: last"):  # fmt: skip
        assert part in text, part


async def test_hostile_words_reach_no_terminal_as_control_characters(tmp_path: Path) -> None:
    path = make(tmp_path, '[[step]]\nsay = "red \\u001b[31m text\\u0007\\r\\n over"\n')
    lines: list[str] = []
    await asyncio.to_thread(play_headless, path, lines.append)
    said = next(line for line in lines if line.startswith("agent:"))
    assert said.isprintable()
