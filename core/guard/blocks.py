"""Large files: leave out the functions and classes that have nothing to do with a change.

What both versions have word for word says the same in both, so it need not be parsed, except where
something that has changed uses it or is used by it.
"""

from __future__ import annotations

import re
from collections import Counter

LARGE = 1_200
"""Lines from which a file is cut down; smaller ones are parsed whole, in some ten milliseconds."""

_MAX_KEPT = 4_000  # lines of context that are kept beside what has changed
_START = re.compile(r"(?:async\s+def|def|class)\s+(\w+)|@")
_WORD = re.compile(r"\w+")


def cut_down(before: str, after: str) -> tuple[str, str]:
    """Both texts with unconcerned blocks as blank lines, so that line numbers stay."""
    old, new = before.split("\n"), after.split("\n")
    if max(len(old), len(new)) < LARGE:
        return before, after
    sides = (_blocks(old), _blocks(new))
    counts = [Counter(text for _, _, _, text in side) for side in sides]
    changed = {
        name
        for side, other in ((sides[0], counts[1]), (sides[1], counts[0]))
        for name, _, _, text in side
        if not other[text] and name
    }
    concerned = set(changed)
    used = {w for n, _, _, text in sides[1] if n in changed for w in _WORD.findall(text)}
    left = _MAX_KEPT
    for name, start, end, text in sides[1]:
        if not name or name in changed or left <= 0:
            continue
        if name in used or not changed.isdisjoint(_WORD.findall(text)):
            concerned.add(name)
            left -= end - start
    return _kept(old, sides[0], counts[1], concerned), _kept(new, sides[1], counts[0], concerned)


_Block = tuple[str, int, int, str]


def _blocks(lines: list[str]) -> list[_Block]:
    """Name, first and last line (from 0, exclusive), text; the name of other code is ``""``."""
    starts: list[tuple[int, str]] = [(0, "")]
    decorated = -1
    for at, line in enumerate(lines):
        if not line or line[0] in " \t#)]}\r":
            continue
        match = _START.match(line)
        if match is None:
            if starts[-1][1] and decorated < 0:
                starts.append((at, ""))  # code of the module between two functions
        elif line[0] == "@":
            decorated = at if decorated < 0 else decorated
        else:
            starts.append((decorated if decorated >= 0 else at, match[1]))
            decorated = -1
    ends = [start for start, _ in starts[1:]] + [len(lines)]
    return [
        (name, start, end, "\n".join(lines[start:end]).strip())
        for (start, name), end in zip(starts, ends, strict=True)
    ]


def _kept(lines: list[str], blocks: list[_Block], others: Counter[str], concerned: set[str]) -> str:
    out: list[str] = []
    for name, start, end, text in blocks:
        keep = not name or name in concerned or not others[text]
        out += lines[start:end] if keep else [""] * (end - start)
    return "\n".join(out)
