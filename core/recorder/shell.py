"""Shell commands of the agent, once the operator has allowed them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from core.recorder.items import end_and_drain
from core.runs.launcher import Ended, Launcher, Output, RunHandle, RunSpec
from core.workspace import Workspace

KEPT_LINES = 2000
"""Lines of a command's output that are kept, the last ones."""


@dataclass(frozen=True, slots=True)
class ShellResult:
    """How a command ended; ``exit_code`` is null unless it exited by itself."""

    exit_code: int | None
    text: str


class Shell:
    """Runs one command at a time in the worktree, never longer than ``limit_s`` seconds."""

    def __init__(
        self, files: Workspace, session_id: str, limit_s: float, env: Mapping[str, str]
    ) -> None:
        self._files = files
        self._session_id = session_id
        self._limit_s = limit_s
        self._env = env
        self._handle: RunHandle | None = None
        self._count = 0

    async def run(self, command: str) -> ShellResult:
        """Run a command to its end, with everything it started."""
        self._count += 1
        spec = RunSpec(
            run_id=f"{self._session_id}/shell{self._count}",
            command=command,
            cwd=self._files.cwd,
            env=self._env,
            session_id=self._session_id,
            time_limit_s=self._limit_s or None,
        )
        lines: deque[str] = deque(maxlen=KEPT_LINES)
        total = 0
        handle = self._handle = await Launcher().start(spec)
        ended = Ended("cut off")
        try:
            async for item in handle:
                if isinstance(item, Output):
                    lines.extend(item.lines)
                    total += len(item.lines)
                elif isinstance(item, Ended):
                    ended = item
        finally:
            self._handle = None
            # Cancelled, since the recorder ends: the command must not outlive it.
            await end_and_drain(handle)
        left_out = [f"({total - len(lines)} lines before)"] if total > len(lines) else []
        how = f"exit {ended.exit_code}" if ended.exit_code is not None else ended.reason
        if ended.reason == "exited" and ended.exit_code == 0:
            how = "exit 0"
        end = f"({how}{f': {ended.text}' if ended.text else ''})"
        return ShellResult(
            ended.exit_code if ended.reason == "exited" else None,
            "\n".join([*left_out, *lines, end]),
        )

    def stop(self) -> None:
        """Stop the command in progress, if any."""
        if self._handle is not None:
            self._stopping = asyncio.ensure_future(self._handle.stop(2.0))
