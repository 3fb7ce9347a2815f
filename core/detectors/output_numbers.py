"""Values that can't be right: NaN, out of range, stuck at a power of two, the same at random."""

from __future__ import annotations

import math
import re

from core.detectors.base import OutputDetector, Sighting, detector
from core.detectors.output_fields import Field
from core.detectors.output_look import (
    Line,
    LogLook,
    Row,
    in_order,
    is_grad_norm,
    is_loss,
    is_score,
    quote,
)
from core.detectors.output_series import series

_TENSOR_NAN = re.compile(
    r"tensor\(\[+(?:-?inf(?:, ?)?)+\]|tensor\(.{0,400}?(?<![\w.])[-+]?nan\b|array\(.{0,400}?(?<![\w.])nan\b"
)
_SAID = re.compile(
    r"\b(?:loss|logits?|grads?|gradients?|outputs?|activations?|weights?|params?|parameters?)\b"
    r".{0,24}\b(?:is|are|was|became|becomes|contains?|has|have|=|turned|went)\s+(?:all |to )?[-+]?"
    r"(?:nan|NaN|NAN|inf|Inf|non-?finite)\b"
)
_ROW = re.compile(r"[\s|]*(?:[-+]?(?:\d[\d.,:e+-]*|nan|inf)[\s|%]+){2,12}nan[\s|]*", re.IGNORECASE)
_DENIED = re.compile(
    r"\b(?:no|not|without|if|when|check|checking|detect|skip|filter|raise|isnan|nan_to_num|ignore)\b"
    r".{0,40}\b(?:nan|inf|non-?finite)|nan_?(?:check|filter|policy|to_num)|inf_?filter|: (?:False|True|None)\b.{0,20}$",
    re.IGNORECASE,
)
_INFINITE_BY_DESIGN = re.compile(r"best|min|max|early|patience|limit|norm type|clip|budget|scale|eta|bound")  # fmt: skip
_MEASURED_KEY = re.compile(r"\b(?:logits?|output|norm|attn|attention|hidden|psnr|fid|prob|ppl|perplexity|entropy|kl|reward|nll|elbo|mse|mae|rmse)\b")  # fmt: skip


def _is_number_of_training(key: str) -> bool:
    return is_loss(key) or is_grad_norm(key) or is_score(key) or bool(_MEASURED_KEY.search(key))


@detector
class NotANumber(OutputDetector):
    """A loss, norm, metric or printed tensor is NaN, or a loss is infinite."""

    NAME, CATEGORY = "nan", "C5"
    SOURCE = "public case nan (pytorch/xla#4152: bf16 masks filled with the float32 minimum); any"
    SAME_FAULT = ("loss_constant",)

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        if not log.having("nan", "inf"):
            return None
        found = log.readings(_is_number_of_training, _bad)
        if log.running and len(found) < 3 and not any(is_loss(r.field.key) for r in found):
            found = []  # the next step may be finite again
        bad = [r.row.line for r in found]
        good_again = self._recovers(log)
        said = [
            line
            for line in log.matching(_TENSOR_NAN, 3, "nan", "inf")
            + log.matching(_SAID, 3, "nan", "inf")
            if not _DENIED.search(line.text)
        ]
        lines = ([] if good_again else bad) + said + self._columns(log)
        if not lines:
            return None
        evidence, at = quote(in_order(lines))
        return Sighting(
            "a value is not a number (NaN) or infinite",
            evidence,
            "Run this step in float32 and compare: look for masks filled with a dtype's minimum, "
            "a lost clip, or XLA_USE_BF16; print the first module whose output is not finite.",
            threshold="any",
            at=at,
        )

    @staticmethod
    def _columns(log: LogLook) -> list[Line]:
        """Of an excerpt: rows of bare numbers below a heading that names a loss, with a NaN."""
        if not log.excerpt or not log.having("loss"):
            return []
        return [x for x in log.having("nan") if _ROW.fullmatch(x.text)][:3]

    @staticmethod
    def _recovers(log: LogLook) -> bool:
        """Whether all keys that were not finite once are finite again: a skipped step."""
        last: dict[str, bool] = {}
        seen = False
        for r in log.readings(_is_number_of_training):
            if math.isfinite(r.value):
                if r.field.key in last:
                    last[r.field.key] = True
            elif _bad(r.row, r.field):
                seen, last[r.field.key] = True, False
        return seen and all(last.values()) and not any(is_loss(k) for k in last)


def _bad(_: Row, field: Field) -> bool:
    if math.isfinite(field.value) or _INFINITE_BY_DESIGN.search(field.key):
        return False
    return _is_number_of_training(field.key) and (math.isnan(field.value) or is_loss(field.key))


_EXTREMES = {2**63 - 1, 2**63, 2**31 - 1, 2**31, 2**64 - 1}
_INDEX = re.compile(r"\b(?:pred(?:iction|icted)?s?|idx|index|indices|argmax|token(?: ids?)?|label|class|id|ids|target|output)\b")  # fmt: skip
_LIMIT = re.compile(r"\b(?:max|min)\b|limit|\blen|length|seed|size|rows|budget|steps|timeout")
_SHARE = re.compile(
    r"\b(?:acc(?:uracy)?|prob(?:s|ability|abilities)?|f1|auc|precision|recall|iou|miou|dice)\b"
)


@detector
class OutOfRange(OutputDetector):
    """A printed value lies where it can't lie."""

    NAME, CATEGORY = "value_range", "C5"
    SOURCE = (
        "public case value_range (pytorch/xla#2169: argmax over bf16 gave the smallest int64). The "
        "smallest or largest integer of a type as an index, a share above 1 (100 %), a "
        "negative probability or a perplexity below 1"
    )

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        found = log.readings(_may_be_impossible, _impossible)
        said = log.matching(_SAID_OUT, 3, "out of")
        said += log.matching(_LOWEST, 3, "-9223372036854775808", "-2147483648")
        if not found and not said:
            return None
        evidence, at = quote([*found, *said])
        return Sighting(
            "a value is out of its range",
            evidence,
            "Compute it in float32 (softmax and argmax most of all) and compare with the CPU on "
            "the same input.",
            threshold="an integer type's end as an index, a share above 1, a perplexity below 1",
            at=at,
        )


#: The lowest integer of a type, in a tensor: nothing that is counted or chosen is there.
_LOWEST = re.compile(
    r"tensor\(.{0,400}-(?:9223372036854775808|2147483648)\b|-9223372036854775808,.{0,400}device="
)
_ABOUT = re.compile(
    r"\b(?:over|of|on|for|at|after|in|from|per|by)(?: (?:the|all|a|an|these|our|its))?(?: \w+)?$"
)
_SAID_OUT = re.compile(r"\b(?:id|idx|index|token|class|label|argmax|pred\w*)\b.{0,24}-?\d.{0,12}\bout of (?:range|bounds|vocab\w*)\b", re.I)  # fmt: skip


def _may_be_impossible(key: str) -> bool:
    return not _LIMIT.search(key) and bool(
        _INDEX.search(key) or _SHARE.search(key) or "perplexity" in key or "ppl" in key or not key
    )


def _impossible(row: Row, field: Field) -> bool:
    key, value = field.key, field.value
    if not math.isfinite(value) or _ABOUT.search(key):
        return False
    if abs(value) >= 2**31 - 1 and "." not in field.text and "e" not in field.text.lower():
        whole = abs(int(field.text.replace(",", "")))
        return whole in _EXTREMES and (bool(_INDEX.search(key)) or "tensor(" in row.text)
    if _SHARE.search(key) and field.of is None and is_score(key) | ("prob" in key):
        return value > 100.5 or value < 0 or ("prob" in key and value > 1.001 and field.unit != "%")
    return bool(re.search(r"\b(?:perplexity|ppl)\b", key)) and 0 <= value < 0.999


_RUNNING = re.compile(r"\b(?:running|total|cumulative|accum\w*|sum|epoch)\b.*\b(?:loss|correct|count|samples|tokens|sum)\b|\b(?:num|n) (?:correct|tokens|samples)\b|\b(?:loss|correct|token) (?:sum|total|count)\b|\bcorrect\b|\bsum of\b|\bcounter\b")  # fmt: skip


@detector
class Saturated(OutputDetector):
    """A running sum stands still at a power of two: its type has no room for one more."""

    NAME, CATEGORY = "metric_saturated", "C5"
    SOURCE = (
        "public case metric_saturated (pytorch/xla#2425). bfloat16 has 8 significant bits: 256 + 1 "
        "is 256; float16 11 bits: 2048 + 1 is 2048; float32 24 bits: 16777216"
    )

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        for found in series(log, _adds_up, also=_is_tensor):
            tail = found.readings[-1].value
            stuck = [r for r in found.readings if r.value == tail]
            whole = math.isfinite(tail) and tail >= 256 and tail == int(tail)
            if not whole or len(stuck) < 2 or int(tail) & (int(tail) - 1):
                continue
            if found.readings[-len(stuck)].value != tail:
                continue  # reached, left and reached again: another kind of count
            evidence, at = quote(stuck)
            return Sighting(
                f"a running sum is stuck at {int(tail)}, a power of two",
                evidence,
                "Accumulate in float32 or in Python numbers, not in bfloat16.",
                threshold="the same power of two, 256 or more, in successive readings",
                at=at,
            )
        return None


def _adds_up(key: str) -> bool:
    return bool(_RUNNING.search(key)) or key in _BARE


def _is_tensor(row: Row, field: Field) -> bool:
    return field.key not in _BARE or "tensor(" in row.text


#: Words too bare to mean a running sum by themselves: of a printed tensor they do.
_BARE = frozenset(("total", "sum", "count", "acc", "n"))
_RANDOM = re.compile(r"drop ?out|\bmask\b|\bnoise\b|\brandom\b|\brng\b|\bperm(?:utation)?\b|\bshuffle|\brand(?:n|int|perm)\b|^rand$|\b(?:torch|np|random|jax)\.(?:random\.)?rand\w*")  # fmt: skip
_OF_A_DRAW = re.compile(r"\b(?:sum|hash|mean|checksum|norm|first|crc|md5|draw|value|sample|idx|kept|zeros?|nonzero|state)\b|\brand(?:n|int|perm)\b|^rand$|\b(?:torch|np|random|jax)\.(?:random\.)?rand\w*")  # fmt: skip
_NOT_A_DRAW = re.compile(r"\b(?:attention|attn|padding|pad|causal|key|seed|rate|p|prob|ratio|size|len|length|dim|std dev|batch|num samples|workers|ratio|level|scale|version|max|min)\b")  # fmt: skip


@detector
class DrawRepeats(OutputDetector):
    """What should be drawn anew in each step is the same in each."""

    NAME, CATEGORY = "rng_repeats", "C5"
    SOURCE = (
        "public case rng_repeats (pytorch/xla#1932: the seed was a constant of the graph): the same "
        "dropout mask in 3 steps or more"
    )

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        for found in series(log, _drawn, 3):
            by_line: dict[int, tuple[str, ...]] = {}
            for r in found.readings:
                no = r.row.line.no
                by_line[no] = (*by_line.get(no, ()), r.field.text)
            same = len(set(by_line.values())) == 1
            if same and len(by_line) >= 3 and found.values[0] not in (0.0, 1.0):
                evidence, at = quote(found.readings)
                return self._say(found.key, evidence, at)
        told = log.matching(_REPEATS, 3, "same", "equal", "identical", "repeat")
        if told:
            evidence, at = quote(told)
            return self._say("what is drawn", evidence, at)
        if alike := self._lists(log):
            evidence, at = quote(alike)
            return self._say("what is drawn", evidence, at)
        hashes: dict[str, list[Line]] = {}
        for line in log.having("hash", "checksum", "crc", "digest", "md5"):
            m = _HASH.search(line.text)
            if m and _RANDOM.search(line.text.lower()):
                hashes.setdefault(m[1], []).append(line)
        if len(hashes) == 1 and len(lines := next(iter(hashes.values()))) >= 3:
            evidence, at = quote(lines)
            return self._say("what is drawn", evidence, at)
        return None

    @staticmethod
    def _lists(log: LogLook) -> list[Line]:
        """Calls or steps, one after another, each with the same list of numbers."""
        if not log.excerpt:
            return []
        found: dict[str, dict[str, Line]] = {}
        for line in log.having("["):
            m = _NUMBERED.match(line.text)
            if m:
                found.setdefault(m[2], {}).setdefault(m[1], line)
        alike: dict[str, dict[float, Line]] = {}
        for row in log.rows:
            m = _LAST_NUMBER.search(row.text)
            if m and row.step is not None and _RANDOM_WORD.search(row.text):
                if not _NOT_DRAWN.search(row.text) and not _NOT_A_DRAW.search(row.text.lower()):
                    alike.setdefault(m[1], {}).setdefault(row.step, row.line)
        if len(alike) == 1 and len(same := next(iter(alike.values()))) >= 3:
            return list(same.values())
        for words, lines in found.items():
            spoken = any(_RANDOM_WORD.search(x.text) for x in lines.values())
            if len(lines) >= 3 and spoken and not _NOT_DRAWN.search(words):
                return list(lines.values())
        return []

    @staticmethod
    def _say(what: str, evidence: list[str], at: tuple[int, ...]) -> Sighting:
        return Sighting(
            f"{what} is the same in every step",
            evidence,
            "Let the seed enter the graph as an input: torch_xla's own RNG state, or a "
            "torch_xla.sync() per step, and no Python number that is traced in.",
            threshold="one value in at least 3 steps",
            at=at,
        )


_NUMBERED = re.compile(r"^\W{0,3}(?:(?:rand|perm|shuffl|dropout|noise|mask)\w* )?(?:call|step|iter(?:ation)?|epoch|batch|run|forward|sample)\W{0,2}(\d{1,7})\b(.{0,200}?\[[^\]]{3,400}\])", re.I)  # fmt: skip
_LAST_NUMBER = re.compile(r"[=:]\s*(?:tensor\()?(-?\d+\.\d{4,})\)?\s*$")
_NOT_DRAWN = re.compile(r"shape|size|\blrs?\b|rates?\b|device|mesh", re.IGNORECASE)
_RANDOM_WORD = re.compile(r"\brand|random|drop|mask|noise|bernoulli|\brng|shuffl|augment|sampled", re.I)  # fmt: skip
_REPEATS = re.compile(r"\b(?:dropout|noise|random\w*|rng)\b(?!.{0,80}\b(?:not|False|no longer)\b).{0,30}\b(?:same|equal|identical|repeats?)\b.{0,40}\b(?:steps?|iterations?|epochs?|batch\w*|every|each)\b|\b(?:same|identical) (?:dropout|noise|random)\w*.{0,40}\b(?:steps?|iterations?|every|each)\b", re.I)  # fmt: skip
_HASH = re.compile(
    r"(?:hash|checksum|crc|digest|md5)\b[^:=]{0,24}[:=]?\s*(?:0x)?([0-9a-f]{5,64})\b", re.I
)


def _drawn(key: str) -> bool:
    if _NOT_A_DRAW.search(key) or is_loss(key) or is_score(key):
        return False
    return bool(_RANDOM.search(key) and _OF_A_DRAW.search(key))
