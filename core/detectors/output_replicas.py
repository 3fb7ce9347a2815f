"""Several chips that do not do the same as one: replicas apart, norms, counts and scores."""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict

from core.detectors.base import OutputDetector, Sighting, detector
from core.detectors.output_fields import Field, fields
from core.detectors.output_look import (
    Line,
    LogLook,
    Reading,
    Row,
    is_grad_norm,
    is_loss,
    is_score,
    quote,
)

_UNIT = r"(?:tpu |xla |neuron ?)?(?:chips?|cores?|devices?|replicas?|process(?:es)?|procs?|workers?|gpus?|tpus?|hosts?|neuroncores?)"
_CHIPS = re.compile(
    rf"\b(\d{{1,4}})[ -]?(?:x )?{_UNIT}\b"
    rf"|\b(?:world[_ ]?size|nprocs?|num[_ ]{_UNIT}|n[_ ]?{_UNIT}|{_UNIT}|dp|ws)\s?[=:]\s?(\d{{1,4}})\b"
    rf"|\b(single|one)[ -]?{_UNIT}\b|\b(multi(?:ple)?|all|eight|four|two|many)[ -]?{_UNIT}\b"
    r"|\bv\d[ep]?-(\d{1,4})\b",
    re.IGNORECASE,
)
_WORDS = {"two": 2, "four": 4, "eight": 8}
#: Stands for "more than one" where the number is not said.
MANY = 0


def chips(text: str) -> int | None:
    """How many chips a text speaks of: 1, 8, :data:`MANY`, or ``None`` where it does not say."""
    m = _CHIPS.search(text)
    if m is None:
        return None
    if m[3]:
        return 1
    if m[4]:
        return _WORDS.get(m[4].lower(), MANY)
    found = next(int(g) for g in (m[1], m[2], m[5]) if g)
    return found if found > 0 else None


def _by_chips(line: Line) -> list[tuple[int, Field]]:
    """Numbers of a line with the number of chips they were measured on.

    The word before a number counts first (``4 chips 61.1 | 1 chip 81.4``), then the line's.
    """
    found = []
    begin, tag = 0, None
    spots = list(_CHIPS.finditer(line.text))
    if not spots:
        return []
    for f in fields(line.text):
        for m in spots:
            if begin <= m.start() <= f.pos:
                tag = chips(m.group())
        if any(m.start() <= f.pos < m.end() for m in spots):
            continue
        spoken = tag if tag is not None else chips(spots[0].group())
        if spoken is not None:
            found.append((spoken, f))
    return found


def _core(key: str) -> str:
    """A key without the words that say on how many chips: what may be compared."""
    return re.sub(r"\s+", " ", _CHIPS.sub(" ", key)).strip(" -:")


_LOCAL = re.compile(r"\b(?:local|per[- ](?:replica|core|chip|device)|before (?:the )?(?:all[- ]?)?reduc|unreduced)\b")  # fmt: skip


@detector
class GradNormByChips(OutputDetector):
    """The gradient's norm depends on the number of chips."""

    NAME, CATEGORY = "grad_norm_scale_mismatch", "C3"
    SOURCE = (
        "public case grad_norm_scale_mismatch (pytorch/xla#1708): clipping before the all-reduce. The "
        "bound is ours: the norm at one step differs by more than 25 % between chip counts"
    )

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        by_step: dict[float | None, list[tuple[int, float, Line]]] = defaultdict(list)
        norms = {
            r.row.line.no
            for r in log.readings(lambda key: is_grad_norm(re.sub(r"\(?local\)?", "", key)))
        }
        for row in log.rows:
            for n, f in _by_chips(row.line) if row.line.no in norms else ():
                if is_grad_norm(re.sub(r"\(?local\)?", "", f.key)) and math.isfinite(f.value):
                    by_step[row.step].append((n, f.value, row.line))
        for values in by_step.values():
            for (n, a, x), (m, b, y) in itertools.combinations(values, 2):
                if n != m and min(a, b) > 0 and max(a, b) / min(a, b) > 1.25:
                    evidence, at = quote([x, y])
                    return Sighting(
                        f"the gradient norm differs {max(a, b) / min(a, b):.2g} times between chip counts",
                        evidence,
                        "Average the gradients (xm.reduce_gradients) before clip_grad_norm_, then "
                        "step the optimizer without reducing again.",
                        threshold="more than 25 % at the same step",
                        at=at,
                    )
        return None


_REPLICA = re.compile(
    r"\b(?:replica|rank|ordinal|worker|process|core|shard|device|host|chip)s?[ _]?(?:id)?\s*[:=#]?\s*(\d{1,5})\b"
    r"|\bxla:(?:\d+/)?(\d+)|\bTPU:(\d+)|^\[(\d{1,4})\]",
    re.IGNORECASE,
)
_IDENTITY = re.compile(
    r"(?:param(?:eter)?s?|weights?|model|state)\b.{0,24}(?:hash|checksum|crc|md5|sha\w*|digest|norm|sum|fingerprint)"
    r"|(?:hash|checksum|digest|fingerprint)\b.{0,24}(?:param|weight|model|state)",
    re.IGNORECASE,
)
_HEX = re.compile(r"(?:hash|checksum|crc|md5|sha\w*|digest|fingerprint)\w*\W{1,4}(?:0x)?([0-9a-f]{6,64})\b", re.I)  # fmt: skip
_DIFFER = re.compile(
    r"(?:replicas?|ranks?|params?|parameters|weights|gradients)\b.{0,60}\b(?:differ|diverge[ds]?|disagree|out of sync|not (?:in sync|equal|identical|synchroni[sz]ed)|mismatch)"
    r"|(?:mismatch|divergence|diverged|differ\w*)\b.{0,40}\b(?:between|across|among) (?:the )?(?:replicas|ranks|cores|chips|devices|hosts|processes)",
    re.IGNORECASE,
)
_EACH = re.compile(r"\b(?:rank|replica|ordinal|core|worker|chip|host|process)\s?(\d{1,4})\W{1,4}(?:[A-Za-z_]\w*\W{1,3}){0,2}(-?\d+\.\d+(?:e[-+]?\d+)?|0x[0-9a-f]+)", re.I)  # fmt: skip
_SHARED = re.compile(r"param|weight|\bl2\b|norm|hash|checksum|\bloss\b|\bacc", re.I)
_AGREE = re.compile(
    r"\b(?:no|0|never|without|do not|don't|not)\b.{0,20}(?:differ|diverg|mismatch|disagree)", re.I
)


@detector
class ReplicasApart(OutputDetector):
    """Replicas that must hold the same say different things."""

    NAME, CATEGORY = "replica_hash_mismatch", "C3"
    SOURCE = (
        "public case replica_hash_mismatch (huggingface/transformers#20116): gradient sync switched "
        "off. Hashes or norms of parameters that differ between replicas; or numbers that the HF "
        "Trainer averages over replicas before it prints them, apart by more than 0.5 % (ours). "
        "Losses of single steps differ between replicas by right, and do not count"
    )

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        said = [
            x
            for x in log.matching(
                _DIFFER,
                3,
                "differ",
                "diverge",
                "disagree",
                "sync",
                "mismatch",
                "not equal",
                "not identical",
            )
            if not _AGREE.search(x.text)
        ]
        lines = self._identities(log) or said
        weak = ""
        if not lines:
            lines, weak = self._averaged(log), " (suspected)"
        if not lines:
            return None
        evidence, at = quote(lines)
        return Sighting(
            f"the replicas do not hold the same model{weak}",
            evidence,
            "Reduce the gradients on every path to the optimizer step (xm.optimizer_step, or "
            "xm.reduce_gradients before it), whether or not they are clipped.",
            threshold="hash or norm of the parameters, or an averaged metric, differs",
            at=at,
        )

    @staticmethod
    def _identities(log: LogLook) -> list[Line]:
        """Lines of one moment with a hash or norm of the parameters that is not the same."""
        seen: dict[tuple[float | None, str], dict[str, tuple[str, Line]]] = defaultdict(dict)
        for line in log.having(
            "hash", "checksum", "crc", "md5", "sha", "digest", "fingerprint", "norm", "sum"
        ):
            if not _IDENTITY.search(line.text) and not _HEX.search(line.text):
                continue
            rank = _REPLICA.search(line.text)
            if rank is None:
                continue
            who = next(g for g in rank.groups() if g)
            digest = _HEX.search(line.text)
            step = next((f.value for f in fields(line.text) if "step" in f.key), None)
            if digest:
                seen[(step, "hash")].setdefault(who, (digest[1], line))
                continue
            for f in fields(line.text):
                if _IDENTITY.search(f.key) and not is_grad_norm(f.key):
                    seen[(step, _REPLICA.sub("", f.key))].setdefault(who, (f.text, line))
        for line in log.having("rank 1", "replica 1", "ordinal 1", "core 1", "worker 1", "chip 1", "host 1", "process 1"):  # fmt: skip
            each = dict(_EACH.findall(line.text))
            if len(each) > 1 and _SHARED.search(line.text):
                numbers = [_number(text) for text in each.values()]
                if None in numbers or _apart([x for x in numbers if x is not None], 5e-3):
                    return [line]
        for values in seen.values():
            if len({text for text, _ in values.values()}) > 1:
                numbers = [_number(text) for text, _ in values.values()]
                if any(x is None for x in numbers) or _apart([x for x in numbers if x is not None], 1e-5):  # fmt: skip
                    return [line for _, line in values.values()]
        return []

    @staticmethod
    def _averaged(log: LogLook) -> list[Line]:
        """HF Trainer's dictionaries of one epoch, from several replicas, that differ."""
        seen: dict[tuple[float | None, float | None, str], dict[str, Reading]] = defaultdict(dict)
        if not log.having("{'"):
            return []
        for row in log.rows:
            if "{'" not in row.text or row.epoch is None:
                continue
            rank = _REPLICA.search(row.text)
            if rank:
                who = next(g for g in rank.groups() if g)
                for f in row.fields:
                    if is_loss(f.key) or is_score(f.key):
                        seen[(row.step, row.epoch, f.key)].setdefault(who, Reading(row, f))
        for values in seen.values():
            if _apart([r.value for r in values.values()], 5e-3):
                return [r.row.line for r in values.values()]
        return []


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def _apart(values: list[float], tolerance: float) -> bool:
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return False
    return max(values) - min(values) > tolerance * max(abs(v) for v in values)


@detector
class GoalByWorldSize(OutputDetector):
    """The metric is worse on more chips."""

    NAME, CATEGORY = "goal_delta_by_world_size", "C3"
    SOURCE = (
        "public case goal_delta_by_world_size (pytorch/xla#2565): the global batch grows with the "
        "chips. The bound is the default goal tolerance: 1 point, and for a loss 5 %"
    )

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        groups: dict[tuple[str, float | None], dict[int, list[tuple[float, Line, bool]]]] = (
            defaultdict(lambda: defaultdict(list))
        )
        spoken = {
            x.no
            for x in log.having(
                "chip",
                "core",
                "device",
                "replica",
                "proc",
                "worker",
                "gpu",
                "tpu",
                "host",
                "world",
                "v2-",
                "v3-",
                "v4-",
                "v5",
                "v6",
            )
        }
        if not spoken:
            return None
        for row in log.rows:
            if row.line.no not in spoken:
                continue
            at = row.epoch if row.epoch is not None else row.step
            for n, f in _by_chips(row.line):
                key = _core(f.key)
                percent = f.unit == "%"
                if not math.isfinite(f.value) or not (is_loss(key) or is_score(key) or percent):
                    continue
                # Losses of single early steps are of other batches: only another scale counts.
                single = row.step is not None and row.step < 100
                name = ("early loss" if single else "loss") if is_loss(key) else "score"
                groups[(name, at)][n].append((f.value, row.line, percent))
        for (name, _), values in sorted(groups.items(), key=lambda kv: str(kv[0])):
            for n, m in itertools.combinations(sorted(values, key=lambda x: x or 10**6), 2):
                (a, x, percent), (b, y, _) = values[n][-1], values[m][-1]
                if self._worse(name, a, b, percent):
                    shown = [line for kv in values.values() for _, line, _ in kv]
                    evidence, at_lines = quote(shown or [x, y])
                    return Sighting(
                        "the result depends on the number of chips",
                        evidence,
                        "Keep the global batch size (or scale rate and warm-up with it), shard the "
                        "data without repeats, and compare again at the same number of samples.",
                        threshold="a score 1 point, or a loss 5 %, worse on more chips",
                        at=at_lines,
                    )
        return None

    @staticmethod
    def _worse(name: str, few: float, many: float, percent: bool) -> bool:
        if name.endswith("loss"):
            return few > 0 and abs(many - few) > (0.5 if name == "early loss" else 0.05) * few
        points = 1.0 if percent or max(few, many) > 1.5 else 0.01
        return abs(few - many) > points


_SCORED = re.compile(
    r"\b(?:n|num|count|samples?|examples?|eval samples|evaluated|scored|seen|total seen|images?)\b"
)
_WHOLE = re.compile(
    r"\b(?:dataset|data set|full|expected|whole|of|total|size|len|length|validation set|test set|should be|has)\b"
)
_EVALUATED = re.compile(
    r"(?:evaluat\w*|scor\w*|validat\w*|test\w*|predict\w*|metric\w*)\b.{0,40}?\b(?:on |over |for )?(\d[\d,]*)"
    r"\s*(?:/|of|out of|\bvs\.?)\s*(\d[\d,]*)\s*(?:samples|examples|images|sentences|items|rows|records|batches|instances|questions)?",
    re.IGNORECASE,
)
_NAMED = re.compile(
    r"samples|examples|images|sentences|items|rows|records|instances|questions", re.I
)
_DATASET = re.compile(
    r"(?:(?:eval\w*|val\w*|test) )?(?:dataset|data set|validation set|eval(?:uation)? set|test set|split|set)\b"
    r".{0,24}?\b(\d[\d,]*)\b|(?:expected|should be|full|instead of|out of|total of)\W{1,3}(\d[\d,]*)",
    re.IGNORECASE,
)
_SHARE = re.compile(r"\b(?:on|of|over|in) (?:all )?(\d[\d,]*) (?:\w+ )?(?:samples|examples|images|sentences|items|rows|questions)\b.{0,40}?\b\d[\d,]* ?(?:/|of|out of) ?(\d[\d,]*)\b", re.I)  # fmt: skip
_COUNTED = re.compile(
    r"\b(?:n|n_samples|num_samples|num samples|samples|count|examples|eval_samples|evaluated|scored)\s?[=:]\s?(\d[\d,]*)"
    r"|\b(?:evaluated|scored|gathered|collected)\s(?:on |only )?(\d[\d,]*)",
    re.IGNORECASE,
)


@detector
class SamplesEvaluated(OutputDetector):
    """Another number of samples is evaluated than the data set has."""

    NAME, CATEGORY = "eval_sample_count", "C3"
    SOURCE = (
        "public case eval_sample_count (pytorch/xla#2856): the metric of one core's share. Any count "
        "but the data set's; up to 2 % more is padding by a distributed sampler, and is not said"
    )

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        pairs: list[tuple[int, int, list[Line]]] = []
        counted: tuple[int, Line] | None = None
        whole: tuple[int, Line] | None = None
        for line in log.having(
            "n=",
            "n =",
            "sample",
            "example",
            "evaluat",
            "scored",
            "dataset",
            "data set",
            " set",
            "expected",
            "instead of",
            "count",
            "image",
            "sentence",
            "gathered",
            "collected",
        ):
            text = line.text
            m = _EVALUATED.search(text)
            if m and _NAMED.search(text) and not re.search(r"acc|correct|loss", m.group(), re.I):
                pairs.append((_int(m[1]), _int(m[2]), [line]))
            c = _COUNTED.search(text)
            if c and _about_evaluation(text):
                counted = (_int(next(g for g in c.groups() if g)), line)
            d = _DATASET.search(text)
            if d and (c is None or d.start() >= c.end()) and not re.search(r"\btrain", text, re.I):
                n = _int(next(g for g in d.groups() if g))
                if n >= 10:
                    whole = (n, line)
            share = _SHARE.search(text)
            if share and _about_evaluation(text):
                pairs.append((_int(share[2]), _int(share[1]), [line]))
            if counted and whole:
                pairs.append((counted[0], whole[0], [counted[1], whole[1]]))
        for n, total, lines in pairs:
            if 0 < n < total * 0.99 or (n > total * 1.02 and n < total * 1000):
                evidence, at = quote(lines)
                return Sighting(
                    f"{n} samples are evaluated, of {total}",
                    evidence,
                    "Gather predictions and labels of all replicas before the metric is "
                    "computed, and cut the sampler's padding to the size of the data set.",
                    threshold="any count but the data set's (2 % above it is padding)",
                    at=at,
                )
        return None


def _about_evaluation(text: str) -> bool:
    return bool(
        re.search(r"val|eval|test|acc|score|metric|f1|bleu|gather|predict", text, re.I)
        and not re.search(
            r"\btrain|max_eval|subset|limit|batch|per second|/s\b|workers|seed", text, re.I
        )
    )


def _int(text: str) -> int:
    return int(text.replace(",", "")[:15] or 0)


_PARAMS = re.compile(r"\b(?:params?|parameters|tensors|layer count|weights)\b", re.IGNORECASE)
_WHERE = re.compile(
    r"\b(?:before|after|on|in|to|the|cpu|xla|tpu|cuda|gpu|device|move|moving|moved|reference|migrated|original|"
    r"\.to|host|now|was|then|initial|final|model|count|number|num|total|of|all|baseline|port|expected|xla:\d|cuda:\d)\b"
    r"|[^a-z ]"
)
_CONTRAST = re.compile(
    r"\b(?:before|after|cpu|xla|tpu|cuda|gpu|reference|migrated|original|was|expected|baseline|\.to|moved?|moving)\b",
    re.IGNORECASE,
)
_UNTIED = re.compile(
    r"layers? do not match after moving to the target device|layer count: \[before|weights? (?:are|is) (?:no longer|not) tied"
    r"|(?:tied|shared) (?:weights?|params?|parameters?|embeddings?)\b.{0,40}\b(?:lost|broken|untied|differ|diverged?|no longer|not (?:shared|the same|equal))"
    r"|is (?:lm_head|embedding|decoder|weight)\S* tied\W{1,4}False|tied\W{1,3}False|(?:lm_head|decoder|head)\S*\.weight is \S*embed\S*\W{1,4}False"
    r"|(?:lm_head|decoder|head|output|softmax)\S* .{0,30}(?:embed|wte|tok)\S* .{0,40}(?:differ|diff\b|not equal|apart|diverge|different)"
    r"|(?:embed|wte|tok)\S* .{0,30}(?:lm_head|decoder|head|output)\S* .{0,40}(?:differ|diff\b|not equal|apart|diverge|different)"
    r"|\bTrue\b.{0,30}\bbefore\b.{0,60}\bFalse\b.{0,30}\bafter\b|\bbefore\b.{0,30}\bTrue\b.{0,60}\bafter\b.{0,30}\bFalse\b"
    r"|\buntied\b.{0,40}(?:weights?|embed|head)|use the `?tie_weights`? method",
    re.IGNORECASE,
)
_SCALE = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "million": 1e6, "billion": 1e9, "thousand": 1e3}


@detector
class ParameterCount(OutputDetector):
    """The model has another number of parameters after the move: tied weights are two now."""

    NAME, CATEGORY = "param_count_changed", "C3"
    SOURCE = (
        "public case param_count_changed (pytorch-lightning#2705): 124.4 M before the move and 163.0 M "
        "after; Lightning's own warning of it. Any difference beyond the printed digits"
    )
    MEASURED = ()

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        lines: list[Line] = log.matching(
            _UNTIED,
            3,
            "tied",
            "tie_weights",
            "do not match",
            "layer count",
            "shared",
            "untied",
            " is ",
            "embed",
            "wte",
        ) or self._changed(log)
        if not lines:
            return None
        evidence, at = quote(lines)
        return Sighting(
            "the number of parameters changes with the move: tied weights are tied no more",
            evidence,
            "Tie the weights again after the move to the device, before the optimizer is made.",
            threshold="any difference",
            at=at,
        )

    @staticmethod
    def _changed(log: LogLook) -> list[Line]:
        seen: dict[str, tuple[float, float, Row]] = {}
        about = {x.no for x in log.having("param", "tensors", "layer count", "weights")}
        for row in log.rows if about else ():
            if row.line.no not in about or not _PARAMS.search(row.text):
                continue
            inside = ""
            for f in row.fields:
                named = _PARAMS.search(f.key) or f.unit.lower() in ("params", "parameters")
                label = " ".join(_WHERE.sub(" ", f.key).split())
                if named:
                    inside = label
                elif not label and f.unit.lower() in _SCALE and inside:
                    named, label = (
                        _PARAMS.search("params"),
                        inside,
                    )  # ... on CPU: 110M; on TPU: 133M
                if not named or not math.isfinite(f.value):
                    continue
                if f.value < 100 and f.unit.lower() not in _SCALE:
                    continue
                value = f.value * _SCALE.get(f.unit.lower(), 1.0)
                digits = f.resolution * _SCALE.get(f.unit.lower(), 1.0)
                before = seen.get(label)
                if before is None:
                    seen[label] = (value, digits, row)
                    continue
                apart = abs(before[0] - value) > 1.5 * max(before[1], digits, 1e-4 * value)
                contrast = _CONTRAST.search(before[2].text) and _CONTRAST.search(row.text)
                contrast = contrast or (before[2] is row and re.search(r"->|→|=>", row.text))
                if apart and contrast:
                    return [before[2].line, row.line]
        return []
