"""Diffs between two trees, as the log stores them."""

from __future__ import annotations

from core.body import JSON
from core.git import Git

PATCH_LIMIT = 400_000
"""Characters of a stored patch. A migration's diff is a few thousand; this one is for accidents."""

_DIFF = ("diff-tree", "-r", "-M", "--no-ext-diff", "--no-textconv", "--no-color")

_STATUS = {"A": "added", "D": "deleted", "M": "modified", "R": "renamed", "T": "type changed"}


def patch_between(git: Git, old: str, new: str) -> tuple[str, str]:
    """The unified diff of two trees, and a sentence when it was cut.

    Bytes that are no UTF-8 are replaced; binary files are named without their content.
    """
    if old == new:
        return "", ""
    text = git.raw(*_DIFF, "-p", old, new).decode("utf-8", "replace")
    if len(text) <= PATCH_LIMIT:
        return text, ""
    kept = text[:PATCH_LIMIT]
    kept = kept[: kept.rfind("\n") + 1]
    lines = text.count("\n") - kept.count("\n")
    return kept, f"The diff is cut after {len(kept)} characters; {lines} more lines are in git."


def file_list(git: Git, old: str, new: str) -> list[JSON]:
    """``{path, status, added, removed}`` of each file that differs; ``old_path`` and ``mode`` too.

    ``status`` is ``added``, ``deleted``, ``modified``, ``renamed``, ``type changed`` or
    ``mode changed``; the counts of a binary file are null.
    """
    if old == new:
        return []
    counts = _counts(git, old, new)
    fields = iter(git(*_DIFF, "--raw", "-z", old, new).split("\0"))
    files: list[JSON] = []
    for head in fields:
        if not head.startswith(":"):
            continue
        old_mode, new_mode, old_id, new_id, letter = head[1:].split(" ")
        path = next(fields)
        entry: JSON = {"status": _STATUS.get(letter[0], "modified")}
        if letter[0] in "RC":
            entry["old_path"], path = path, next(fields)
        added, removed = counts.get(path, (None, None))
        if letter[0] == "M" and old_mode != new_mode:
            entry["mode"] = f"{old_mode[-3:]} -> {new_mode[-3:]}"
            if old_id == new_id:
                entry["status"] = "mode changed"
        files.append({"path": path, "added": added, "removed": removed, **entry})
    return [{k: _clean(v) for k, v in f.items()} for f in files]


def _counts(git: Git, old: str, new: str) -> dict[str, tuple[int | None, int | None]]:
    counts: dict[str, tuple[int | None, int | None]] = {}
    fields = iter(git(*_DIFF, "--numstat", "-z", old, new).split("\0"))
    for head in fields:
        if head.count("\t") < 2:
            continue
        added, removed, path = head.split("\t", 2)
        if not path:  # a rename: old and new path follow
            next(fields)
            path = next(fields)
        counts[path] = (None, None) if added == "-" else (int(added), int(removed))
    return counts


def _clean(value: object) -> object:
    """A path that is no UTF-8 can't be stored as it is."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return value
