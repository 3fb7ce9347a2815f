"""Several chips that do not do the same as one: replicas apart, norms, counts and scores."""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from itertools import islice

from core.detectors.base import OutputDetector, Sighting, detector
from core.detectors.output_fields import Field, fields
from core.detectors.output_look import (
    Line,
    LogLook,
    Reading,
    is_eval,
    is_grad_norm,
    is_loss,
    is_score,
    quote,
)
from core.detectors.output_sides import replicas_apart

_UNIT = r"(?:tpu |xla |neuron ?)?(?:chips?|cores?|devices?|replicas?|process(?:es)?|procs?|workers?|gpus?|tpus?|hosts?|neuroncores?)"
#: More than one of them: "core: 3" is the third core, "cores: 3" are three.
_UNITS = r"(?:tpu |xla |neuron ?)?(?:chips|cores|devices|replicas|processes|procs|workers|gpus|tpus|hosts|neuroncores)"
_CHIPS = re.compile(
    r"(?<!rank )(?<!core )(?<!device )(?<!replica )(?<!worker )(?<!process )"
    r"(?<!host )(?<!chip )(?<!ordinal )(?<!step )(?<!epoch )(?<![a-z][=:])"
    rf"\b(\d{{1,4}})[ -]?(?:x )?{_UNIT}\b"
    rf"|\b(?:world[_ ]?size|nprocs?|num[_ ]{_UNIT}|n[_ ]?{_UNIT}|{_UNITS}|dp|ws)\s?[=:]?\s?(\d{{1,4}})\b"
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
    spots = list(islice(_CHIPS.finditer(line.text), 8))
    if not spots:
        return []
    numbers = [
        f
        for f in fields(line.text)[:40]
        if not any(m.start() <= f.pos < m.end() for m in spots) and not _POSITION.search(f.key)
    ]
    # "0.41 (8 chips), 1.17 (1 chip)": the number comes before the word.
    after = len(spots) > 1 and bool(numbers) and numbers[0].pos < spots[0].start()
    found = []
    for f in numbers:
        near = [m for m in spots if (m.start() > f.pos if after else m.start() <= f.pos)]
        spot = (near[0] if after else near[-1]) if near else spots[0]
        spoken = chips(spot.group())
        if spoken is not None:
            found.append((spoken, f))
    return found


_POSITION = re.compile(r"(?:^|\W)(?:step|epoch|iter\w*|batch|global batch|size|seed)$")


_ALONE = re.compile(rf"\b(?:{_UNIT}|world size)\b")


def _core(key: str) -> str:
    """A key without the words that say on how many chips: what may be compared."""
    key = _ALONE.sub("", _CHIPS.sub(" ", key))
    return re.sub(r"\s+", " ", key).strip(" -:")


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
                named = is_grad_norm(f.key) or not _core(f.key) or "world" in f.key
                if named and math.isfinite(f.value) and not _POSITION.search(f.key):
                    by_step[row.step].append((n, f.value, row.line))
        for values in by_step.values():
            for (n, a, x), (m, b, y) in itertools.combinations(values[:50], 2):
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
    r"(?:param(?:eter)?s?|weights?|model|state)\b.{0,24}(?:hash|checksum|crc|md5|sha-?\d*\b|digest|norm|sum|mean\b|fingerprint)"
    r"|(?:hash|checksum|digest|fingerprint)\b.{0,24}(?:param|weight|model|state)"
    r"|\b(?:sum|norm|mean|l2)[\s(|]{0,3}(?:w|p|theta|weights?|params?)\b"
    r"|\|\|?\s?(?:w|p|theta|params?)\s?\|\|?|\b(?:w|p|theta|weights?|params?)\.(?:abs\(\)\.)?(?:sum|norm|mean|std)\(\)",
    re.IGNORECASE,
)
_HEX = re.compile(r"(?:hash|checksum|crc|md5|sha-?\d*|digest|fingerprint)\w*\W{1,4}(?:0x)?([0-9a-f]{6,64})\b", re.I)  # fmt: skip
_VALUE = re.compile(r"[^\d-]{0,12}(-?\d+\.\d+(?:e[-+]?\d+)?)\s*(?:\(.{0,60})?(?:#.*)?$")
_HEXES = re.compile(r"\b(?:rank|replica|core|host|device|worker|process|chip|ordinal)[ _:#]?(\d{1,4})\W{1,4}(?:\w{1,10}\W{1,3})?(?:0x)?((?=[0-9a-f]*\d)(?=\d*[a-f])[0-9a-f]{4,64})\b", re.I)  # fmt: skip
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


#: What differs between replicas, or from step to step, by right.
_BY_RIGHT = re.compile(r"\b(?:order|data|samples?|batch\w*|seeds?|random\w*|augment\w*)\b.{0,12}\b(?:differ|mismatch|disagree)", re.I)  # fmt: skip


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
            if not _AGREE.search(x.text) and not _BY_RIGHT.search(x.text)
        ]
        lines = self._identities(log) or replicas_apart(log) or said
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
            "hash",
            "checksum",
            "crc",
            "md5",
            "sha",
            "digest",
            "fingerprint",
            "norm",
            "sum",
            "||",
            "mean",
            "std(",
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
            said = _IDENTITY.search(line.text)
            if said and (m := _VALUE.match(line.text, said.end())):
                seen[(step, said[0].lower())].setdefault(who, (m[1], line))
                continue
            for f in fields(line.text):
                if _IDENTITY.search(f.key) and not is_grad_norm(f.key):
                    seen[(step, _REPLICA.sub("", f.key))].setdefault(who, (f.text, line))
        for line in log.having("hash", "checksum", "crc", "md5", "digest", "fingerprint"):
            if len(set(dict(_HEXES.findall(line.text)).values())) > 1:
                return [line]
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
    def _by_epoch(log: LogLook) -> list[Line]:
        """Losses of whole epochs, of replicas of one model, that are a tenth apart."""
        seen: dict[tuple[float, str], dict[str, Reading]] = defaultdict(dict)
        for r in log.readings(is_loss) if log.having("replica") else ():
            rank = _REPLICA.search(r.row.text)
            if rank and rank[1] and r.row.epoch is not None and r.row.step is None:
                seen[(r.row.epoch, r.field.key)].setdefault(rank[1], r)
        for values in seen.values():
            if _apart([r.value for r in values.values()], 0.1):
                return [r.row.line for r in values.values()]
        return []

    @staticmethod
    def _evaluated(log: LogLook) -> list[Line]:
        """An evaluation that each replica prints for itself, in a few lines that were quoted."""
        seen: dict[str, dict[str, Reading]] = defaultdict(dict)
        for r in log.readings(lambda key: is_loss(key) or is_score(key)) if log.excerpt else ():
            if r.row.rank and r.row.step is None and is_eval(r.row, r.field):
                seen[_REPLICA.sub("", r.field.key)].setdefault(r.row.rank, r)
        for values in seen.values():
            if _apart([r.value for r in values.values()], 0.02):
                return [r.row.line for r in values.values()]
        return []

    @staticmethod
    def _averaged(log: LogLook) -> list[Line]:
        """HF Trainer's dictionaries of one epoch, from several replicas, that differ."""
        seen: dict[tuple[float | None, float | None, str], dict[str, Reading]] = defaultdict(dict)
        if not log.having("{'"):
            return ReplicasApart._by_epoch(log) or ReplicasApart._evaluated(log)
        for row in log.rows:
            if "{'" not in row.text or row.epoch is None:
                continue
            rank = _REPLICA.search(row.text)
            evaluated = row.evaluation or "'eval_" in row.text
            if rank is None and not (evaluated and row.epoch == int(row.epoch)):
                continue
            # Every process prints its evaluation of one epoch: they must be the same.
            who = next(g for g in rank.groups() if g) if rank else f"line {row.line.no}"
            for f in row.fields:
                if is_loss(f.key) or is_score(f.key):
                    seen[(row.step, row.epoch, f.key)].setdefault(who, Reading(row, f))
        for values in seen.values():
            if _apart([r.value for r in values.values()], 5e-3):
                return [r.row.line for r in values.values()]
        return []


def _named(text: str, f: Field) -> str:
    """The metric that an unnamed number is of: ``acc (1 core) = 0.91``."""
    words = re.findall(r"[A-Za-z][\w@-]*", text[max(0, f.pos - 40) : f.pos])[-4:]
    return next((w for w in reversed(words) if is_score(w.lower()) or is_loss(w.lower())), "")


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def _apart(values: list[float], tolerance: float) -> bool:
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return False
    return max(values) - min(values) > tolerance * max(abs(v) for v in values)


#: By metric and moment, by number of chips: values, lines, and whether they are percent.
_Groups = defaultdict[tuple[str, float | None], defaultdict[int, list[tuple[float, Line, bool]]]]
_ONE = re.compile(r"\b(?:gpu|cuda|cpu|v100|a100|h100|p100|t4)\b", re.IGNORECASE)


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
        groups: _Groups = defaultdict(lambda: defaultdict(list))
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
                key = _core(f.key) or _named(row.text, f)
                percent = f.unit == "%"
                if not math.isfinite(f.value) or not (is_loss(key) or is_score(key) or percent):
                    continue
                # Losses of single early steps are of other batches: only another scale counts.
                single = row.step is not None and row.step < 100
                name = ("early loss" if single else "loss") if is_loss(key) else "score"
                groups[(name, at)][n].append((f.value, row.line, percent))
        self._beside(log, groups)
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
    def _beside(log: LogLook, groups: _Groups) -> None:
        """A score of one GPU or CPU counts as that of one chip, beside one of several chips."""
        for row in log.rows if log.excerpt else ():
            if not _ONE.search(row.text) or _CHIPS.search(row.text):
                continue
            at = row.epoch if row.epoch is not None else row.step
            for f in row.fields:
                if not is_score(f.key) or not math.isfinite(f.value):
                    continue
                if ("score", at) in groups and 1 not in (many := groups["score", at]):
                    many[1].append((f.value, row.line, f.unit == "%"))

    @staticmethod
    def _worse(name: str, few: float, many: float, percent: bool) -> bool:
        if name.endswith("loss"):
            return few > 0 and abs(many - few) > (0.5 if name == "early loss" else 0.05) * few
        points = 1.0 if percent or max(few, many) > 1.5 else 0.01
        return abs(few - many) > points
