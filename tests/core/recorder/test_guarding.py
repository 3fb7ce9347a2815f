"""The diff guard in a real session: it asks before an edit, and tags what it finds afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from core import events as ev
from core.config import SessionConfig
from core.guard.policy import Policy
from core.guard.tag import Tag
from core.state import SessionState
from tests.core.recorder.recording import Console, make, record, recording

EVAL = "def accuracy(pred, y):\n    return (pred == y).float().mean()\n"
TEST = "def test_it():\n    assert 1 + 1 == 2\n"
OPTIM = "import torch\nopt = torch.optim.SGD(params, lr=0.1)\n"
FILES = {"eval.py": EVAL, "test_it.py": TEST, "optim.py": OPTIM}

PATCH = """\
--- a/optim.py
+++ b/optim.py
@@ -1,2 +1,2 @@
 import torch
-opt = torch.optim.SGD(params, lr=0.1)
+opt = torch.optim.SGD(params, lr=0.3)
"""

EDIT_TEST = """
[[step]]
edit = {path = "test_it.py", search = "== 2", replace = "== 3"}
if_failed = "so no"
"""
EDIT_LR = """
[[step]]
edit = {path = "optim.py", search = "lr=0.1", replace = "lr=0.2"}
if_failed = "so no"
"""


def _kinds(state: SessionState) -> list[str]:
    return [t["kind"] for t in state.tagged.tags] if state.tagged else []


def _tags(items: list[dict[str, Any]]) -> list[Tag]:
    found = [Tag.from_json(item) for item in items]
    assert None not in found
    return [t for t in found if t is not None]


async def test_an_edit_of_a_test_asks_and_a_denial_refuses_it(tmp_path: Path) -> None:
    path = make(tmp_path, EDIT_TEST, FILES)
    with Console(path) as console:
        async with recording(path):
            ask = await console.until(lambda s: s.pending_ask)
            assert ask.body.tool == "edit"
            assert (
                "test_it.py:2 tests: assert changed, 1 + 1 == 2 -> 1 + 1 == 3"
                not in ask.body.reason
            )
            assert "test_it.py:2 tests: assert changed, 2 == 2 -> 2 == 3" in ask.body.reason
            assert ask.body.question.startswith("May I edit: test_it.py? It changes what needs")
            console.act(ev.OperatorDecided(ask.body.ask_id, "deny", "keep it", author="ana"))
        state = console.look()
        assert (path.parent / "worktree" / "test_it.py").read_text() == TEST
        (call,) = [e for e in state.transcript if e.kind == "called"]
        assert not call.ok and call.output == "The operator denied this: keep it"
        assert len(state.snapshots) == 1 and state.tagged is None


async def test_an_edit_that_was_allowed_is_made_and_tagged(tmp_path: Path) -> None:
    path = make(tmp_path, EDIT_TEST + EDIT_LR, FILES)
    with Console(path) as console:
        async with recording(path):
            ask = await console.until(lambda s: s.pending_ask)
            console.act(ev.OperatorDecided(ask.body.ask_id, "allow", author="ana"))
        state = console.look()
    assert len(state.asks) == 1  # the learning rate is tagged, and nobody is asked by default
    assert state.tagged is not None and state.tagged.tree == state.tree
    tests, rate = sorted(_tags(state.tagged.tags), key=lambda t: t.kind, reverse=True)
    assert (tests.kind, tests.path, tests.line, tests.sure) == ("tests", "test_it.py", 2, True)
    assert (rate.kind, rate.before, rate.after) == ("learning rate", "0.1", "0.2")
    assert state.tagged.unasked == []


async def test_kinds_and_globs_of_the_configuration_are_asked_for(tmp_path: Path) -> None:
    write = '[[step]]\nwrite = {path = "conf/new.txt", content = "x"}\n'
    patch = f'[[step]]\npatch = """\n{PATCH}"""\n'
    config = '[guard]\nask = ["learning rate"]\nprotect = ["conf/**"]\n'
    path = make(
        tmp_path, EDIT_TEST + EDIT_LR.replace("0.2", "0.1 * 2") + write + patch, FILES, config
    )
    with Console(path) as console:
        async with recording(path):
            for number, words in enumerate(("learning rate: SGD lr", "protected by conf/**"), 1):
                ask = await console.until(
                    lambda s, n=number: s.pending_ask if len(s.asks) == n else None
                )
                assert words in ask.body.question
                console.act(ev.OperatorDecided(ask.body.ask_id, "deny" if number == 1 else "allow"))
            ask = await console.until(lambda s: s.pending_ask if len(s.asks) == 3 else None)
            assert ask.body.tool == "patch" and "0.1 -> 0.3" in ask.body.question
            console.act(ev.OperatorDecided(ask.body.ask_id, "allow"))
        assert _kinds(console.look()) == ["learning rate", "tests"]


async def test_what_a_command_changed_is_tagged_afterwards_and_said_so(tmp_path: Path) -> None:
    script = '[[step]]\nshell = "sed -i s/mean/sum/ eval.py; sed -i s/0.1/0.5/ optim.py"\n'
    path = make(tmp_path, script, FILES, '[agent.policy]\nshell = "allow"\n')
    state = await record(path)
    assert state.tagged is not None and state.tagged.cause == "shell"
    assert _kinds(state) == ["metric", "learning rate"]
    assert [t.kind for t in _tags(state.tagged.unasked)] == ["metric"]
    assert state.tagged.text.startswith(
        "Changed by a shell command, so nobody was asked: eval.py:2"
    )
    assert [m.label for m in state.moments if m.kind == "guard"] == [state.tagged.text]


async def test_tags_go_when_the_change_is_taken_back(tmp_path: Path) -> None:
    back = (
        EDIT_LR.replace('"lr=0.1"', '"LR"').replace('"lr=0.2"', '"lr=0.1"').replace("LR", "lr=0.2")
    )
    wait = '[[step]]\nask = "go on?"\n'
    path = make(tmp_path, EDIT_LR + wait + back, FILES)
    with Console(path) as console:
        async with recording(path):
            await console.until(lambda s: s.tagged is not None and s.pending_ask)
            assert _kinds(console.state) == ["learning rate"]
            console.act(ev.OperatorDecided(console.state.pending_ask.body.ask_id, "allow"))
        state = console.look()
    assert state.tagged is not None and state.tagged.tree == state.tree and not state.tagged.tags


async def test_a_new_test_of_the_agents_own_asks_for_nothing(tmp_path: Path) -> None:
    own = '[[step]]\nwrite = {path = "test_new.py", content = "def test_a():\\n    assert 1\\n"}\n'
    again = '[[step]]\nedit = {path = "test_new.py", search = "assert 1", replace = "assert 2"}\n'
    state = await record(make(tmp_path, own + again, FILES))
    assert not state.asks and state.tagged is None


def test_the_default_asks_for_tests_tolerances_metric_code_and_evaluation_data() -> None:
    assert set(SessionConfig().guard.ask) == {"metric", "evaluation data", "tests", "tolerance"}
    assert Policy().ask == tuple(SessionConfig().guard.ask)
