"""The bridge between a driver and the session: each act of the agent becomes events."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from core import events as ev
from core.agents.base import Decision, Interrupted, OutOfBudget, ToolResult, Verdict
from core.events import JSON, Event
from core.recorder.budget import over_budget
from core.recorder.guarding import evidence, question
from core.recorder.journal import Journal
from core.recorder.tools import Tools
from core.state import SessionState

T = TypeVar("T")

ASKS_FIRST = ("shell",)
"""Tools that need the operator's word where ``[agent] policy`` does not say otherwise."""


class AgentBridge:
    """What the driver of one session may do (see :class:`core.agents.base.Bridge`)."""

    def __init__(
        self,
        journal: Journal,
        tools: Tools,
        memory_file: Path,
        verify: Callable[[], Awaitable[Verdict | None]] | None,
        policy: Mapping[str, str] | None = None,
    ) -> None:
        self._journal = journal
        self._tools = tools
        self._memory_file = memory_file
        self._verify = verify
        self._policy = policy or {}
        self._over = ""
        self._interrupt = asyncio.Event()
        self._reason = ""
        self._resumed = asyncio.Event()
        self._listening = False

    def listen(self, event: Event) -> None:
        """Hear of an operator's interrupt or resume; called for each new event."""
        if isinstance(event.body, ev.OperatorInterrupted):
            self._reason = event.body.reason
            self._interrupt.set()
        elif isinstance(event.body, ev.OperatorResumed):
            self._resumed.set()
        elif isinstance(event.body, ev.BudgetReached):
            self._over = over_budget(event.body)
            self._interrupt.set()

    # --- the driver's side -----------------------------------------------------------------

    async def say(self, text: str, turn: int = 0) -> None:
        """Text of the agent's."""
        self._check()
        await self._emit(ev.AgentSaid(text, turn))

    async def call(self, tool: str, input: JSON, turn: int = 0, reason: str = "") -> ToolResult:
        """Call a tool, after asking where that is needed."""
        self._check()
        call_id = f"c{self._journal.state.seq + 1}"
        await self._emit(ev.AgentCalled(call_id, tool, input, turn))
        stopped: Exception | None = None
        try:
            result = await self._permitted(tool, input, call_id, reason)
        except Interrupted as interruption:
            stopped, result = interruption, ToolResult(False, "Interrupted by the operator.")
        except OutOfBudget as over:
            stopped, result = over, ToolResult(False, str(over))
        except _Stopped as end:
            stopped, result = self._why_ended(), end.result
        await self._emit(
            ev.AgentReturned(call_id, result.ok, result.output),
            run_id=str(result.facts.get("run_id", "")),
        )
        if stopped is not None:
            raise stopped
        return result

    async def _permitted(self, tool: str, input: JSON, call_id: str, reason: str) -> ToolResult:
        policy = self._policy.get(tool, "ask" if tool in ASKS_FIRST else "allow")
        if policy == "deny":
            why = f"The policy of this session denies the tool {tool}."
            return ToolResult(False, why, {"denied": True})
        tags = await self._tools.needing_word(tool, input)
        if policy == "ask" or tags:
            what = input.get("command") or input.get("path") or input.get("pattern") or "the target"
            wish = f"run: {what}" if tool in ("shell", "run") else f"{tool}: {what}"
            asked = f"May I {wish}"
            if tags:
                asked = f"{asked}? {question(tags)}"
                reason = "\n".join(r for r in (reason, evidence(tags)) if r)
            decision = await self._ask(
                ev.AgentAsked(self._ask_id(), asked, tool, input, call_id, reason)
            )
            if not decision.allowed:
                why = f": {decision.text}" if decision.text else "."
                return ToolResult(False, f"The operator denied this{why}", {"denied": True})
            if decision.decision == "edit" and decision.input is not None:
                input = decision.input
        return await self._until_interrupted(
            self._tools.execute(tool, input, call_id), self._tools.stop
        )

    async def ask(self, question: str, reason: str = "") -> Decision:
        """Ask the operator something and wait for the answer."""
        self._check()
        return await self._ask(ev.AgentAsked(self._ask_id(), question, reason=reason))

    async def claim(self, level: int, text: str = "") -> Verdict | None:
        """Claim a level, and have it verified where the session does that."""
        self._check()
        tree = self._journal.state.tree
        claim_id = f"l{self._journal.state.seq + 1}"
        await self._emit(ev.AgentClaimed(level, text, claim_id), tree=tree)
        if self._verify is None:
            return None
        verdict = await self._until_interrupted(self._verify(), self._tools.stop)
        return Verdict(level, verdict.level, verdict.why) if verdict else None

    async def boundary(self) -> list[str]:
        """Between two steps: waits while paused, then delivers messages."""
        self._check()
        await self._until_interrupted(self._journal.wait_for(_not_paused))
        return await self._deliver()

    async def sleep(self, seconds: float) -> None:
        """Wait, interruptibly."""
        self._check()
        await self._until_interrupted(asyncio.sleep(seconds))

    async def use(self, used: ev.AgentUsed) -> None:
        """Tokens were used."""
        await self._emit(used)

    async def direction(self) -> list[str]:
        """After an interruption: wait for a message or a resume."""
        self._resumed.clear()
        resumed = asyncio.ensure_future(self._resumed.wait())
        told = asyncio.ensure_future(self._journal.wait_for(_undelivered))
        try:
            await self._until_interrupted(
                asyncio.wait({resumed, told}, return_when=asyncio.FIRST_COMPLETED)
            )
        finally:
            await _cancel(resumed, told)
        return await self._deliver()

    def worktree(self) -> Path:
        """The directory in which the target's command runs."""
        return self._tools.directory

    async def finish(self, reason: str = "", text: str = "") -> None:
        """The agent ended of its own accord."""
        await self._emit(ev.AgentFinished(reason, text))

    def recall(self) -> dict[str, Any]:
        """What was last remembered in this session."""
        try:
            memory = json.loads(self._memory_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return memory if isinstance(memory, dict) else {}

    def remember(self, memory: dict[str, Any]) -> None:
        """Keep something for after a restart; replaced as a whole, never half written."""
        new = self._memory_file.with_suffix(".new")
        try:
            new.write_text(json.dumps(memory), encoding="utf-8")
            new.replace(self._memory_file)
        except OSError:
            # A full disk: the log says so already. The step would be done again after a crash.
            with contextlib.suppress(OSError):
                new.unlink(missing_ok=True)

    # --- inside ----------------------------------------------------------------------------

    async def _emit(self, body: ev.Body, run_id: str = "", tree: str = "") -> None:
        await self._journal.emit(body, source="agent", run_id=run_id, tree=tree)

    def _ask_id(self) -> str:
        return f"a{self._journal.state.seq + 1}"

    async def _ask(self, asked: ev.AgentAsked) -> Decision:
        await self._emit(asked)

        def answered(state: SessionState) -> ev.OperatorDecided | None:
            ask = state.asks.get(asked.ask_id)
            return ask.decision if ask else None

        body = await self._until_interrupted(self._journal.wait_for(answered))
        text = body.reason
        if not asked.tool and body.input:  # a question that was answered in words
            text = str(body.input.get("answer") or body.input.get("text") or text)
        return Decision(body.decision, text, body.input, body.author)

    async def _deliver(self) -> list[str]:
        waiting = _undelivered(self._journal.state) or []
        await self._journal.emit(*(ev.OperatorDelivered(m.message_id) for m in waiting))
        return [m.text for m in waiting]

    def _check(self) -> None:
        if self._over or self._interrupt.is_set():
            self._interrupt.clear()
            raise self._why_ended()

    def _why_ended(self) -> Exception:
        return OutOfBudget(self._over) if self._over else Interrupted(self._reason)

    async def _until_interrupted(
        self, work: Awaitable[T], stop: Callable[[], Awaitable[None]] | None = None
    ) -> T:
        """The result of ``work``. An interrupt ends it: by ``stop`` where there is one.

        With ``stop`` the work ends in good order, and its result travels in :class:`_Stopped`.
        """
        task: asyncio.Future[T] = asyncio.ensure_future(work)
        signal = asyncio.ensure_future(self._interrupt.wait())
        try:
            both: set[asyncio.Future[Any]] = {task, signal}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not self._interrupt.is_set():
                return task.result()
            self._interrupt.clear()
            if stop is not None:
                if not task.done():
                    await stop()
                result = await task
                if isinstance(result, ToolResult):
                    raise _Stopped(result)
            raise self._why_ended()
        finally:
            await _cancel(task, signal)


class _Stopped(Exception):
    """The work was stopped by an interrupt and gave this back."""

    def __init__(self, result: ToolResult) -> None:
        super().__init__(result.output)
        self.result = result


async def _cancel(*futures: asyncio.Future[Any]) -> None:
    for future in futures:
        if not future.done():
            future.cancel()
    await asyncio.gather(*futures, return_exceptions=True)


def _not_paused(state: SessionState) -> bool | None:
    return True if not state.paused else None


def _undelivered(state: SessionState) -> list[Any] | None:
    return [m for m in state.messages.values() if m.delivered_ts_us is None] or None
