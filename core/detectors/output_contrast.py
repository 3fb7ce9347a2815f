"""A few lines that set two sides beside each other: the same number, of two precisions, two numbers
of chips, before and after a load, with and without a read.

Whoever quotes two sides in a few lines says that they should be alike. So only excerpts are read,
and what is found is suspected.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from dataclasses import dataclass

from core.detectors.base import OutputDetector, Sighting, detector
from core.detectors.output_fields import Field, fields
from core.detectors.output_look import Line, LogLook, is_grad_norm, is_loss, is_score, quote
from core.detectors.output_replicas import chips

_HELD_OUT = re.compile(r"val|test|eval|dev\b", re.IGNORECASE)
#: Longest line that is read, and numbers of it.
LINE_CHARS, NUMBERS = 600, 24

#: Words that name a side, by what the sides are: (what, first side, second side).
_SIDES: tuple[tuple[str, re.Pattern[str], re.Pattern[str]], ...] = tuple(
    (name, re.compile(a, re.IGNORECASE), re.compile(b, re.IGNORECASE))
    for name, a, b in (
        ("device", r"\b(?:cpu|host|gpu|nvidia|eager|cuda|v100|a100|h100|p100|t4)\b", r"\b(?:tpu|xla|torch_xla|neuron|trn1|trainium)\b"),
        ("precision", r"\b(?:float32|fp32|f32|full precision)\b", r"\b(?:bf16|bfloat16|fp16|float16|XLA_USE_BF16)\b|XLA_USE_BF16"),
        ("load", r"\b(?:before|at|when) (?:sav|load|reload|restor|resum|restart)\w*|\bpre-?(?:save|load)", r"\b(?:after (?:re)?(?:load|stor|sum|start)\w*|after (?:re)?sav\w*|(?:re)?loaded|restored|resumed)\b"),
        ("move", r"\b(?:count )?before (?:the )?(?:mov|\.?to\b)\w*|\bcount before\b|\bcpu\b|\bhost\b", r"\bafter (?:the )?(?:mov|\.?to\b)\w*|\bcount after\b|\b(?:xla|tpu)\b"),
        ("read", r"\b(?:without|no)\b.{0,24}(?:print|log|item|read)|\bwithout\b|\b(?:every|each) [1-9]\d+ steps|\blogging_steps ?= ?[1-9]\d+", r"\bwith\b.{0,24}(?:print|log|item|read)|\b(?:item\(\)|print\w*|log\w*|read)\b.{0,16}\b(?:each|every) (?:step|batch)|\blogging_steps ?= ?1\b(?!\d)"),
        ("tie", r"\b(?:wte|embed\w*|tok_emb\w*|shared|encoder)\.", r"\b(?:lm_head|decoder|head|output)\."),
        ("average", r"^\W*(?:test|val\w*|eval\w*)\b", r"\bEMA\b"),
    )
)  # fmt: skip
_SIDE_ALONE = re.compile(r"(?:^|[\s(:])(?:cpu|gpu|cuda|tpu|xla|eager|tpu v\d)$")
_TIMED = re.compile(
    r"\b(?:secs?|seconds|s|ms|min|minutes|time|latency)\b(?:/| per )?|/epoch|/step", re.I
)
_SIZED = re.compile(
    r"\b(?:[KMG]i?B|memory|mem|usage|util\w*|version|torch|lr|price)\b|%", re.IGNORECASE
)
_PRECISION = re.compile(r"(?:xla use )?(?:float32|fp32|f32|bf16|bfloat16|fp16|float16)(?: ?=? ?1)?|xla use bf16 1", re.I)  # fmt: skip
_SPEED = re.compile(r"^ ?(?:it|iter\w*|steps?|samples?|tokens?|im(?:a)?ge?s?|examples?|seq\w*|batch(?:es)?) ?(?:/|per) ?s|^ ?wps\b", re.I)  # fmt: skip
_SPEED_KEY = re.compile(r"\b(?:throughput|wps|it/s|steps?/s|speed)\b", re.IGNORECASE)
_TIME = re.compile(r"^ ?(?:s|ms|secs?|seconds?|mins?|minutes?|h|hours?)\b(?:/\w+)?", re.IGNORECASE)
_COUNT = re.compile(
    r"\b(?:num\w*|number of|total|count of|trainable)? ?(?:params?|parameters)\b", re.I
)
_VALUE = re.compile(r"\b(?:logits?|outputs?|preds?|sum|mean|norm|grads?|weights?|tensor|reward|score|value)\b|\[\d", re.I)  # fmt: skip
_WHERE = re.compile(r"(?:^|\W)(?:step|steps|epoch|epochs|iter\w*|batch|size|seed|version|rank|lr|learning rate|wd|x|run|fold)$", re.I)  # fmt: skip
_OTHER = re.compile(r"\b(?:batch size|bs|lr|time limit|threads|workers|elapsed|eta)\b", re.I)
_AFTER_LOAD = re.compile(r"^\W*after (?:re)?(?:load|stor|resum)\w*", re.IGNORECASE)
_LOAD_LINE = re.compile(r"^\W*(?:#|\()?\W*(?:then )?(?:\w+ )?(?:load(?:ed|ing)?|reload\w*|restor\w+|resum\w+|restart\w*|sav(?:ed|ing)(?: and|,| \+)? ?(?:re)?load\w*)\b", re.I)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Seen:
    value: float
    line: Line
    percent: bool


@dataclass(frozen=True, slots=True)
class _Verdict:
    category: str
    title: str
    next_step: str


_WRONG = "Run both sides on the same input in float32 and compare module by module; the first module that differs names the operator."  # fmt: skip
_STATE = "Compare the names and one tensor of the file with the model in memory, and load the optimizer's and scheduler's state too."  # fmt: skip
_TIE = "Tie the weights again after the move to the device, before the optimizer is made."
_SLOW = "Compare compilations and transfers per step on both sides (PT_XLA_DEBUG_LEVEL=1); keep shapes fixed, and read values every few steps."  # fmt: skip
_CHIPS = "Start one process for each chip, give each its share of the data, and print the world size in each."  # fmt: skip
_VERDICTS: dict[tuple[str, str], _Verdict] = {
    ("device", "quality"): _Verdict("C5", "the device gives other values than the host", _WRONG),
    ("device", "slow"): _Verdict("C4", "the device is slower than the host", _SLOW),
    ("move", "count"): _Verdict("C3", "the number of parameters changes with the move", _TIE),
    ("precision", "quality"): _Verdict("C5", "lower precision gives another result", "Keep master weights, reductions and the loss in float32, and let only matmuls use bf16."),
    ("load", "quality"): _Verdict("C3", "the model is another one after the checkpoint was loaded", _STATE),
    ("load", "slow"): _Verdict("C4", "steps are slower after a state was loaded", _SLOW),
    ("read", "slow"): _Verdict("C4", "steps are slower where the host reads a value in each", _SLOW),
    ("tie", "value"): _Verdict("C3", "weights that should be tied differ", _TIE),
    ("average", "quality"): _Verdict("C3", "the averaged (EMA) model is far worse than the model", "Update the average after the optimizer's step has run on the device, and compare one tensor of both."),
    ("chips", "speed"): _Verdict("C2", "more chips are no faster than one", _CHIPS),
}  # fmt: skip
_BATCH = _Verdict(
    "C3", "the result depends on the number of chips",
    "Keep the global batch size (or scale rate and warm-up with it), and shard the data without repeats.",
)  # fmt: skip
#: Relative differences from which on two sides count as apart. Ours; a time or speed has to be
#: twice as bad, since another device is never just as fast.
APART, APART_LOW, TWICE = 0.03, 0.10, 2.0


@detector
class SidesApart(OutputDetector):
    """Two sides that a few lines compare are far apart."""

    NAME, CATEGORY = "sides_apart", "C5"
    SOURCE = (
        "ours, of excerpts: values of two devices 3 % apart, of two precisions or before and after a load "
        "10 % and worse; twice the time; 8 chips less than 1.3 times as fast as one"
    )

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        found = self._find(log) if log.excerpt else None
        if found is None:
            return None
        verdict, lines = found
        evidence, at = quote(lines)
        return Sighting(
            f"{verdict.title} (suspected: two sides of a few lines)",
            evidence,
            verdict.next_step,
            category=verdict.category,
            threshold=f"{APART:.0%}, {APART_LOW:.0%} or {TWICE:g} times apart",
            at=at,
        )

    @staticmethod
    def _find(log: LogLook) -> tuple[_Verdict, list[Line]] | None:
        if was := _was(log):
            return was
        seen: dict[tuple[str, str, str], dict[int, _Seen]] = defaultdict(dict)
        last: dict[tuple[str, str], dict[int, _Seen]] = defaultdict(dict)
        by_chips: dict[int, _Seen] = {}
        loaded = False
        for line in log.lines:
            if len(line.text) > LINE_CHARS:
                continue
            loaded = loaded or bool(_LOAD_LINE.match(line.text) or _AFTER_LOAD.match(line.text))
            for f in fields(line.text)[:NUMBERS]:
                kind = _kind(line.text, f)
                if not kind or not math.isfinite(f.value):
                    continue
                item = _Seen(f.value, line, f.unit == "%")
                place = _place(line.text, f) + str(_HELD_OUT.search(line.text[: f.pos]) is None)
                for axis, side in _sides(line.text, f):
                    beside = seen[axis, kind, place]
                    if axis == "precision" or side not in beside:
                        beside[side] = item  # of two lists of losses the last ones
                held = str(_HELD_OUT.search(line.text[: f.pos]) is None)
                if loaded and not _EARLIER.search(line.text[: f.pos]):
                    last[kind, held].setdefault(1, item)
                else:
                    last[kind, held][0] = item
                n = chips(re.split(r"[,;|]", line.text[: f.pos])[-1])
                if kind in ("it/s", "img/s") and n is not None and n >= 1:
                    by_chips.setdefault(n, item)
        for (axis, kind, _), sides in seen.items():
            if len(sides) == 2 and (verdict := _judge(axis, kind, sides[0], sides[1])):
                if axis == "device" and kind == "score" and _of_many(sides[1].line):
                    verdict = _BATCH
                return verdict, [sides[0].line, sides[1].line]
        for (kind, _), sides in last.items():
            slow = kind in ("s", "it/s")  # told by StepsSlowDown, which knows warm-ups
            if len(sides) == 2 and kind == "value" and _weights_apart(sides[0], sides[1]):
                return _VERDICTS["load", "quality"], [sides[0].line, sides[1].line]
            if len(sides) == 2 and not slow and _worse(kind, sides[0].value, sides[1].value):
                return _VERDICTS["load", "quality"], [sides[0].line, sides[1].line]
        most = max(by_chips, default=0)
        if 1 in by_chips and most >= 4 and by_chips[most].value < 1.3 * by_chips[1].value:
            return _VERDICTS["chips", "speed"], [by_chips[1].line, by_chips[most].line]
        return None


def _of_many(line: Line) -> bool:
    return chips(line.text) not in (None, 1)


def _place(text: str, field: Field) -> str:
    """The step or epoch that a number belongs to, so that only one moment is compared."""
    at = ""
    for x in fields(text)[:NUMBERS]:
        if (
            x.pos < field.pos
            and x.text.isdigit()
            and (m := re.search(r"(?:^| )(step|epoch)$", x.key))
        ):
            at = f"{m[1]}{x.value:g}"
    return at


def _kind(text: str, f: Field) -> str:
    """What a number is of: ``loss``, ``score``, ``s``, ``it/s``, ``count``, ``value`` or nothing."""
    if f.pos > 1 and text[f.pos - 1] in "-@" and text[f.pos - 2].isalnum():
        return ""  # v3-8, acc@1
    after = text[f.pos + len(f.text) : f.pos + len(f.text) + 16]
    before = text[max(0, f.pos - 60) : f.pos].replace("_", " ")
    if _OTHER.search(before[-24:]):
        return ""
    if _SPEED.match(after) or _SPEED_KEY.search(before[-16:]):
        return "it/s" if "im" not in after[:3] else "img/s"
    if _TIME.match(after) and f.of is None:
        return "s"
    if is_grad_norm(f.key) or _WHERE.search(f.key):
        return ""
    if is_loss(f.key) or re.search(r"\bloss\b[^a-z]{0,12}(?:\w+[^a-z\d]{0,6}){0,2}$", before, re.I):
        return "loss"
    if is_score(f.key) or re.search(r"\b(?:acc\w*|f1|bleu|auc|top-?1|map|rouge\w*)\b[^a-z]{0,12}(?:\w+[^a-z\d]{0,6}){0,2}$", before, re.I):  # fmt: skip
        return "score"
    if (
        f.value >= 20
        and f.text.isdigit()
        and re.search(r"(?:\bcount\b|\blen\()[^\d]{0,48}$", before, re.I)
    ):
        return "count" if re.search(r"param|tensor|weight|embed|lm_head", text, re.I) else ""
    if f.value >= 1000 or f.unit in ("M", "B", "K"):
        named = _COUNT.search(text) and (f.unit in ("M", "B", "K", "m", "b") or f.value >= 10_000)
        return "count" if named else ""
    if "." in f.text and not f.unit and _SIDE_ALONE.search(f.key):
        # cpu 0.4411, xla 0.4902: what is measured stands elsewhere in the line.
        if _SPEED_KEY.search(text):
            return "it/s"
        return "s" if _TIMED.search(text) else "" if _SIZED.search(text) else "value"
    if "." in f.text and _PRECISION.fullmatch(f.key):
        return "value"  # float32: 1.48 1.31 1.26
    return "value" if _VALUE.search(before) and "." in f.text else ""


_WAS = re.compile(r"\(?\b(?:was|before|previously|instead of|vs\.?)\b\W{1,3}(?:it was )?")
_EARLIER = re.compile(
    r"\bbefore (?:the )?(?:restart|sav|load|resum|reload)\w*|\bwhen saved\b", re.I
)
_LOADED = re.compile(r"\b(?:load|resum|restor|restart|reload)\w*", re.IGNORECASE)


def _was(log: LogLook) -> tuple[_Verdict, list[Line]] | None:
    """A number with the one that it was before: ``loss 4.12 (was 2.01)``."""
    about = [x for x in log.lines if _LOADED.search(x.text)]
    for line in log.having("was", "before", "previously", "instead", "vs") if about else ():
        found = fields(line.text[:LINE_CHARS])[:NUMBERS]
        for new, old in itertools.pairwise(found):
            kind = _kind(line.text, new)
            between = line.text[new.pos + len(new.text) : old.pos]
            if kind and len(between) < 24 and _WAS.search(between):
                name = _worse(kind, old.value, new.value)
                if name:
                    return _VERDICTS["load", name], list(dict.fromkeys([about[0], line]))
    return None


def _worse(kind: str, before: float, after: float) -> str:
    """Whether a number after a load is far worse: ``quality``, ``slow`` or nothing."""
    if min(before, after) < 0 or before == 0:
        return ""
    if kind in ("s", "it/s"):
        slower = after / before if kind == "s" else before / max(after, 1e-9)
        return "slow" if slower >= TWICE else ""
    if kind == "loss":
        return "quality" if after > 1.5 * before and after > 0.5 else ""
    return "quality" if kind == "score" and after < 0.8 * before else ""


_OF_WEIGHTS = re.compile(r"state_dict|\.weight\b|\.bias\b|\bweights?\b", re.IGNORECASE)


def _weights_apart(a: _Seen, b: _Seen) -> bool:
    """Whether one weight is another one after a load; of other numbers that says nothing."""
    named = all(_OF_WEIGHTS.search(x.line.text) for x in (a, b))
    return named and abs(a.value - b.value) > APART * max(abs(a.value), abs(b.value), 1e-3)


def _sides(text: str, f: Field) -> list[tuple[str, int]]:
    """The sides that a number is of.

    Of the words in its own clause those before it count first, then those behind it; of what
    stands before the clause the last.
    """
    found = []
    start = max((m.end() for m in _CLAUSE.finditer(text, 0, f.pos)), default=0)
    end = m.start() if (m := _CLAUSE.search(text, f.pos + len(f.text))) else len(text)
    for axis, first, second in _SIDES:
        spots = sorted(
            (m.start(), side) for side, p in enumerate((first, second)) for m in p.finditer(text)
        )
        own = [x for x in spots if start <= x[0] < f.pos]
        behind = [x for x in spots if f.pos < x[0] < end]
        before = [x for x in spots if x[0] < start]
        near = own[-1:] or behind[:1] or before[-1:]
        found += [(axis, side) for _, side in near]
    return found


#: What parts two statements of one line; a comma inside a number is none.
_CLAUSE = re.compile(r"[;|]|,(?!\d)|\s/\s")


def _judge(axis: str, kind: str, a: _Seen, b: _Seen) -> _Verdict | None:
    size = max(abs(a.value), abs(b.value))
    if size < 1e-3:
        return None
    apart = abs(a.value - b.value) / size
    bound = APART if axis in ("device", "tie") else APART_LOW
    name = ""
    if kind == "count":
        name = "count" if apart > 0.002 else ""
    elif kind in ("it/s", "img/s"):
        name = "slow" if b.value > 0 and a.value >= TWICE * b.value else ""
    elif kind == "s":
        name = "slow" if a.value > 0 and b.value >= TWICE * a.value else ""
    elif kind == "value":
        name = "value" if apart > bound else ""
        if axis != "tie":
            name = "quality" if apart > bound else ""
    elif kind == "loss":
        worse = b.value - a.value if axis != "device" else abs(b.value - a.value)
        name = "quality" if worse > bound * size else ""
    elif kind == "score":
        points = 2.0 if a.percent or size > 1.5 else 0.02
        name = "quality" if a.value - b.value > points else ""
    return _VERDICTS.get((axis, name))
