"""What a driver is, and the bridge: all that it may do.

A driver decides; the recorder does. Each method of the bridge becomes events, so whatever an
agent says, calls, asks or claims is in the log before the driver hears of its outcome.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from core.errors import PilotageError
from core.events import JSON, AgentUsed

TOOLS = ("read", "search", "edit", "patch", "write", "shell", "run", "verify")
"""The tools of an agent; ``core.recorder.tools`` says what each does with its input."""


class Interrupted(Exception):
    """The operator interrupted; what was going on has been stopped. ``str`` is the reason."""


class OutOfBudget(PilotageError):
    """A budget of the session is used up, so the agent is ended. A driver lets it pass."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool gave back: the text for the agent, and facts for a driver that needs them.

    ``facts`` of ``run``: ``run_id``, ``exit_code``, ``reason`` (as ``run.ended``), ``findings``
    (categories) and ``titles`` (the first finding's, by category); of ``verify``: ``level`` and ``why``; ``denied`` where the operator said no.
    """

    ok: bool
    output: str
    facts: JSON = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """The operator's answer to a question: ``allow``, ``deny`` or ``edit``, and the words."""

    decision: str
    text: str = ""
    input: JSON | None = None
    author: str = ""

    @property
    def allowed(self) -> bool:
        """Whether the answer is a yes, be it to something edited."""
        return self.decision in ("allow", "edit")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was measured after a claim: the level, and why it is not higher."""

    claimed: int
    level: int
    why: str = ""

    @property
    def confirmed(self) -> bool:
        """Whether the measured level is at least the claimed one."""
        return self.level >= self.claimed


class Bridge(Protocol):
    """What a driver may do.

    Any method may raise :class:`Interrupted` or :class:`OutOfBudget`, save the last five.
    """

    async def say(self, text: str, turn: int = 0) -> None:
        """Text of the agent's."""
        ...

    async def call(self, tool: str, input: JSON, turn: int = 0, reason: str = "") -> ToolResult:
        """Call one of :data:`TOOLS`; where a permission is needed, this waits for it."""
        ...

    async def ask(self, question: str, reason: str = "") -> Decision:
        """Ask the operator something and wait for the answer."""
        ...

    async def claim(self, level: int, text: str = "") -> Verdict | None:
        """Claim a level; the verdict, where the session verifies claims at once."""
        ...

    async def boundary(self) -> list[str]:
        """Between two steps: waits while paused, then delivers the operator's messages."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait, interruptibly."""
        ...

    async def use(self, used: AgentUsed) -> None:
        """Tokens were used."""
        ...

    async def direction(self) -> list[str]:
        """After an interruption: wait for a message or a resume; returns the messages."""
        ...

    def worktree(self) -> Path:
        """The directory in which the target's command runs: the files that are migrated."""
        ...

    async def finish(self, reason: str = "", text: str = "") -> None:
        """The agent ended of its own accord."""
        ...

    def recall(self) -> dict[str, Any]:
        """What :meth:`remember` was last given in this session, also by an earlier process."""
        ...

    def remember(self, memory: dict[str, Any]) -> None:
        """Keep what the driver needs to go on after a restart."""
        ...


class Driver(Protocol):
    """An agent. ``name`` is what ``agent.started`` says."""

    name: str

    def describe(self, memory: dict[str, Any]) -> tuple[str, str]:
        """Model and detail for ``agent.started``."""
        ...

    async def run(self, bridge: Bridge) -> None:
        """Work until finished; a :class:`core.errors.PilotageError` ends as ``agent.failed``."""
        ...
