"""No agent: the operator migrates by hand, and Pilotage runs, measures and records.

The one question it asks over and over is the operator's start button: yes runs the target on the
files as they are and measures, words run that command instead, no measures a last time and ends.
Where nobody watches, the question is answered with no, so a session records the reference, runs
the target once and ends.
"""

from __future__ import annotations

from typing import Any

from core.agents.base import Bridge, Interrupted

QUESTION = "Run the target on the files as they are now? d ends the migration."


class ManualDriver:
    """Waits for the operator, and starts attempts at their word."""

    name = "manual"

    def describe(self, memory: dict[str, Any]) -> tuple[str, str]:
        """No model; the detail says who works."""
        return "", "the operator migrates by hand"

    async def run(self, bridge: Bridge) -> None:
        """Ask until the answer is no; a restart asks again."""
        if not bridge.recall():
            await bridge.say(
                f"You make the edits yourself, in {bridge.worktree()}. Each time you are asked: "
                "a runs the target command on the files as they are and measures, e runs another "
                "command, d measures a last time and ends the migration."
            )
            bridge.remember({"told": True})
        while True:
            try:
                await self._hear(await bridge.boundary(), bridge)
                decision = await bridge.ask(QUESTION)
                if not decision.allowed:
                    await bridge.call("verify", {})
                    break
                command = decision.text.strip() if decision.decision == "edit" else ""
                await bridge.call("run", {"command": command} if command else {})
                if not command:
                    await bridge.call("verify", {})
            except Interrupted:
                await self._wait(bridge)
        await bridge.finish("ended by the operator", "The migration was ended.")

    async def _wait(self, bridge: Bridge) -> None:
        """After an interruption: until the operator writes or resumes, however often they do."""
        while True:
            try:
                await self._hear(await bridge.direction(), bridge)
                return
            except Interrupted:
                continue

    async def _hear(self, messages: list[str], bridge: Bridge) -> None:
        for _ in messages:
            await bridge.say("Your message is in the log. There is no agent here to act on it.")
