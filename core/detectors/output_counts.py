"""Counts that must not change: samples evaluated, parameters of the model."""

from __future__ import annotations

import math
import re

from core.detectors.base import OutputDetector, Sighting, detector
from core.detectors.output_look import Line, LogLook, Row, quote

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
_PART = re.compile(r"\b(?:over|on|from) (\d[\d,]*) (?:of|out of) (\d[\d,]*) (?:samples|examples|images|sentences|items|rows|questions)\b", re.I)  # fmt: skip
_SLASHED = re.compile(r"\b(?:samples|examples|images|n)\s?[=:]\s?(\d[\d,]*) ?/ ?(\d[\d,]*)\b", re.I)
_SET_OF = re.compile(r"\b(?:on|over|from) (\d[\d,]*) (?:\w+ )?(?:samples|examples|images|sentences|items|rows|questions)\b.{0,24}?\b(?:test|val\w*|dev|eval\w*|data) ?set\W{1,4}(?:\w+ )?(\d[\d,]*)", re.I)  # fmt: skip
_OF_WHOLE = re.compile(r"\b(?:acc\w*|f1|top-?1)\W{1,3}(\d{1,3}\.\d{1,8}) ?%?\W{1,3}(\d[\d,]{0,10}) ?(?:of|out of|/) ?(\d[\d,]{0,10}) (?:samples|examples|images|sentences|items)", re.I)  # fmt: skip
_SHARE = re.compile(r"\b(?:on|of|over|in) (?:all )?(\d[\d,]*) (?:\w+ )?(?:samples|examples|images|sentences|items|rows|questions)\b.{0,40}?\b\d[\d,]* ?(?:/|of|out of) ?(\d[\d,]*)\b", re.I)  # fmt: skip
_COUNTED = re.compile(
    r"\b(?:n|n_samples|num_samples|num samples|samples|count|examples|eval_samples|evaluated|scored)\s?[=:]\s?(\d[\d,]*)"
    r"|\b(?:evaluated|scored|gathered|collected|computed|measured)\s(?:on |over |only )?(\d[\d,]*)",
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
            "computed",
            "measured",
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
                if n >= 10 and (
                    c is not None or re.search(r"val|eval|test|dev|expected", text, re.I)
                ):
                    whole = (n, line)
            if (m := _SLASHED.search(text)) and _about_evaluation(text):
                pairs.append((_int(m[1]), _int(m[2]), [line]))
            part = _PART.search(text)
            if part and _about_evaluation(text):
                pairs.append((_int(part[1]), _int(part[2]), [line]))
            scored = _SET_OF.search(text)
            if scored and _about_evaluation(text):
                pairs.append((_int(scored[1]), _int(scored[2]), [line]))
            if (m := _OF_WHOLE.search(text)) and (a := _int(m[2])) <= (b := _int(m[3])) and b:
                # Of "0.91 (1563 of 12500)" the second is no number of right answers.
                score = float(m[1]) / (100 if float(m[1]) > 1 else 1)
                if abs(a / b - score) > 0.02:
                    pairs.append((a, b, [line]))
            share = _SHARE.search(text)
            if share and _about_evaluation(text):
                pairs.append((_int(share[2]), _int(share[1]), [line]))
            if counted and whole:
                pairs.append((counted[0], whole[0], [counted[1], whole[1]]))
        predicted = self._predicted(log) or self._beside(log)
        for n, total, lines in [*predicted, *pairs]:
            fewer = n < total if predicted else n < total * 0.99
            more = n > (total if log.excerpt else total * 1.02)
            if (n > 0 and fewer) or (more and n < total * 1000):
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

    @staticmethod
    def _beside(log: LogLook) -> list[tuple[int, int, list[Line]]]:
        """Of an excerpt: what was evaluated, and what there is, in two places of a few lines."""
        text = "\n".join(x.text for x in log.lines) if log.excerpt else ""
        if not re.search(r"eval|\bval|test|\bacc|\bf1\b|metric|predict", text, re.I):
            return []
        if re.search(r"\btrain|subset|max_eval|\blimit|\bcut\b|truncat|dropp|trimm", text, re.I):
            return []
        whole: tuple[int, Line] | None = None
        done: tuple[int, Line] | None = None
        for line in log.lines:
            if m := _WHOLE_SET.search(line.text):
                whole = (_int(m[1]), line)
            pair = _PREDICTED.search(line.text)
            if pair and _int(pair[1]) != _int(pair[2]):
                return [(_int(pair[1]), _int(pair[2]), [line])]
            if (m := _DONE.search(line.text)) and (whole is None or m.start(1) != m.end(1)):
                done = (_int(m[1]), line)
        if not whole or not done or whole[0] < 20 or done[0] < 20:
            return []
        if done[0] == whole[0] or not 0.02 <= done[0] / whole[0] <= 1.5:
            return []
        return [(done[0], whole[0], [done[1], whole[1]])]

    @staticmethod
    def _predicted(log: LogLook) -> list[tuple[int, int, list[Line]]]:
        """The number of predictions, and of what there was to predict: not one may be missing."""
        whole: tuple[int, Line] | None = None
        for line in log.having("len(", "shape", "num_rows", "predictions"):
            if m := _MANY_IN.search(line.text):
                whole = (int(m[1] or m[2]), line)
            p = _MANY_OUT.search(line.text)
            if p and whole:
                n = int(p[1] or p[2])
                return [(n, whole[0], [whole[1], line])] if 0 < n < whole[0] else []
        return []


_DONE = re.compile(r"\b(?:evaluated|scored|predictions?|preds|total|gathered|counted|outputs)\b(?:\.shape)?(?: (?:on|over|of))?\s?[(:=\[]{0,3}\s?(\d[\d,]{1,9})\b(?!\.\d)(?! ?[x*]\b)", re.I)  # fmt: skip
_PREDICTED = re.compile(r"\b(\d[\d,]{1,9}) (?:predictions|preds|outputs|scores)\b.{0,24}?\b(\d[\d,]{1,9}) (?:labels|references|samples|examples|images|targets)\b", re.I)  # fmt: skip
_WHOLE_SET = re.compile(r"\b(?:dataset|data set|(?:test|val\w*|eval\w*|dev)(?:uation)?[ _](?:data)?set|labels?|num[_ ]examples|references|ground truth)\b(?: (?:size|has|in|of|is|in eval set|in (?:the )?\w+ set))?\s?[(:=\[]{0,2}\s?(\d[\d,]{1,9})\b(?!\.\d)", re.I)  # fmt: skip
_MANY_IN = re.compile(r"\blen\(\w*(?:data|dataset|ds|labels?|references|test|val\w*|eval\w*)(?:\[.{1,20}\])?\)\W{1,4}(\d{1,9})\b|\bnum_rows\W{1,4}(\d{1,9})\b")  # fmt: skip
_MANY_OUT = re.compile(r"\blen\(\w*(?:preds?|predictions?|outputs?|results?|logits)\)\W{1,4}(\d{1,9})\b|\b(?:preds?|predictions?|outputs?|logits)\.shape(?:\[0\])?\W{1,4}(\d{1,9})\b")  # fmt: skip


def _about_evaluation(text: str) -> bool:
    return bool(
        re.search(r"val|eval|test|acc|score|metric|f1|bleu|gather|predict", text, re.I)
        and not re.search(
            r"\btrain|max_eval|subset|limit|batch|per second|/s\b|workers|seed", text, re.I
        )
    )


def _int(text: str) -> int:
    return int(text.replace(",", "")[:15] or 0)


_GOES_ON = re.compile(r"^\W*(?:after|then|on|and|now)\b", re.IGNORECASE)
_PARAMS = re.compile(
    r"\b(?:model size|params?|parameters?|tensors|layer count|weights)\b", re.IGNORECASE
)
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
    r"|is (?:lm_head|embedding|decoder|weight)\S* tied\W{1,4}False|tied\W{1,3}False|(?:lm_head|decoder|head)\S*\.weight is \S*(?:embed|wte|tok|shared|encoder)\S*\W{1,4}False"
    r"|(?:lm_head|decoder|head|output|softmax)\S* .{0,30}(?:embed|wte|tok)\S* .{0,40}(?:differ|diff\b|not equal|apart|diverge|different)"
    r"|(?:embed|wte|tok)\S* .{0,30}(?:lm_head|decoder|head|output)\S* .{0,40}(?:differ|diff\b|not equal|apart|diverge|different)"
    r"|\bshar(?:e|es|ing) (?:the )?(?:same )?(?:storage|memory|data|tensor)\b\W{1,4}False|data_ptr\(\).{0,60}\bFalse\b|\b(?:embed|wte|lm_head|tied|head)\S*.{0,80}\bFalse\b.{0,20}\bafter\b"
    r"|\bTrue\b.{0,30}\bbefore\b.{0,60}\bFalse\b.{0,30}\bafter\b|\bbefore\b.{0,30}\bTrue\b.{0,60}\bafter\b.{0,30}\bFalse\b"
    r"|\buntied\b.{0,40}(?:weights?|embed|head)|use the `?tie_weights`? method",
    re.IGNORECASE,
)
#: What changes the number of parameters by intent.
_BY_INTENT = re.compile(r"prun|freez|froz|lora|adapter|quanti|distil|merg|resiz|expan|token|added|compress|trainable|unfreez|sparse|grow", re.I)  # fmt: skip
#: What every model has: a count of those that can be trained names no intent.
_OF_ALL = re.compile(
    r"^\W*(?:(?:the )?(?:total )?(?:number|num|count) of )?trainable (?=param)", re.I
)
_SCALE = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "million": 1e6, "billion": 1e9, "thousand": 1e3}


@detector
class ParameterCount(OutputDetector):
    """The model has another number of parameters after the move: tied weights are two now."""

    NAME, CATEGORY = "param_count_changed", "C3"
    SOURCE = (
        "public case param_count_changed (pytorch-lightning#2705): more parameters after the move than before; "
        "Lightning's own warning of it. Any difference beyond the printed digits"
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
            "share ",
            "shares ",
            "sharing ",
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
        inside, last = "", 0
        about = {
            x.no for x in log.having("param", "tensors", "layer count", "weights", "model size")
        }
        for row in log.rows if about else ():
            goes_on = bool(inside) and row.line.no == last + 1 and _GOES_ON.match(row.text)
            if not goes_on and (
                row.line.no not in about or not _PARAMS.search(row.text.replace("_", " "))
            ):
                continue
            last = row.line.no
            inside = inside if goes_on else ""
            for f in row.fields:
                named = bool(_PARAMS.search(f.key)) or f.unit.lower() in ("params", "parameters")
                label = " ".join(_WHERE.sub(" ", f.key).split())
                called = _PARAMS.search(row.text[max(0, f.pos - 40) : f.pos].replace("_", " "))
                named = named or bool(not label and called and f.value >= 10_000)
                if named and f.unit.lower() in _SCALE:
                    inside = label or "params"
                elif (
                    not label.replace("xm send cpu data", "")
                    and f.unit.lower() in _SCALE
                    and inside
                ):
                    named, label = True, inside  # ... on CPU: 110M; on TPU: 133M
                if (
                    not named
                    or not math.isfinite(f.value)
                    or _BY_INTENT.search(_OF_ALL.sub("", row.text))
                ):
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
                contrast = any(_CONTRAST.search(r.text) for r in (before[2], row)) or (
                    before[2] is row and re.search(r"->|→|=>", row.text)
                )
                if apart and contrast:
                    return [before[2].line, row.line]
        return []
