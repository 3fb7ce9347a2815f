"""Two versions' facts against each other: what is new, gone or changed becomes a tag."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

from core.guard.kinds import KINDS
from core.guard.tag import MAX_VALUE, Arg, Fact, Facts, Tag
from core.guard.values import common, nameless, plain
from core.text import clean

_CODE = re.compile(
    r"\d+(?:\.\d+)?|[-+*/%@<>=!&|]+|\b(?:max|min|mean|argmax|argmin|topk|dim|not|and|or)\b"
)
_NAME = re.compile(r"\b(?!(?:max|min|sum|mean|argmax|argmin|topk|dim|not|and|or)\b)[A-Za-z_]\w*")
_MAX_PAIRS = 40_000  # comparisons in one group; beyond, facts are paired in their order
_WORDS = {"gone": "removed", "new": "added"}


def compare(path: str, old: Facts, new: Facts) -> list[Tag]:
    """The tags of one file, by line."""
    sides = _Sides(path, old, new)
    groups: dict[str, tuple[list[Fact], list[Fact]]] = defaultdict(lambda: ([], []))
    for fact in old.facts:
        groups[fact.group][0].append(fact)
    for fact in new.facts:
        groups[fact.group][1].append(fact)
    tags: list[Tag] = []
    for before, after in groups.values():
        tags += sides.group(before, after)
    return sides.unique(tags)


class _Sides:
    def __init__(self, path: str, old: Facts, new: Facts) -> None:
        self._path = clean(path)
        self._shared = old.names & new.names
        self._bound = (old.bound - new.names, new.bound - old.names)
        self._old_lines, self._new_lines = set(old.lines), set(new.lines)
        spmd = {"use_spmd", ".use_spmd"}
        self._spmd = bool(spmd & new.names) and not spmd & old.names
        self._lines = (old.lines, new.lines)

    def group(self, before: list[Fact], after: list[Fact]) -> list[Tag]:
        """The tags of facts that can be compared with each other."""
        before, after = self._without_alike(before, after)
        pairs, gone, come = self._paired(before, after)
        tags = [tag for old, new in pairs for tag in self._changed(old, new)]
        tags += [tag for fact in gone if (tag := self._present(fact, "gone"))]
        tags += [tag for fact in come if (tag := self._present(fact, "new"))]
        return tags

    def _text(self, text: str, side: int) -> str:
        return common(text, self._shared, self._bound[side])

    def _key(self, fact: Fact, side: int, with_scope: bool) -> tuple[str, ...]:
        parts = [f"{a}={self._text(v.text, side)}" for a, v in sorted(fact.args.items())]
        if with_scope or fact.presence == "quiet":
            parts.append(self._text(fact.owner, side))
        if with_scope:
            parts.append(fact.scope)
        return tuple(parts)

    def _without_alike(
        self, before: list[Fact], after: list[Fact]
    ) -> tuple[list[Fact], list[Fact]]:
        """Leave out what both versions have, wherever it stands; first in the same function."""
        for with_scope in (True, False):
            left: dict[tuple[str, ...], list[Fact]] = defaultdict(list)
            for fact in before:
                left[self._key(fact, 0, with_scope)].append(fact)
            kept = []
            for fact in after:
                same = left.get(self._key(fact, 1, with_scope))
                if same:
                    same.pop(0)
                else:
                    kept.append(fact)
            before = sorted((f for rest in left.values() for f in rest), key=lambda f: f.line)
            after = kept
        return before, after

    def _paired(
        self, before: list[Fact], after: list[Fact]
    ) -> tuple[list[tuple[Fact, Fact]], list[Fact], list[Fact]]:
        """The most alike first; facts that only tell of a change are paired by what they belong to."""
        if len(before) * len(after) > _MAX_PAIRS:
            count = min(len(before), len(after))
            pairs = list(zip(before, after, strict=False))
            return pairs, before[count:], after[count:]
        scored = []
        for i, old in enumerate(before):
            for j, new in enumerate(after):
                if (score := self._alike(old, new)) > 0:
                    scored.append((-score, abs(i - j), i, j))
        taken: tuple[set[int], set[int]] = (set(), set())
        pairs = []
        for _, _, i, j in sorted(scored):
            if i not in taken[0] and j not in taken[1]:
                taken[0].add(i)
                taken[1].add(j)
                pairs.append((before[i], after[j]))
        gone = [f for i, f in enumerate(before) if i not in taken[0]]
        come = [f for j, f in enumerate(after) if j not in taken[1]]
        return pairs, gone, come

    def _alike(self, old: Fact, new: Fact) -> float:
        same_owner = self._text(old.owner, 0) == self._text(new.owner, 1)
        if old.presence == "quiet" and not same_owner:
            return 0.0
        if old.group.startswith("body:") and not same_owner and old.scope != new.scope:
            return 0.0
        names = old.args.keys() | new.args.keys()
        same = sum(self._same(old.args.get(a), new.args.get(a)) for a in names)
        score = 1.0 + 3.0 * (same_owner and bool(old.owner)) + 2.0 * (old.scope == new.scope)
        score += 2.0 * same / max(1, len(names))
        if old.group in ("transform", "layer", "init", "norm layer", "metric call"):
            # Another class is another thing, unless it stands for the same variable.
            if not self._same(old.args.get("class"), new.args.get("class")):
                return score - 1.0 if same_owner and old.owner else 0.0
        return score

    def _same(self, old: Arg | None, new: Arg | None) -> bool:
        if old is None or new is None:
            return old is new
        return self._text(old.text, 0) == self._text(new.text, 1)

    def _changed(self, old: Fact, new: Fact) -> list[Tag]:
        tags = []
        for arg in dict.fromkeys([*new.args, *old.args]):
            one, other = old.args.get(arg), new.args.get(arg)
            if self._same(one, other):
                continue
            kind = (other or one or Arg("", "")).kind
            if one is not None and one.kind == "masks":
                kind = "masks"  # a mask that is gone
            before, after = one.text if one else "", other.text if other else ""
            sure = (one is None or one.sure) and (other is None or other.sure)
            why = KINDS[kind].why
            if nameless(before) == nameless(after):
                sure, why = False, f"{why} Only a name differs, which may mean the same."
            elif old.group.startswith("body:"):
                sure = sure and _computes_otherwise(self._text(before, 0), self._text(after, 1))
                if not sure:
                    why = f"{why} It is written otherwise, and may mean the same."
            elif self._spmd and kind in _PER_PROCESS:
                sure, why = False, f"{why} Under SPMD one process has what several had."
            elif kind == "dtype" and _half_to_half(before, after):
                sure, why = False, f"{why} A TPU has bf16 in place of fp16."
            label = new.label if arg in _PLAIN else f"{new.label} {arg}"
            tags.append(
                self._tag(kind, f"{label} changed", new.line, "new", before, after, sure, why)
            )
        return tags

    def _present(self, fact: Fact, how: str) -> Tag | None:
        if fact.presence == "quiet":
            return None
        sure = fact.presence == "sure" or (fact.presence == "gone" and how == "gone")
        shown = next((a.text for n, a in fact.args.items() if n not in ("class", "of")), "")
        shown = shown or next((a.text for a in fact.args.values()), "")
        before, after = (shown, "") if how == "gone" else ("", shown)
        line, side = fact.line, "new" if how == "new" else "old"
        why = KINDS[fact.kind].why
        if self._spmd and fact.kind in _PER_PROCESS and fact.group != "set_epoch":
            sure = False
        if not sure:
            why += " It may be what the move to another device needs."
        return self._tag(
            fact.kind, f"{fact.label} {_WORDS[how]}", line, side, before, after, sure, why
        )

    def _tag(
        self,
        kind: str,
        title: str,
        line: int,
        side: str,
        before: str,
        after: str,
        sure: bool,
        why: str,
    ) -> Tag:
        return Tag(
            kind,
            _shown(title),
            self._path,
            line,
            _shown(before),
            _shown(after),
            sure,
            why,
            KINDS[kind].category,
            side,
        )

    def unique(self, tags: list[Tag]) -> list[Tag]:
        """One tag a change: of several that say the same, the one on a line that has changed."""
        best: dict[tuple[str, str, str], Tag] = {}
        for tag in sorted(tags, key=lambda t: (not self._on_changed_line(t), not t.sure, t.line)):
            change = (
                (tag.before, tag.after) if tag.before and tag.after else (tag.title, str(tag.line))
            )
            best.setdefault((tag.kind, *change), tag)
        return sorted(best.values(), key=lambda t: (t.line, t.kind, t.title))

    def _on_changed_line(self, tag: Tag) -> bool:
        lines = self._lines[tag.side == "new"]
        text = lines[tag.line - 1] if 0 < tag.line <= len(lines) else ""
        return text not in (self._old_lines if tag.side == "new" else self._new_lines)


_PER_PROCESS = (
    "reduce",
    "sampler",
    "batch size",
    "shuffle",
    "evaluation data",
    "seed",
)
_PLAIN = (
    "value",
    "place",
    "when",
    "form",
    "code",
    "class",
    "length",
    "by",
    "slice",
    "test",
    "errors",
)


def _shown(text: str) -> str:
    text = clean(" ".join(plain(text).split()))
    return text if len(text) <= MAX_VALUE else text[: MAX_VALUE - 1] + "…"


def _computes_otherwise(before: str, after: str) -> bool:
    """Whether a statement has other numbers or operators, and else the same names or fewer or more.

    Where names went and others came it was written anew, which says nothing of what it computes.
    """
    before, after = plain(before), plain(after)
    if sorted(_CODE.findall(before)) == sorted(_CODE.findall(after)):
        return False
    old, new = Counter(_NAME.findall(before)), Counter(_NAME.findall(after))
    return not (old - new) or not (new - old)


def _half_to_half(before: str, after: str) -> bool:
    return "float16" in before and "bfloat16" not in before and "bfloat16" in after
