"""The worktree as the recorder uses it: one change at a time, each with its snapshot."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from core.events import TreeSnapshotted
from core.recorder.journal import Journal
from core.workspace import Workspace

T = TypeVar("T")


class Worktree:
    """Guards a workspace and writes its snapshots to the log."""

    def __init__(self, files: Workspace, journal: Journal) -> None:
        self.files = files
        self._journal = journal
        self.in_use = asyncio.Lock()
        """Held by whoever needs the files to stay as they are, or changes them: a run that was
        asked for at a console must not see the agent's next edit come in half-way."""
        self._lock = asyncio.Lock()
        self.on_snapshot: Callable[[TreeSnapshotted], None] = lambda snapshot: None
        """Told of each snapshot once it is in the log; it must not take time."""

    async def snapshot(self, cause: str, call_id: str = "") -> None:
        """Record the worktree if it differs from the last snapshot.

        Each change of the agent's is recorded right after it. So what is found at any other
        time came from elsewhere, and ``cause`` is then ``outside``.
        """
        async with self._lock:
            await self._snapshot(cause, call_id)

    async def change(self, make: Callable[[], T], cause: str, call_id: str) -> T:
        """Make a change and record it, apart from what somebody else had changed before."""
        async with self.in_use, self._lock:
            await self._snapshot("outside", "")
            try:
                return await asyncio.to_thread(make)
            finally:
                await self._snapshot(cause, call_id)

    async def note_outputs(self) -> None:
        """After a run: what it left is output, and no change of the source."""
        async with self._lock:
            await asyncio.to_thread(self.files.note_outputs)

    async def _snapshot(self, cause: str, call_id: str) -> None:
        body = await asyncio.to_thread(self.files.snapshot, cause, call_id)
        if body is not None:
            await self._journal.emit(body, tree=body.tree)
            self.on_snapshot(body)
