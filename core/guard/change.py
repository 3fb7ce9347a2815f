"""Two versions of a file in, tags out."""

from __future__ import annotations

import re
from collections.abc import Callable

from core.guard.blocks import cut_down
from core.guard.bodies import METRIC_FILE, TEST_FILE
from core.guard.calls import is_evaluation
from core.guard.compare import compare
from core.guard.kinds import KINDS
from core.guard.lines import line_facts
from core.guard.plain import config_facts, is_config
from core.guard.statements import collect
from core.guard.tag import Facts, Tag
from core.guard.values import Values
from core.risk.module import Module, Unreadable, notebook_code
from core.text import clean
from core.unified_diff import DiffFile, parse_diff

MAX_TEXT = 2_000_000
"""Characters of a file that are looked at; what is larger is data."""

MAX_TAGS = 200
"""Tags of one file; a change that has more is another file."""

_DATA_FILE = re.compile(r"\.(json|jsonl|csv|tsv|txt|npz|npy|pt|parquet|arrow|pkl|h5|xml|conll|gz)$")

Read = Callable[[str], "str | None"]


def guard_change(path: str, before: str | None, after: str | None) -> list[Tag]:
    """The tags of one file's change; None is a version that is not there, or is binary.

    Never raises for what is in the texts: what is no Python of this Python's is compared line by
    line, and its tags are guesses that say so.
    """
    if before == after:
        return []
    tags = _guard(path, before, after)
    return tags[:MAX_TAGS]


def guard_file(
    path: str,
    old_path: str,
    before: str | None,
    after: str | None,
    there: tuple[bool, bool],
) -> list[Tag]:
    """As :func:`guard_change`, for a file that may have moved, or whose versions are no texts.

    ``there`` says of both versions whether they exist: one that exists and is None is binary or too
    large to be looked at.
    """
    tags = []
    if all(there) and path != old_path and _moved_out(old_path, path):
        why = KINDS["tests"].why
        tags.append(
            Tag("tests", f"a test file moved from {clean(old_path)}", clean(path), 1, why=why)
        )
    if (there[0] and before is None) or (there[1] and after is None):
        return tags + _by_path(path, "" if there[0] else None, "" if there[1] else None)
    return tags + guard_change(path, before, after)


def _moved_out(old_path: str, path: str) -> bool:
    return bool(TEST_FILE.search(old_path.lower())) and not TEST_FILE.search(path.lower())


def _guard(path: str, before: str | None, after: str | None) -> list[Tag]:
    special = _by_path(path, before, after)
    if before is None or after is None:
        # A new file changes nothing that was there; what it does with the old one is seen there.
        return special
    if max(len(before), len(after)) > MAX_TEXT:
        return special
    lower = path.lower()
    if lower.endswith((".py", ".pyi", ".ipynb")):
        return _python(path, before, after) or special
    if is_config(path):
        return compare(path, config_facts(path, before), config_facts(path, after)) or special
    return special


def _by_path(path: str, before: str | None, after: str | None) -> list[Tag]:
    """Tags for what a file is, where its content is no text that is understood, or it is gone."""
    lower = path.lower()
    title, kind = "", ""
    if TEST_FILE.search(lower):
        if after is None and before is not None:
            title, kind = "a test file is gone", "tests"
        elif before is None:
            return []
        elif not lower.endswith(".py"):
            title, kind = "a file of the tests changed", "tests"
    elif METRIC_FILE.search(lower) and after is None and before is not None:
        title, kind = "metric code is gone", "metric"
    elif _DATA_FILE.search(lower) and not lower.endswith("requirements.txt"):
        parts = lower.replace("/", " / ").replace("-", "_")
        if is_evaluation(parts) or any(
            is_evaluation(p) for p in lower.rsplit(".", 1)[0].split("/")
        ):
            title, kind = "evaluation data changed", "evaluation data"
    if not title:
        return []
    side = "old" if after is None else "new"
    why = KINDS[kind].why
    return [Tag(kind, title, clean(path), 1, sure=True, why=why, category="", side=side)]


def _python(path: str, before: str, after: str) -> list[Tag]:
    """By syntax tree; line by line where one version has none."""
    guess = ""
    try:
        try:
            old, new = (_facts(path, text) for text in cut_down(before, after))
        except Unreadable:  # a text over several lines may have looked like a function
            old, new = _facts(path, before), _facts(path, after)
    except Unreadable as err:
        guess = f"The file {err}, so its lines were compared."
    except (RecursionError, MemoryError):
        guess = "The file is nested too deeply to be read, so its lines were compared."
    if guess:
        old, new = line_facts(path, before), line_facts(path, after)
    tags = compare(path, old, new)
    if guess:
        tags = [_unsure(tag, guess) for tag in tags]
    return tags


def _facts(path: str, text: str) -> Facts:
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if path.lower().endswith(".ipynb"):
        text = "\n".join(source for _, source in notebook_code(text))
    return collect(Values(Module(path, text)))


def _unsure(tag: Tag, why: str) -> Tag:
    return Tag(
        tag.kind, tag.title, tag.path, tag.line, tag.before, tag.after, False, f"{tag.why} {why}",
        tag.category, tag.side,
    )  # fmt: skip


def guard_patch(patch: str, read: Read | None = None) -> list[Tag]:
    """The tags of a unified diff.

    ``read`` gives the text of a file before the patch (None: there is none); the patch is applied
    to it here. Without it, or where a hunk does not fit, the lines of the hunks are compared, as a guess.
    """
    tags: list[Tag] = []
    for file in parse_diff(patch):
        if file.binary:
            there = (file.old_path is not None, file.new_path is not None)
            tags += guard_file(file.path, file.old_path or file.path, None, None, there)
            continue
        if file.old_path and file.new_path and _moved_out(file.old_path, file.new_path):
            title = f"a test file moved from {clean(file.old_path)}"
            tags.append(Tag("tests", title, clean(file.path), 1, why=KINDS["tests"].why))
        before = after = None
        fits = False
        if file.old_path is not None and read is not None:
            before = read(file.old_path)
            after = None if before is None else _applied(before, file)
            fits = after is not None
        if file.new_path is None and before is not None:
            tags += guard_change(file.path, before, None)
        elif fits:
            tags += guard_change(file.path, before, after)
        elif file.old_path is None:
            tags += guard_change(file.path, None, "")
        else:
            tags += _by_hunks(file)
    return tags


def _applied(text: str, file: DiffFile) -> str | None:
    """The text with the hunks of a file put in; None where a line is not what the diff says."""
    lines = text.split("\n")
    out: list[str] = []
    at = 0
    for hunk in file.hunks:
        start = max(0, hunk.old_start - 1) if hunk.old_count else hunk.old_start
        if start < at or start > len(lines):
            return None
        out += lines[at:start]
        at = start
        for line in hunk.lines:
            if line.sign != "+":
                if at >= len(lines) or lines[at].rstrip("\r") != line.text.rstrip("\r"):
                    return None
                at += 1
            if line.sign != "-":
                out.append(line.text)
    return "\n".join(out + lines[at:])


def _by_hunks(file: DiffFile) -> list[Tag]:
    """Lines only: what stands around them is not known."""
    sides: dict[str, list[str]] = {"-": [], "+": []}
    numbers: dict[str, list[int]] = {"-": [], "+": []}
    for hunk in file.hunks:
        for line in hunk.lines:
            if line.sign in sides:
                sides[line.sign].append(line.text)
                numbers[line.sign].append(line.new or line.old or 1)
    facts = {}
    for sign, lines in sides.items():
        text = "\n".join(lines)
        found = (
            config_facts(file.path, text) if is_config(file.path) else line_facts(file.path, text)
        )
        for fact in found.facts:
            if 0 < fact.line <= len(numbers[sign]):
                fact.line = numbers[sign][fact.line - 1]
        facts[sign] = found
    why = "Only the lines of the diff are known, not the file."
    return [_unsure(t, why) for t in compare(file.path, facts["-"], facts["+"])] or _by_path(
        file.path, "", ""
    )
