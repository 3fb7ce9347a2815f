"""The output of a run as detectors see it: lines, the numbers in them, how it ended.

Made of text alone, so that a saved log and a live run look the same. Everything is computed
once, when the first detector asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from re import Pattern

from core.detectors.output_ending import Ending, ending_of
from core.detectors.output_fields import Field, fields
from core.detectors.output_xla import XlaFacts

#: Lines of an excerpt: somebody chose them, so that what they show twice is what it is about.
EXCERPT = 12
#: Characters of a log that are read. Of one with more all lines are cut, to this many at least:
#: they are long by intent or by mistake, and every pattern takes time on every character.
MAX_TEXT, SHORTEST = 3_000_000, 160


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its number in the file (from 1), its text, and its stream where known."""

    no: int
    text: str
    stream: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A line with its numbers and the place in the training that it speaks of."""

    line: Line
    fields: tuple[Field, ...]
    step: float | None = None
    epoch: float | None = None
    rank: str = ""
    evaluation: bool = False

    @property
    def text(self) -> str:
        """The line's text."""
        return self.line.text


@dataclass(frozen=True, slots=True)
class Reading:
    """A number of one kind: ``row.line.no`` is where it stands."""

    row: Row
    field: Field

    @property
    def value(self) -> float:
        """The number itself."""
        return self.field.value


class LogLook:
    """Lines of output, in order; in a long log not all of them, but each with its number."""

    def __init__(
        self, lines: Sequence[Line], cwd: str = "", chars: int = MAX_TEXT, running: bool = False
    ) -> None:
        size = sum(len(line.text) for line in lines)
        if size > chars and lines:
            cut = max(SHORTEST, chars // len(lines))
            lines = [Line(x.no, x.text[:cut], x.stream) for x in lines]
        self.lines = lines
        self.cwd = cwd
        #: Whether more lines are to come: what the last ones show may be over soon.
        self.running = running

    @cached_property
    def excerpt(self) -> bool:
        """Whether it is a few lines that were picked from a log, and no whole one."""
        return not self.running and sum(bool(x.text.strip()) for x in self.lines) <= EXCERPT

    @cached_property
    def rows(self) -> list[Row]:
        """The lines that hold a number, with what they say."""
        rows = []
        for line in self.lines:
            found = fields(line.text)
            if found:
                rows.append(Row(line, found, *place(line.text)))
        return rows

    @cached_property
    def ending(self) -> Ending:
        """How the log ends, as far as its text says."""
        return ending_of([line.text for line in self.lines], self.cwd)

    @cached_property
    def xla(self) -> XlaFacts:
        """What XLA's own reports, counters and profiler lines say."""
        return XlaFacts.read((line.no, line.text) for line in self.lines)

    @cached_property
    def by_key(self) -> dict[str, list[Reading]]:
        """All numbers by their key, in order: a log has many numbers and few keys."""
        found: dict[str, list[Reading]] = {}
        for row in self.rows:
            for f in row.fields:
                if f.key or f.unit:
                    found.setdefault(f.key, []).append(Reading(row, f))
        return found

    def readings(
        self, key: Callable[[str], bool], also: Callable[[Row, Field], bool] | None = None
    ) -> list[Reading]:
        """The numbers whose key is wanted, and for which ``also`` holds, in order of their lines.

        ``key`` is asked once for each key of the log, ``also`` for each number.
        """
        found = [r for k, readings in self.by_key.items() if key(k) for r in readings]
        if also is not None:
            found = [r for r in found if also(r.row, r.field)]
        return sorted(found, key=lambda r: (r.row.line.no, r.field.pos))

    @cached_property
    def _lower(self) -> list[str]:
        return [line.text.lower() for line in self.lines]

    @cached_property
    def _all(self) -> str:
        return "\n".join(self._lower)

    def having(self, *words: str) -> list[Line]:
        """The lines that hold one of the words, given in lower case.

        Finding a word is a hundred times as quick as trying a pattern, and most words are in no
        line at all.
        """
        present = [w for w in words if w in self._all]
        if not present:
            return []
        if len(present) == 1:
            word = present[0]
            return [x for x, low in zip(self.lines, self._lower, strict=True) if word in low]
        return [
            x
            for x, low in zip(self.lines, self._lower, strict=True)
            if any(w in low for w in present)
        ]

    def matching(self, pattern: Pattern[str], limit: int, *words: str) -> list[Line]:
        """The first few lines with one of the words in which a compiled pattern is found."""
        found = []
        for line in self.having(*words):
            if pattern.search(line.text):
                found.append(line)
                if len(found) == limit:
                    break
        return found


_STEP = re.compile(
    r"^(?:(?:global|train|training|optimizer|current|at|resumed at|total|num|the)? ?)*"
    r"(?:step|steps|iter|iters|iteration|it|itr|update|updates|num updates|batch|i)$"
)
_EPOCH = re.compile(r"(?:^| )(?:epoch|ep|epochs)$")
_RANK = re.compile(
    r"\b(?:rank|replica|ordinal|worker|process|proc|core|host|shard|local_rank|device)"
    r"[ _]?(?:id|index)?\s*[:=#]?\s*(\d{1,5})\b(?![.%])"
    r"|\bxla:(?:\d+/)?(\d+)|\b(?:TPU|tpu):(\d+)|^\[?default(\d+)\]?:|^\[(\d{1,4})\]\s*[:\w{]",
    re.IGNORECASE,
)
_EVAL = re.compile(r"\b(?:val|valid|validation|eval|evaluation|evaluate|test|dev|holdout)\b|(?<![a-z])(?:eval|val|test|valid)_", re.I)  # fmt: skip
_TRAIN = re.compile(r"\btrain(?:ing)?\b|train_", re.IGNORECASE)


@lru_cache(maxsize=8192)
def place(text: str) -> tuple[float | None, float | None, str, bool]:
    """Step, epoch, rank and whether a line speaks of an evaluation."""
    step = epoch = None
    for f in fields(text):
        if step is None and (_STEP.match(f.key) or f.unit in ("batches", "steps", "iters")):
            step = f.value
        elif epoch is None and _EPOCH.search(f.key):
            epoch = f.value
    rank = _RANK.search(text)
    # "valid | loss 0.3 acc 0.9" is an evaluation; of "loss 0.3 val_acc 0.9" one number is of one.
    first = next((f for f in fields(text) if is_loss(f.key) or is_score(f.key)), None)
    head = text[: max(0, first.pos - len(first.key) - 2)] if first else text
    evaluation = bool(_EVAL.search(head)) and not _TRAIN.search(text)
    return step, epoch, next((g for g in rank.groups() if g), "") if rank else "", evaluation


#: Words of a key, by kind. A key is lower case with spaces for underscores.
_LOSS = re.compile(
    r"loss\b|\bloss ?val(?:ue)?\b|\bnll\b|\bcross entropy\b|\bperplexity\b|\bppl\b|\bcost\b"
)
_NOT_LOSS = re.compile(
    r"scale|weight|coef|best|min|patience|lowest|initial|target|expected|chance|delta|diff|"
    r"reference|baseline|improve|from|to$|was|threshold|tol"
)
_SCORE = re.compile(
    r"\bacc(?:uracy)?\d?\b|\btop ?-?1\b|acc@|\bf1\b|\bbleu\b|\brouge|\bauc\b|\bmiou\b|\bmap\b|"
    r"\bexact match\b|\bem\b|\bdice\b|\bprec@1|\bmcc\b|\bpearson|\bspearman|\bscore\b|\baccuracy|\b(?:p|hits?|recall|precision|r|mrr|map|ndcg) ?@ ?\d+|\b(?:ndcg|mrr)\b"
)
_KEY_EVAL = re.compile(r"\b(?:val|valid|validation|eval|evaluation|test|dev)\b")
_KEY_TRAIN = re.compile(r"\btrain(?:ing)?\b")
_GRAD_NORM = re.compile(r"\b(?:grad(?:ient)?s? ?-?norm|gnorm|total ?norm|\|grad\|)")


#: Keys that stand for a loss by themselves, in lines such as "epoch 1: train 2.31, val 2.28".
BARE_LOSS = frozenset(("train", "val", "valid"))


def is_loss(key: str) -> bool:
    """Whether a key names a loss."""
    return key in BARE_LOSS or (bool(_LOSS.search(key)) and not _NOT_LOSS.search(key))


def is_score(key: str) -> bool:
    """Whether a key names a metric of quality, such as an accuracy."""
    return bool(_SCORE.search(key)) and not _NOT_LOSS.search(key.replace("weighted", ""))


def is_grad_norm(key: str) -> bool:
    """Whether a key names the norm of the gradient."""
    return bool(_GRAD_NORM.search(key))


def is_eval(row: Row, field: Field) -> bool:
    """Whether a number was measured on held-out data: by its key, else by its line."""
    if _KEY_EVAL.search(field.key):
        return True
    return row.evaluation and not _KEY_TRAIN.search(field.key)


def in_order(lines: Iterable[Line]) -> list[Line]:
    """Lines by their numbers."""
    return sorted(lines, key=lambda line: line.no)


def quote(rows: Iterable[Row | Line | Reading], limit: int = 5) -> tuple[list[str], tuple[int, ...]]:  # fmt: skip
    """Texts and line numbers of the lines named, each once, the first few: for evidence."""
    seen: dict[int, str] = {}
    for item in rows:
        line = item.row.line if isinstance(item, Reading) else item if isinstance(item, Line) else item.line  # fmt: skip
        if line.no not in seen:
            seen[line.no] = line.text.strip()[:400]
        if len(seen) == limit:
            break
    return list(seen.values()), tuple(seen)
