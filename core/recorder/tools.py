"""What the tools of an agent do. Every failure is a sentence the agent can act on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from core.agents.base import TOOLS, ToolResult
from core.errors import PilotageError
from core.events import JSON
from core.guard.tag import Tag
from core.recorder.guarding import ASKED, Guarding
from core.recorder.runs import Runs
from core.recorder.shell import Shell
from core.recorder.worktree import Worktree
from core.state_parts import level_name

OUTPUT_LIMIT = 30_000
"""Characters of a tool's output that are kept and given to the agent."""


class Tools:
    """The tools of one session's agent."""

    def __init__(
        self, worktree: Worktree, runs: Runs, shell: Shell, guarding: Guarding | None = None
    ) -> None:
        self._guarding = guarding
        self._worktree = worktree
        self._runs = runs
        self._shell = shell
        self._do: dict[str, Callable[[JSON, str], Awaitable[ToolResult]]] = {
            "read": self._read,
            "search": self._search,
            "edit": self._edit,
            "patch": self._patch,
            "write": self._write,
            "shell": self._run_shell,
            "run": self._run,
            "verify": self._verify,
        }
        assert set(self._do) == set(TOOLS)

    async def execute(self, tool: str, input: JSON, call_id: str) -> ToolResult:
        """Use a tool. What goes wrong is in the result; nothing is raised for it."""
        do = self._do.get(tool)
        if do is None:
            return ToolResult(False, f"There is no tool {tool!r}. Tools: {', '.join(TOOLS)}.")
        try:
            result = await do(input, call_id)
        except PilotageError as err:
            return ToolResult(False, str(err))
        if len(result.output) > OUTPUT_LIMIT:
            cut = len(result.output) - OUTPUT_LIMIT
            text = f"{result.output[:OUTPUT_LIMIT]}\n({cut} more characters were left out)"
            result = ToolResult(result.ok, text, result.facts)
        return result

    async def needing_word(self, tool: str, input: JSON) -> list[Tag]:
        """What of an edit the operator has to allow first, by the diff guard."""
        if self._guarding is None or tool not in ASKED:
            return []
        return await asyncio.to_thread(self._guarding.before, tool, input)

    @property
    def directory(self) -> Path:
        """Where the target's command runs."""
        return self._worktree.files.cwd

    async def stop(self) -> None:
        """End the call in progress in good order: its run or command is stopped."""
        self._shell.stop()
        self._runs.stop("The agent was interrupted.", agents_only=True)

    # --- files ------------------------------------------------------------------------------

    async def _read(self, input: JSON, call_id: str) -> ToolResult:
        path = _text(input, "path")
        return ToolResult(True, await asyncio.to_thread(self._worktree.files.read, path))

    async def _search(self, input: JSON, call_id: str) -> ToolResult:
        pattern = _text(input, "pattern")
        found = await asyncio.to_thread(self._worktree.files.search, pattern)
        return ToolResult(True, "\n".join(found) or f"Nothing matches {pattern!r}.")

    async def _edit(self, input: JSON, call_id: str) -> ToolResult:
        path, search, new = (_text(input, k) for k in ("path", "search", "replace"))
        await self._worktree.change(
            lambda: self._worktree.files.edit(path, search, new), "edit", call_id
        )
        return ToolResult(True, f"Edited {path}.")

    async def _write(self, input: JSON, call_id: str) -> ToolResult:
        path, content = _text(input, "path"), _text(input, "content")
        await self._worktree.change(
            lambda: self._worktree.files.write(path, content), "write", call_id
        )
        return ToolResult(True, f"Wrote {path}.")

    async def _patch(self, input: JSON, call_id: str) -> ToolResult:
        patch = _text(input, "patch")
        paths = await self._worktree.change(
            lambda: self._worktree.files.apply_patch(patch), "patch", call_id
        )
        return ToolResult(True, f"Patched {', '.join(paths)}.")

    # --- commands -----------------------------------------------------------------------------

    async def _run_shell(self, input: JSON, call_id: str) -> ToolResult:
        command = _text(input, "command")
        async with self._worktree.in_use:
            await self._worktree.snapshot("outside")
            done = await self._shell.run(command)
            await self._worktree.snapshot("shell", call_id)
        return ToolResult(done.exit_code == 0, done.text, {"exit_code": done.exit_code})

    async def _run(self, input: JSON, call_id: str) -> ToolResult:
        run = await self._runs.attempt(
            str(input.get("command", "")), stop_on=str(input.get("stop_on", "")), by="agent"
        )
        end = run.ended
        assert end is not None
        findings = self._runs.findings_of(run.run_id)
        lines = [self._runs.describe(run)]
        lines += [f"{f.category} {f.opened.title}: {f.opened.next_step}" for f in findings]
        lines += ["", "The end of its output:", *(line.text for line in run.lines[-40:])]
        facts: JSON = {
            "run_id": run.run_id,
            "exit_code": end.exit_code,
            "reason": end.reason,
            "findings": [f.category for f in findings],
            "titles": {f.category: f.opened.title for f in reversed(findings)},
            "why": findings[0].opened.title if findings else self._runs.describe(run),
        }
        return ToolResult(end.exit_code == 0, "\n".join(lines), facts)

    async def _verify(self, input: JSON, call_id: str) -> ToolResult:
        verdict = await self._runs.verify("agent")
        name = level_name(verdict.level)
        return ToolResult(
            verdict.level >= 0,
            f"Measured: {name}." + (f" {verdict.why}" if verdict.why else ""),
            {"level": verdict.level, "level_name": name, "why": verdict.why},
        )


def _text(input: JSON, key: str) -> str:
    value = input.get(key)
    if not isinstance(value, str):
        raise PilotageError(f"The tool needs {key!r} as a text.")
    return value
