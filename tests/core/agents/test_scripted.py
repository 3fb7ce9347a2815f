"""What the scripted agent says follows from what happened, never from the script alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.agents.base import Decision, Interrupted, ToolResult, Verdict
from core.agents.drivers import make_driver
from core.agents.script import ScriptError
from core.agents.scripted import ScriptedDriver
from core.config import Agent, ConfigError, SessionConfig


class Listener:
    """A bridge that answers as it is told, and keeps what the driver does."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.did: list[tuple[Any, ...]] = []
        self.messages: list[list[str]] = []
        self.memory: dict[str, Any] = {}

    def texts(self) -> list[str]:
        return [d[1] for d in self.did if d[0] == "say"]

    def _answer(self, what: str) -> Any:
        answer = self.answers[what]
        if isinstance(answer, BaseException):
            self.answers[what] = None
            raise answer
        return answer

    async def say(self, text: str, turn: int = 0) -> None:
        self.did.append(("say", text, turn))

    async def call(self, tool: str, input: Any, turn: int = 0, reason: str = "") -> ToolResult:
        self.did.append(("call", tool, input, reason))
        result: ToolResult = self._answer(tool)
        return result

    async def ask(self, question: str, reason: str = "") -> Decision:
        self.did.append(("ask", question))
        decision: Decision = self._answer("ask")
        return decision

    async def claim(self, level: int, text: str = "") -> Verdict | None:
        self.did.append(("claim", level, text))
        verdict: Verdict | None = self._answer("claim")
        return verdict

    async def boundary(self) -> list[str]:
        return self.messages.pop(0) if self.messages else []

    async def sleep(self, seconds: float) -> None:
        self.did.append(("sleep", seconds))

    async def use(self, used: Any) -> None:
        raise AssertionError("a scripted agent uses no tokens")

    async def direction(self) -> list[str]:
        self.did.append(("direction",))
        return ["go on"]

    async def finish(self, reason: str = "", text: str = "") -> None:
        self.did.append(("finish", reason))

    def recall(self) -> dict[str, Any]:
        return self.memory

    def remember(self, memory: dict[str, Any]) -> None:
        self.memory = memory


async def play(tmp_path: Path, script: str, speed: float = 0, **answers: Any) -> Listener:
    path = tmp_path / "script.toml"
    path.write_text(script)
    bridge = Listener(**answers)
    await ScriptedDriver(path, speed).run(bridge)
    assert bridge.did[-1] == ("finish", "end of script")
    return bridge


RUN = """
[[step]]
run = true
if_ok = "ok"
if_failed = "failed: {why}"
if_stopped = "stopped"
if_finding = {C2 = "device: {why}", C4 = "shapes: {why}"}
"""


@pytest.mark.parametrize(
    ("ok", "facts", "says"),
    [
        (True, {"reason": "exited"}, "ok"),
        (False, {"reason": "exited", "why": "exit 1"}, "failed: exit 1"),
        (False, {"reason": "stopped"}, "stopped"),
        (
            True,
            {"findings": ["C3", "C2"], "titles": {"C3": "ties", "C2": "optimizer"}, "why": "ties"},
            "device: optimizer",
        ),
        (False, {"reason": "stopped", "findings": ["C4"], "titles": {"C4": "new graph"}},
         "shapes: new graph"),
        (True, {"findings": ["C5"], "titles": {"C5": "x"}}, "ok"),
    ],
)  # fmt: skip
async def test_the_words_after_a_run(
    tmp_path: Path, ok: bool, facts: dict[str, Any], says: str
) -> None:
    bridge = await play(tmp_path, RUN, run=ToolResult(ok, "out", facts))
    assert bridge.texts() == [says]


@pytest.mark.parametrize(
    ("verdict", "says"),
    [
        (Verdict(3, 3), "measured L3"),
        (Verdict(3, 4), "measured L4"),
        (Verdict(3, 0, "L1.clip fail"), "only L0: L1.clip fail"),
        (Verdict(3, -1, "it crashed"), "only not even L0: it crashed"),
    ],
)
async def test_the_words_after_a_claim(tmp_path: Path, verdict: Verdict, says: str) -> None:
    script = (
        '[[step]]\nclaim = 3\ntext = "done"\nif_reached = "measured {level}"\n'
        'if_refuted = "only {level}: {why}"\n'
    )
    bridge = await play(tmp_path, script, claim=verdict)
    assert bridge.did[0] == ("claim", 3, "done") and bridge.texts() == [says]


async def test_without_a_verdict_nothing_is_said_of_one(tmp_path: Path) -> None:
    script = '[[step]]\nclaim = 3\nif_reached = "yes"\nif_refuted = "no"\n'
    assert (await play(tmp_path, script, claim=None)).texts() == []


async def test_a_denied_command(tmp_path: Path) -> None:
    script = '[[step]]\nshell = "rm x"\nreason = "old"\nif_denied = "then not"\nif_failed = "bad"\n'
    bridge = await play(tmp_path, script, shell=ToolResult(False, "no", {"denied": True}))
    assert bridge.did[0] == ("call", "shell", {"command": "rm x"}, "old")
    assert bridge.texts() == ["then not"]


async def test_a_failed_edit_is_said_even_without_words_for_it(tmp_path: Path) -> None:
    script = '[[step]]\nwrite = {path = "a", content = "b"}\n'
    bridge = await play(tmp_path, script, write=ToolResult(False, "The disk is full."))
    assert bridge.texts() == ["That did not work: The disk is full."]


async def test_braces_of_the_operator_are_not_filled_in(tmp_path: Path) -> None:
    script = '[[step]]\nask = "how?"\nif_allowed = "as you say: {answer}"\n'
    bridge = await play(tmp_path, script, ask=Decision("allow", "{0} %s {why}"))
    assert bridge.texts() == ["as you say: {0} %s {why}"]


@pytest.mark.parametrize(("speed", "waits"), [(0, []), (1, [3.0, 0.5]), (10, [0.3, 0.05])])
async def test_speed_divides_the_pauses(tmp_path: Path, speed: float, waits: list[float]) -> None:
    script = 'pace_s = 3\n[[step]]\nsay = "a"\n[[step]]\nsay = "b"\npause_s = 0.5\n'
    bridge = await play(tmp_path, script, speed)
    assert [d[1] for d in bridge.did if d[0] == "sleep"] == pytest.approx(waits)


async def test_an_interrupt_waits_for_a_word_and_leaves_the_step(tmp_path: Path) -> None:
    script = '[[step]]\nrun = true\nif_ok = "ok"\n[[step]]\nsay = "next"\n'
    bridge = await play(tmp_path, script, run=Interrupted("wrong way"))
    assert [d[0] for d in bridge.did] == ["call", "say", "direction", "say", "say", "finish"]
    assert bridge.texts()[0].startswith("You interrupted me (wrong way).")
    assert bridge.texts()[-1] == "next"


async def test_a_message_is_acknowledged_honestly(tmp_path: Path) -> None:
    path = tmp_path / "script.toml"
    path.write_text('[[step]]\nsay = "a"\n[[step]]\nsay = "b"\n')
    bridge = Listener()
    bridge.messages = [[], ["please do it otherwise"], ["and again"]]
    await ScriptedDriver(path).run(bridge)
    texts = bridge.texts()
    assert texts[0] == "a" and texts[2] == "b"
    assert "fixed script" in texts[1] and "step 2" in texts[1]
    assert "It has ended" in texts[3]


async def test_it_goes_on_where_an_earlier_process_left_it(tmp_path: Path) -> None:
    first = await play(tmp_path, '[[step]]\nsay = "a"\n[[step]]\nsay = "b"\n')
    driver = ScriptedDriver(tmp_path / "script.toml")
    again = Listener()
    again.memory = {**first.memory, "next": 1}
    assert driver.describe(again.memory) == ("", "script.toml, goes on at step 2")
    await driver.run(again)
    assert again.texts() == ["b"]
    changed = Listener()
    changed.memory = {"hash": "other", "next": 1}
    with pytest.raises(ScriptError, match="was changed"):
        await driver.run(changed)
    assert changed.did == []


def test_an_unknown_driver_is_a_sentence() -> None:
    with pytest.raises(ConfigError, match="no driver 'ghost'"):
        make_driver(SessionConfig(agent=Agent(driver="ghost")))
