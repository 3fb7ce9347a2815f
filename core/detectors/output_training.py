"""What the printed losses and metrics say of themselves: nothing is learned."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from core.detectors.base import OutputDetector, Sighting, detector
from core.detectors.output_fields import Field
from core.detectors.output_look import (
    BARE_LOSS,
    Line,
    LogLook,
    Reading,
    is_eval,
    is_grad_norm,
    is_loss,
    is_score,
    place,
    quote,
)
from core.detectors.output_series import FLAT, MIN_SPAN, Series, chance_of, series

_RESUMED = re.compile(
    r"\b(?:checkpoint|ckpt|weights|state) (?:was |is )?(?:loaded|restored)\b|\b(?:resum(?:ed?|ing)|restor(?:ed|ing)|continu(?:ed|ing) from|load(?:ed|ing) (?:from )?"
    r"(?:the )?(?:checkpoint|optimizer|state))", re.IGNORECASE
)  # fmt: skip
_WARMUP = 1e-7
#: Readings of a run that goes on before its loss is called flat. Ours.
MIN_RUNNING = 20


def losses(log: LogLook) -> list[Series]:
    """The training losses."""
    return series(log, is_loss, also=lambda row, f: not is_eval(row, f) and _is_value(f))


def evaluations(log: LogLook) -> list[Series]:
    """Losses and scores on held-out data."""
    return series(
        log,
        lambda key: is_loss(key) or is_score(key),
        also=lambda row, f: is_eval(row, f) and _is_value(f),
    )


def _is_value(field: Field) -> bool:
    """Not a number of samples: ``train 50000, val 10000``."""
    return field.key not in BARE_LOSS or "." in field.text


def is_flat(found: Series) -> bool:
    """Whether a loss has not moved over the whole log, as far as its digits can tell."""
    if not found.finite or found.mean < 0.02 or found.falls_steadily:
        return False
    if found.span < MIN_SPAN and len(found.readings) < 5:
        return False
    if found.precision > 2 * FLAT:  # two digits: only many equal readings say anything
        return found.same and len(found.readings) >= 20 and found.precision < 0.05
    return found.spread <= FLAT


def warming_up(log: LogLook) -> bool:
    """Whether the printed learning rate is so small that nothing could move, or rises all along."""
    rates = [r.value for r in log.readings(lambda key: key in ("lr", "learning rate"))]
    if not rates:
        return False
    rises = len(rates) >= 3 and all(b > a for a, b in itertools.pairwise(rates))
    return max(rates) < _WARMUP or (rises and rates[-1] > 1.5 * rates[0])


@detector
class LossDoesNotMove(OutputDetector):
    """The training loss is the same, up to its last digits, over the whole log."""

    NAME, CATEGORY = "params_unchanged", "C2"
    SOURCE = (
        "public cases params_unchanged (pytorch/xla#1623, #3675, huggingface/transformers#18635: an "
        "optimizer made before the move; #4482: one that was restored). The bound is ours: "
        "the losses of these cases differ by at most 5e-4, those of other batches by more."
    )
    SAME_FAULT = ("params_unchanged", "loss_constant", "no_step_boundary")
    MEASURED = ("loss",)

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        shown = self._no_update(log)
        if shown:
            evidence, at = quote(shown)
            return Sighting(
                "the parameters are not updated",
                evidence,
                "Make the optimizer after the model has been moved to the device, and check that "
                "it got the model's own parameters and gradients.",
                threshold="an update, a gradient or a change of exactly 0, every time",
                at=at,
            )
        # While a run goes on, its first readings may be those of a warm-up.
        least = MIN_RUNNING if log.running else 2
        flat = [s for s in losses(log) if is_flat(s) and len(s.readings) >= least]
        flat = flat or self._guesses(log) or self._listed(log)
        moving = [s for s in losses(log) if not is_flat(s) and s not in flat]
        moving = [s for s in moving if len(s.readings) >= 3 and s.finite]
        if not flat or (moving and len(moving) >= len(flat)) or warming_up(log):
            return None
        found = max(flat, key=lambda s: len(s.readings))
        evidence, at = quote(found.readings)
        resumed = log.matching(_RESUMED, 1, "resum", "restor", "continu", "load")
        before = [line for line in resumed if line.no <= found.readings[0].row.line.no]
        weak = "" if len(found.readings) >= 5 else " (suspected: few readings)"
        threshold = f"moves by at most {FLAT:g} of its size over the whole log"
        if before:
            more, where = quote(before)
            if where[0] not in at:
                evidence, at = more + evidence, where + at
            return Sighting(
                f"the loss does not move after the restart{weak}",
                evidence,
                "Check after loading that the optimizer holds the model's own tensors: make it "
                "after the weights are on the device, then load its state.",
                category="C3",
                threshold=threshold,
                at=at,
            )
        return Sighting(
            f"the loss does not move: the parameters are not updated{weak}",
            evidence,
            "Make the optimizer after the model has been moved to the device, and check one "
            "parameter before and after a step.",
            threshold=threshold,
            at=at,
        )

    @staticmethod
    def _guesses(log: LogLook) -> list[Series]:
        """A few losses at ln k that do not move, with a score that is a guess's among k, too."""
        found = []
        scores = log.readings(lambda key: is_score(key) and "acc" in key) if log.excerpt else []
        for s in losses(log) if scores else ():
            k = chance_of(s.mean, 0.005) if len(s.readings) >= 3 and s.finite else None
            if not k or s.spread > FLAT:
                continue
            shares = [
                r.value / 100 if r.field.unit == "%" or r.value > 1 else r.value
                for r in scores
                if r.value <= 100
            ]
            if shares and all(abs(x - 1 / k) <= 0.1 / k for x in shares):
                found.append(s)
        return found

    @staticmethod
    def _listed(log: LogLook) -> list[Series]:
        """Four losses or more of an excerpt that say no step, and print almost alike."""
        return [
            s
            for s in (losses(log) if log.excerpt else ())
            if len(s.readings) >= 4
            and s.finite
            and s.mean >= 0.02
            and s.spread <= FLAT / 2
            and (s.precision <= FLAT or (s.same and s.precision <= 5 * FLAT))
            and not s.falls_steadily
            and all(r.row.step is None and r.row.epoch is None for r in s.readings)
        ]

    @staticmethod
    def _held(log: LogLook) -> list[Line]:
        """One number of all parameters, the same at steps that are far apart."""
        seen: dict[float, tuple[str, Line]] = {}
        for line in log.lines if log.excerpt else ():
            m = _OF_ALL.search(line.text) if len(line.text) <= 400 else None
            step = place(line.text)[0] if m else None
            after = _REAL.search(line.text, m.end()) if m else None
            if after and not _OF_OTHERS.search(line.text):
                moment = _MOMENT.search(line.text) if step is None else None
                if moment:  # the start and the end, in words
                    step = 0.0 if moment[1] else 100.0
                if step is not None:
                    seen[step] = (after[0], line)
        if len(seen) >= 2 and max(seen) - min(seen) >= MIN_SPAN:
            if len({text for text, _ in seen.values()}) == 1:
                return [line for _, line in seen.values()]
        return []

    @staticmethod
    def _no_update(log: LogLook) -> list[Reading | Line]:
        """Updates, gradient norms or changes of the weights that are printed, and all 0."""
        if log.having("optimizer"):
            for line in log.matching(_STALE, 3, "optimizer"):
                if not _MOVES.search(line.text):
                    return [line]
        for found in series(log, lambda key: bool(_UPDATE.search(key)) or is_grad_norm(key), 1):
            norm = is_grad_norm(found.key)
            least = 3 if norm or len(found.readings) > 1 else 1
            other = any(_OF_OTHERS.search(r.row.text) for r in found.readings)
            if len(found.readings) >= least and all(v == 0 for v in found.values) and not other:
                return list(found.readings)
        if held := LossDoesNotMove._held(log):
            return list(held)
        shown: dict[str, list[tuple[float, str, Line]]] = {}
        for line in log.having(".weight", ".bias", "param", "weights["):
            m = _ONE_WEIGHT.search(line.text) if len(line.text) <= 400 else None
            step = place(line.text)[0] if m else None
            if m and step is not None:
                shown.setdefault(m[1], []).append((step, m[2], line))
        for seen in shown.values():
            at = sorted({step for step, _, _ in seen})
            if len(at) >= 3 and at[-1] - at[0] >= MIN_SPAN:
                if len({text for _, text, _ in seen}) == 1:
                    return [line for _, _, line in seen]
        for old, new in itertools.pairwise(log.lines) if log.having("before") else ():
            m, n = _STEPPED.match(old.text), _STEPPED.match(new.text)
            sides = (m[1].lower(), n[1].lower()) if m and n else ()
            if m and n and sides == ("before", "after") and m.groups()[1:] == n.groups()[1:]:
                return [old, new]
        said = log.matching(_UNCHANGED, 3, "unchanged", "not chang", "n't chang", "never chang", "not updat", "n't updat", "is none", "no grad", "identical", "not move")  # fmt: skip
        said += log.matching(
            _STUCK,
            3,
            "stuck",
            "flat",
            "constant",
            "decreas",
            "chang",
            "improv",
            "go down",
            "moving",
        )
        said = [x for x in said if not _OF_OTHERS.search(x.text)]
        if said:
            return list(said)
        zero = log.matching(_DIFFERENCE, 3, "after", "new", "old", "before", "init")
        if zero:
            return list(zero)
        for line in log.having("hash", "checksum", "crc", "digest", "md5", "fingerprint"):
            found_hexes = _HEXES.findall(line.text)
            both = re.search(r"\bbefore\b.{0,80}\bafter\b", line.text, re.I)
            if both and len(found_hexes) == 2 and len(set(found_hexes)) == 1:
                return [line]
        digests: dict[str, list[Line]] = {}
        for line in log.having("hash", "checksum", "crc", "digest", "md5", "fingerprint"):
            m = _DIGEST.search(line.text)
            if m and not _OF_OTHERS.search(line.text):
                digests.setdefault(m[1], []).append(line)
        if len(digests) == 1:
            (lines,) = digests.values()
            steps = {place(line.text)[0] for line in lines}
            if len(steps - {None}) >= 2:
                return list(lines)
        return []


#: A value of the parameters on the two sides of a step: ``after step: w.sum() = 12.4431``.
_STEPPED = re.compile(
    r"^\W*(before|after) (?:the )?(?:optimizer\W?)?(?:step|update)\W{1,5}(.{0,40}?\b(?:w|theta|p|weights?|params?|parameters?)\b.{0,40}?)[=:\s]\s*(-?\d+\.\d{3,}(?:e-?\d+)?)",
    re.IGNORECASE,
)
#: One number of all parameters, such as ``norm(theta)``, ``w.sum()`` or ``||w||``.
_OF_ALL = re.compile(
    r"\b(?:norm|sum|mean|l2|std)\s?\(\s?(?:theta|w|p|params?|parameters|weights?|model)\b"
    r"|\b(?:theta|w|p|params?|parameters|weights?)\.(?:abs\(\)\.)?(?:sum|norm|mean|std)\("
    r"|\|\|?\s?(?:w|theta|p|params?)\s?\|\|?|\b(?:param\w*|weights?) (?:sum|norm|mean|checksum)\b",
    re.IGNORECASE,
)
_MOMENT = re.compile(
    r"\b(?:(start|before|init\w*|first|begin\w*)|(end|after|last|final\w*|trained))\b",
    re.IGNORECASE,
)
_REAL = re.compile(r"(?<![\w.])-?\d+\.\d{3,}(?:e[-+]?\d+)?")
#: One number of the parameters, by its place in them.
_ONE_WEIGHT = re.compile(r"(?<![\w.])((?:\w{1,40}\.){1,12}(?:weight|bias)[\w\[\],:]{0,30}|\b(?:params?|weights?)\[\S{1,20}?)\s?[=:]\s?(?:tensor\()?(-?\d+\.\d{3,}(?:e-?\d+)?)")  # fmt: skip
_UPDATE = re.compile(r"\b(?:param\w*|weights?|update|delta)\b.{0,16}\b(?:update|delta|change|diff|difference|norm)\b(?<!param norm)(?<!weight norm)(?<!parameter norm)(?<!weights norm)|\b(?:delta|change|update) (?:of|in) (?:the )?(?:param|weight)")  # fmt: skip
_MOVES = re.compile(
    r"\b(?:mov(?:ed|ing)|transfer\w*|offload\w*|load\w*|copy\w*|copied|cast\w*)\b", re.I
)
#: Comparisons whose 0 is a good sign, and parameters that stand still by right.
_OF_OTHERS = re.compile(
    r"\b(?:replicas?|ranks?|across|between|reload\w*|loaded|saved?|vs|reference|restor\w*|teacher|ema|frozen|freez\w*|backbone|"
    r"base|target network|config|data\w*|gpu|cuda)\b",
    re.IGNORECASE,
)
_STUCK = re.compile(r"\b(?:train\w* )?loss\b.{0,24}\b(?:is |stays |remains )?(?:stuck|flat|constant|(?:not|never|n't) (?:decreas|chang|improv|go down|going down|mov)\w*)\b", re.I)  # fmt: skip
_UNCHANGED = re.compile(
    r"\b(?:param\w*|weights?)\b.{0,40}\b(?:unchanged|(?:not|never|n't) (?:chang|updat|mov)\w*|identical (?:after|before|to (?:init|step 0)))"
    r"|\b(?:all |every )?(?:grads?|gradients?)\b.{0,24}\b(?:is|are) (?:all )?None\b|no grad(?:ient)?s? (?:for|in|reach)",
    re.IGNORECASE,
)
_STALE = re.compile(r"optimizer\b.{0,60}\bcpu\b.{0,60}\bmodel\b.{0,60}\b(?:xla|tpu)|model\b.{0,60}\b(?:xla|tpu)\b.{0,60}optimizer\b.{0,60}\bcpu\b|optimizer .{0,40}(?:not|none of|0 of|stale|other)\b.{0,30}(?:model|param)", re.I)  # fmt: skip
_HEXES = re.compile(r"(?<![\w.])(?:0x)?(?=[0-9a-f]*\d)[0-9a-f]{6,64}(?![\w.])", re.I)
_DIFFERENCE = re.compile(r"(?:\|\|?|norm\(|abs\(|max\().{0,30}\b\w*(?:after|new|end|1|t)\b.{0,6}-.{0,6}\w*(?:before|old|init\w*|start|0)\b.{0,30}[=:]\s*0(?:\.0*)?(?:e[-+]?\d+)?\s*$", re.I)  # fmt: skip
_DIGEST = re.compile(r"(?:param\w*|weights?|model|state\w*)\b.{0,30}(?:hash|checksum|crc|digest|md5|fingerprint)\w*\W{1,4}(?:0x)?([0-9a-f]{6,64})\b", re.I)  # fmt: skip


@detector
class LossRises(OutputDetector):
    """The training loss rises from reading to reading."""

    NAME, CATEGORY = "loss_rises", "C5"
    SOURCE = "ours: of an excerpt 3 losses or more of 50 steps, each higher, the last 1.5 times the first"
    SAME_FAULT = ("nan",)
    MEASURED = ("loss",)

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        for found in losses(log) if log.excerpt else ():
            values = found.values
            rising = all(b > a for a, b in itertools.pairwise(values))
            if len(values) < 3 or not found.finite or not rising or values[0] <= 0:
                continue
            bare = all(r.row.step is None and r.row.epoch is None for r in found.readings)
            summed = re.search(r"running|total|sum|cum|accum", found.key)
            if bare and not summed and len(values) >= 4 and values[-1] >= 2 * values[0]:
                return self._say(found)
            if values[-1] >= 1.5 * values[0] and found.span >= 50:
                return self._say(found)
        return None

    @staticmethod
    def _say(found: Series) -> Sighting:
        evidence, at = quote(found.readings)
        return Sighting(
            "the loss rises all along (suspected: few readings)",
            evidence,
            "Run the same steps on the CPU in float32 and compare loss and gradients of "
            "the first one that differs; look at the learning rate on several chips.",
            threshold="1.5 times the first (twice, without steps), and higher in each reading",
            at=at,
        )


#: A loss that falls by itself comes by smaller values on its way to 0. Ours.
FAR_FROM_0 = 0.1


@detector
class LossZero(OutputDetector):
    """The training loss is exactly 0, from the start or at once."""

    NAME, CATEGORY = "loss_zero", "C5"
    SOURCE = "HF Trainer prints 0.0 for a loss that is not finite (logging_nan_inf_filter)"
    SAME_FAULT = ("nan", "loss_constant")
    MEASURED = ("loss",)

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        found = self._from_the_start(log) or self._at_once(log)
        if found is None:
            return None
        evidence, at = quote(found)
        return Sighting(
            "the loss is exactly 0",
            evidence,
            "Print the loss of one batch before it is averaged: a NaN may have been "
            "filtered out (logging_nan_inf_filter), or all labels are ignored.",
            threshold="0 in at least 3 readings and in all of them, or at once and from then on",
            at=at,
        )

    @staticmethod
    def _from_the_start(log: LogLook) -> Sequence[Reading] | None:
        if any(any(s.values) for s in losses(log)):
            return None  # an auxiliary loss may be 0 by right
        for found in losses(log):
            if len(found.readings) >= 3 and all(v == 0 for v in found.values) and found.digits < 7:
                return found.readings
        return None

    @staticmethod
    def _at_once(log: LogLook) -> Sequence[Reading] | None:
        """A loss that was far from 0 one reading before, and all others of the run with it."""
        every = [s for s in [*losses(log), *evaluations(log)] if is_loss(s.key)]
        for found in every:
            values = found.values
            zeros = len(list(itertools.takewhile(lambda v: v == 0, reversed(values))))
            if not 2 <= zeros < len(values) or min(values[:-zeros]) < FAR_FROM_0:
                continue
            if found.digits >= 3 and all(s.values[-1] == 0 for s in every):
                return found.readings[-zeros - 1 :]
        return None
