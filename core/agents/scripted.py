"""The scripted agent: does what a script says, for real, and can't think.

Its edits, runs, claims and questions are real; only its words are given. What it says about an
outcome is chosen by the outcome, never assumed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from core.agents.base import Bridge, Interrupted, ToolResult, Verdict
from core.agents.script import Script, ScriptError, Step, load


class ScriptedDriver:
    """Plays a script; ``speed`` divides its pauses, 0 leaves them out."""

    name = "scripted"

    def __init__(self, script: Path, speed: float = 1.0) -> None:
        self._path = script
        self._speed = speed
        self._script: Script | None = None

    def describe(self, memory: dict[str, Any]) -> tuple[str, str]:
        """No model; the detail names the script and, after a restart, the step."""
        script = self._loaded()
        next_step = memory.get("next", 0)
        detail = script.title or script.path.name
        if next_step and next_step < len(script.steps):
            detail += f", goes on at step {script.steps[next_step].number}"
        return "", detail

    async def run(self, bridge: Bridge) -> None:
        """Play the script from where an earlier process left it."""
        script = self._loaded()
        memory = bridge.recall()
        if memory and memory.get("hash") != script.hash():
            raise ScriptError(
                f"{script.path} was changed since this session began, so the agent can't go on "
                "where it was. Start a new session with the changed script."
            )
        index = int(memory.get("next", 0))
        while index < len(script.steps):
            step = script.steps[index]
            try:
                await self._hear(bridge, await bridge.boundary(), step)
                await self._pause(bridge, step.pause_s or script.pace_s)
                await self._do(bridge, step)
            except Interrupted as interruption:
                await self._interrupted(bridge, step, str(interruption))
            index += 1
            bridge.remember({"hash": script.hash(), "next": index})
        await self._hear(bridge, await bridge.boundary(), None)
        await bridge.finish("end of script", "That was the last step of my script.")

    def _loaded(self) -> Script:
        if self._script is None:
            self._script = load(self._path)
        return self._script

    async def _pause(self, bridge: Bridge, seconds: float) -> None:
        if seconds and self._speed:
            await bridge.sleep(seconds / self._speed)

    async def _hear(self, bridge: Bridge, messages: list[str], step: Step | None) -> None:
        for _ in messages:
            rest = (
                f"I go on with step {step.number} of it."
                if step is not None
                else "It has ended, so nothing follows."
            )
            await bridge.say(
                "I have your message and it is in the log, but I play a fixed script and can't "
                f"act on it. {rest} Pause, interrupt and deny do work on me.",
                step.number if step else 0,
            )

    async def _interrupted(self, bridge: Bridge, step: Step, reason: str) -> None:
        why = f" ({reason})" if reason else ""
        await bridge.say(
            f"You interrupted me{why}. I leave step {step.number} as it is, and wait for a message "
            "or a resume before the next one.",
            step.number,
        )
        while True:
            try:
                await self._hear(bridge, await bridge.direction(), step)
                return
            except Interrupted:
                continue  # interrupted while waiting: goes on waiting

    async def _do(self, bridge: Bridge, step: Step) -> None:
        if step.action == "pause":
            return  # the pause itself came before
        if step.action == "say":
            await bridge.say(step.text, step.number)
            return
        if step.action == "ask":
            decision = await bridge.ask(step.text, step.reason)
            key = "if_allowed" if decision.allowed else "if_denied"
            await self._reply(bridge, step, key, answer=decision.text)
            return
        if step.action == "claim":
            verdict = await bridge.claim(step.level, step.text)
            if verdict is not None:
                await self._reply_to_verdict(bridge, step, verdict)
            return
        result = await bridge.call(step.action, step.input, step.number, step.reason)
        await self._reply_to_result(bridge, step, result)

    async def _reply_to_verdict(self, bridge: Bridge, step: Step, verdict: Verdict) -> None:
        level = f"L{verdict.level}" if verdict.level >= 0 else "not even L0"
        key = "if_reached" if verdict.confirmed else "if_refuted"
        await self._reply(bridge, step, key, level=level, why=verdict.why)

    async def _reply_to_result(self, bridge: Bridge, step: Step, result: ToolResult) -> None:
        facts = result.facts
        found = [c for c in facts.get("findings", []) if c in step.finding_replies]
        words: dict[str, str] = {"why": str(facts.get("why", "")), "answer": result.output}
        if level := facts.get("level_name"):
            words["level"] = str(level)
        if facts.get("denied"):
            await self._reply(bridge, step, "if_denied", **words)
        elif found:
            words["why"] = str(facts.get("titles", {}).get(found[0], words["why"]))
            await self._say(bridge, step, step.finding_replies[found[0]], **words)
        elif facts.get("reason") == "stopped" and "if_stopped" in step.replies:
            await self._reply(bridge, step, "if_stopped", **words)
        else:
            await self._reply(bridge, step, "if_ok" if result.ok else "if_failed", **words)
        if not result.ok and not facts.get("denied") and step.action in ("edit", "patch", "write"):
            if "if_failed" not in step.replies:
                await bridge.say(f"That did not work: {result.output}", step.number)

    async def _reply(self, bridge: Bridge, step: Step, key: str, **words: str) -> None:
        if text := step.replies.get(key):
            await self._say(bridge, step, text, **words)

    async def _say(self, bridge: Bridge, step: Step, text: str, **words: str) -> None:
        for name, word in words.items():
            text = text.replace("{" + name + "}", word)
        await bridge.say(text.strip(), step.number)
