"""Diffs between two trees, as the log stores them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

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


class ChangedFile(NamedTuple):
    """A regular file that differs between two trees; a path or blob is None where there is none."""

    path: str
    old_path: str | None
    old_blob: str | None
    new_blob: str | None


def changed_files(git: Git, old: str, new: str) -> list[ChangedFile]:
    """The regular files that differ between two trees, with the blobs of both versions."""
    if old == new:
        return []
    fields = iter(git(*_DIFF, "--raw", "-z", "--no-abbrev", old, new).split("\0"))
    found = []
    for head in fields:
        if not head.startswith(":"):
            continue
        old_mode, new_mode, old_id, new_id, letter = head[1:].split(" ")
        old_path: str | None = next(fields)
        path = next(fields) if letter[0] in "RC" else old_path or ""
        before = old_id if old_mode.startswith("100") else None
        after = new_id if new_mode.startswith("100") else None
        if before is None:
            old_path = None
        if before != after:
            found.append(ChangedFile(_text(path), old_path and _text(old_path), before, after))
    return found


def blob_texts(git: Git, blobs: Iterable[str], limit: int) -> dict[str, str | None]:
    """The texts of blobs; None for one that is binary or has more than ``limit`` bytes."""
    wanted = sorted(set(blobs))
    texts: dict[str, str | None] = dict.fromkeys(wanted)
    asked = "".join(f"{blob}\n" for blob in wanted).encode()
    sizes = git("cat-file", "--batch-check", input=asked).splitlines() if wanted else []
    small = [s.split() for s in sizes if s.split()[1:2] == ["blob"] and int(s.split()[2]) <= limit]
    if not small:
        return texts
    out = git.raw("cat-file", "--batch", input="".join(f"{s[0]}\n" for s in small).encode())
    at = 0
    for blob, _, size in small:
        start = out.index(b"\n", at) + 1
        data = out[start : start + int(size)]
        at = start + int(size) + 1
        if b"\0" not in data[:8000]:
            texts[blob] = data.decode("utf-8", "replace")
    return texts


def _text(path: str) -> str:
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


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
    return _text(value) if isinstance(value, str) else value
