"""The diff guard at work: tags after each snapshot, and a look at an edit before it is made."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Iterable
from dataclasses import replace

from core import events as ev
from core.errors import PilotageError
from core.events import JSON
from core.guard.change import MAX_TEXT, guard_change, guard_file, guard_patch
from core.guard.policy import Policy, told
from core.guard.tag import Tag
from core.patches import ChangedFile
from core.recorder.journal import Journal
from core.unified_diff import parse_diff
from core.workspace import Workspace
from core.workspace_files import WorkspaceError

MAX_TAGS = 300
"""Tags of one diff that are stored; a diff with more is another project."""

ASKED = ("edit", "write", "patch")
"""Causes of snapshots whose change was looked at before it was made."""

_Key = tuple[str, str, str, str, str]


def _key(tag: Tag) -> _Key:
    """What makes two tags the same one; the line moves with every edit above it."""
    return (tag.path, tag.kind, tag.title, tag.before, tag.after)


class Guarding:
    """The diff guard of one session. ``note`` writes into the recorder's own log."""

    def __init__(
        self,
        journal: Journal,
        files: Workspace,
        policy: Policy,
        note: Callable[[str], None],
        own_edits: bool = False,
    ) -> None:
        """``own_edits``: what is found in the files was made by the operator (driver ``manual``)."""
        self._journal = journal
        self._files = files
        self._policy = policy
        self._note = note
        self._own_edits = own_edits
        self._waiting: list[ev.TreeSnapshotted] = []
        self._task: asyncio.Task[None] | None = None
        self._cache: dict[tuple[str, str | None, str | None, str | None], list[Tag]] = {}
        self._blobs: dict[str, str | None] = {}  # of the tree that was looked at last, by path
        self._known: set[_Key] = set()

    # --- after a snapshot ----------------------------------------------------------------------

    def look(self, snapshot: ev.TreeSnapshotted) -> None:
        """Tag a snapshot's diff, soon and in another thread; nothing waits for it."""
        # Of several that wait only the last counts, as long as all came the same way.
        if self._waiting and self._is_asked(self._waiting[-1]) == self._is_asked(snapshot):
            self._waiting.pop()
        self._waiting.append(snapshot)
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._work())

    def catch_up(self) -> None:
        """After a restart: tag the last snapshot, if nobody has."""
        state = self._journal.state
        if state.tagged is not None:
            tags = (Tag.from_json(t) for t in state.tagged.tags)
            self._known = {_key(t) for t in tags if t is not None}
        last = state.snapshots[-1].body if state.snapshots else None
        if last is not None and last.cause != "baseline":
            if state.tagged is None or state.tagged.tree != last.tree:
                self.look(last)

    async def settled(self, limit_s: float = 10.0) -> None:
        """Wait until what waits is tagged; not for ever, since the recorder wants to end."""
        if self._task is not None and not self._task.done():
            await asyncio.wait({self._task}, timeout=limit_s)

    def _is_asked(self, snapshot: ev.TreeSnapshotted) -> bool:
        return snapshot.cause in ASKED

    async def _work(self) -> None:
        while self._waiting:
            snapshot = self._waiting.pop(0)
            try:
                tags, changed = await asyncio.to_thread(self._tags, snapshot.tree)
                await self._tell(snapshot, tags, changed)
            except PilotageError as err:
                self._note(f"The diff guard could not look at {snapshot.tree[:10]}: {err}")
            except Exception:  # a fault of the guard must cost nobody anything else
                self._note(traceback.format_exc())

    def _tags(self, tree: str) -> tuple[list[Tag], list[str]]:
        """All tags of baseline -> ``tree``, and the paths that have changed since the last look."""
        files = self._files.changed_files(tree)
        new = [f for f in files if f not in self._cache]
        texts = self._files.texts((b for f in new for b in f[2:] if b), MAX_TEXT)
        for file in new:
            before = texts.get(file.old_blob) if file.old_blob else None
            after = texts.get(file.new_blob) if file.new_blob else None
            self._cache[file] = _of_file(file, before, after)
        self._cache = {f: self._cache[f] for f in files}
        blobs = {f.path: f.new_blob for f in files}
        paths = dict.fromkeys([*blobs, *self._blobs])
        changed = [p for p in paths if p not in blobs or blobs[p] != self._blobs.get(p, "")]
        self._blobs = blobs
        return [tag for f in files for tag in self._cache[f]], changed

    async def _tell(
        self, snapshot: ev.TreeSnapshotted, tags: list[Tag], changed: list[str]
    ) -> None:
        fresh = [t for t in tags if _key(t) not in self._known]
        before, self._known = self._known, {_key(t) for t in tags}
        unasked: list[Tag] = []
        if not self._is_asked(snapshot) and not self._own_edits:
            unasked = self._policy.needing(fresh, self._own_paths(changed))
        if not tags and not before and not unasked:
            return
        body = ev.DiffTagged(
            tree=snapshot.tree,
            tags=[t.to_json() for t in tags[:MAX_TAGS]],
            left_out=max(0, len(tags) - MAX_TAGS),
            unasked=[t.to_json() for t in unasked[:MAX_TAGS]],
            cause=snapshot.cause,
            text=_afterwards(unasked, snapshot.cause),
        )
        await self._journal.emit(body, tree=snapshot.tree)

    def _own_paths(self, paths: Iterable[str]) -> list[str]:
        """Paths of the repository as the project knows them."""
        start = f"{self._files.prefix.rstrip('/')}/" if self._files.prefix else ""
        return [p.removeprefix(start) for p in paths]

    # --- before an edit --------------------------------------------------------------------------

    def before(self, tool: str, input: JSON) -> list[Tag]:
        """The tags of an edit that need the operator's word, before it is made; runs in a thread.

        An edit that can't be made has none: the tool itself says why.
        """
        try:
            if tool in ("edit", "write"):
                tags, paths = self._of_edit(tool, input)
            elif tool == "patch":
                tags, paths = self._of_patch(str(input.get("patch", "")))
            else:
                return []
        except (WorkspaceError, OSError):
            return []
        # What the project has not had is the agent's own: its new tests are its own to change.
        tags = [t for t in tags if (self._files.reference_root / t.path).exists()]
        return self._policy.needing(tags, self._own_paths(paths))

    def _of_edit(self, tool: str, input: JSON) -> tuple[list[Tag], list[str]]:
        full = self._files.resolve(str(input.get("path", "")))
        path = str(full.relative_to(self._files.root.resolve()))
        before = self._text(path)
        if tool == "write":
            return guard_change(path, before, str(input.get("content", ""))), [path]
        search, new = str(input.get("search", "")), str(input.get("replace", ""))
        if before is None or not search:
            return [], []
        if "\r\n" in before and "\r\n" not in search:
            search, new = search.replace("\n", "\r\n"), new.replace("\n", "\r\n")
        if before.count(search) != 1:
            return [], []
        return guard_change(path, before, before.replace(search, new)), [path]

    def _of_patch(self, patch: str) -> tuple[list[Tag], list[str]]:
        paths = [p for f in parse_diff(patch) for p in (f.old_path, f.new_path) if p]
        for path in paths:
            self._files.resolve(path)
        # A patch knows its files from the project's directory on, the guard from the repository's.
        tags = [
            replace(t, path=self._from_root(t.path)) for t in guard_patch(patch, self._own_text)
        ]
        return tags, [self._from_root(p) for p in paths]

    def _from_root(self, path: str) -> str:
        return str((self._files.cwd / path).relative_to(self._files.root))

    def _own_text(self, path: str) -> str | None:
        return self._text(self._from_root(path))

    def _text(self, path: str) -> str | None:
        """The text of a file as it is now; None where there is none, or no text."""
        full = self._files.root / path
        if not full.is_file() or full.stat().st_size > 4 * MAX_TEXT:
            return None
        data = full.read_bytes()
        return None if b"\0" in data[:8000] else data.decode("utf-8", "replace")


def _of_file(file: ChangedFile, before: str | None, after: str | None) -> list[Tag]:
    there = (file.old_blob is not None, file.new_blob is not None)
    return guard_file(file.path, file.old_path or file.path, before, after, there)


def _afterwards(tags: list[Tag], cause: str) -> str:
    if not tags:
        return ""
    how = {"shell": "by a shell command", "outside": "from outside"}.get(cause, f"({cause})")
    more = f", and {len(tags) - 1} more" if len(tags) > 1 else ""
    return f"Changed {how}, so nobody was asked: {tags[0].sentence}{more}."


def question(tags: list[Tag]) -> str:
    """What a question says of the change: its first tag, and how many there are."""
    more = f", and {len(tags) - 1} more" if len(tags) > 1 else ""
    return f"It changes what needs your word: {tags[0].sentence}{more}."


def evidence(tags: list[Tag]) -> str:
    """All tags and why they matter, for the detail of a question."""
    whys = dict.fromkeys(tag.why for tag in tags)
    return "\n".join(["The diff guard asks:", told(tags), *whys])
