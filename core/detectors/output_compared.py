"""The output compares by itself: with the CPU, with what was expected, with before the restart."""

from __future__ import annotations

import math
import re
from collections import defaultdict

from core.detectors.base import OutputDetector, Sighting, detector
from core.detectors.output_fields import fields, number
from core.detectors.output_look import (
    Line,
    LogLook,
    Reading,
    Row,
    is_eval,
    is_loss,
    is_score,
    quote,
)
from core.detectors.output_replicas import chips
from core.detectors.output_sides import devices_apart

_HOST = r"(?:cpu|gpu|cuda|host|reference|torch|golden|eager)"
_DEVICE = r"(?:xla|tpu|neuron|trn\d?|device)"
_CLOSE = re.compile(
    r"allclose\b[^\n]{0,60}?[=:)]?>?\s*\bFalse|\b(?:outputs?|logits?|loss(?:es)?|results?|values?|gradients?|grads?|predictions?|activations?)\b"
    rf".{{0,40}}\b(?:differ|mismatch|disagree|not (?:close|equal|match\w*)|wrong|incorrect)\b.{{0,60}}\b(?:{_HOST}|{_DEVICE})\b"
    rf"|\b(?:{_HOST}|{_DEVICE})\b.{{0,40}}\b(?:outputs?|logits?|results?|values?)\b.{{0,40}}\b(?:differ|mismatch|disagree|wrong|incorrect)\b",
    re.IGNORECASE,
)
_ERROR = re.compile(
    r"\b(?:difference|diff|deviation) between\b.{0,80}?[=:]\s*([\d.]+(?:e[-+]?\d+)?)"
    r"|\b(?:max|mean|rel\w*|abs\w*|l2)[ _-]?(?:abs\w*|rel\w*|l2|numerical)?[ _-]?(?:diff\w*|err\w*|deviation)\b.{0,60}?[=:]\s*([\d.]+(?:e[-+]?\d+)?)",
    re.IGNORECASE,
)
_TWO = re.compile(rf"\b{_HOST}\b.{{0,80}}\b{_DEVICE}\b|\b{_DEVICE}\b.{{0,80}}\b{_HOST}\b", re.I)
_OF_CHIP = re.compile(rf"\b{_DEVICE}\b", re.IGNORECASE)
_SIDE = re.compile(rf"\b({_HOST})\b|\b({_DEVICE})\b(?::\d+)?", re.IGNORECASE)
_EXPECTED = re.compile(
    r"\bexpected\W{1,4}(-?\d[\d.,]*(?:e[-+]?\d+)?)\W.{0,16}?\b(?:got|actual|but (?:got|is|was)|is|was|found)\W{1,4}(-?\d[\d.,]*(?:e[-+]?\d+)?)"
    r"|\b(?:got|actual)\W{1,4}(-?\d[\d.,]*(?:e[-+]?\d+)?)\W.{0,16}?\bexpected\W{1,4}(-?\d[\d.,]*(?:e[-+]?\d+)?)"
    r"|=\s*(-?\d[\d.,]*(?:e[-+]?\d+)?)\s*\(expected\s+(-?\d[\d.,]*(?:e[-+]?\d+)?)\)",
    re.IGNORECASE,
)
_NOT_A_VALUE = re.compile(r"\b(?:bytes|size|samples|examples|chips?|cores?|devices?|world|replicas|version|shape|dim|len|time|seconds|steps?|params|parameters|checkpoint|[KMG]i?B)\b|\d[KMG]\b|\bs/it\b", re.I)  # fmt: skip
#: Relative difference of one number on two devices; TorchTPU's bfloat16 parity has 1.6e-2.
MAX_APART = 0.02


@detector
class DevicesDisagree(OutputDetector):
    """The same value is another one on the device."""

    NAME, CATEGORY = "device_mismatch", "C5"
    SOURCE = (
        "the log's own comparison of the device with the CPU or with what was expected; 2 %: TorchTPU's "
        "tolerance of bfloat16 parity is 1.6e-2"
    )

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        lines = self._said(log) or self._apart(log) or devices_apart(log)
        if not lines:
            return None
        evidence, at = quote(lines)
        return Sighting(
            "a value on the device is not that of the CPU",
            evidence,
            "Compare module by module in float32 with the highest matmul precision; the first "
            "module that differs names the operator.",
            threshold=f"more than {MAX_APART:.0%}, or said by the log",
            at=at,
        )

    @staticmethod
    def _said(log: LogLook) -> list[Line]:
        found = []
        for line in log.having("allclose", "differ", "mismatch", "disagree", "wrong", "incorrect", "not ", "diff", "err", "expected"):  # fmt: skip
            text = line.text
            if re.search(
                r"\bparam|\breplica|\bchips?\b|\bcheckpoint|\bshape|\bkeys?\b|version", text, re.I
            ):
                continue
            m = _ERROR.search(text)
            if (
                _CLOSE.search(text)
                and not re.search(r"\bno\b.{0,20}(?:differ|mismatch)", text, re.I)
            ) or (
                m
                and (_TWO.search(text) or (log.excerpt and _OF_CHIP.search(text)))
                and number(m[1] or m[2]) > MAX_APART
            ):
                found.append(line)
            else:
                e = _EXPECTED.search(text)
                if e and not _NOT_A_VALUE.search(text):
                    a, b = (number(g) for g in e.groups() if g)
                    if math.isfinite(a) and math.isfinite(b) and abs(a - b) > MAX_APART * max(abs(a), abs(b)):  # fmt: skip
                        found.append(line)
        return found[:5]

    @staticmethod
    def _apart(log: LogLook) -> list[Line]:
        """One key, once said of the host and once of the device, with two values."""
        seen: dict[str, dict[str, tuple[float, Line]]] = defaultdict(dict)
        if not log.having("cpu", "gpu", "cuda", "host", "reference"):
            return []
        for line in log.having("cpu", "gpu", "cuda", "host", "reference", "xla", "tpu", "neuron"):
            sides = list(_SIDE.finditer(line.text))
            for f in fields(line.text):
                before = [m for m in sides if m.start() <= f.pos]
                near = (before or sides)[-1 if before else 0] if sides else None
                if near is None or not math.isfinite(f.value):
                    continue
                key = _SIDE.sub("", f.key).rpartition(": ")[2].strip(" :=-()")
                side = "host" if near[1] else "device"
                if re.search(
                    r"time|shape|step|sec|speed|throughput|it/s|mem|util|rate|count|param|size", key
                ):
                    continue
                if is_loss(key) or is_score(key) or re.search(r"logit|output|result|mean|sum|grad|value|pred|reward|return|tensor", key + " " * (not key) + ("tensor" if "tensor(" in line.text else "")):  # fmt: skip
                    step = next(
                        (x.value for x in fields(line.text) if x.key.endswith("step")), None
                    )
                    seen[f"{key}@{step}"].setdefault(side, (f.value, line))
        for name, values in seen.items():
            if len(values) == 2:
                (a, x), (b, y) = values["host"], values["device"]
                if is_score(name.partition("@")[0]) and chips(y.text) not in (None, 1):
                    continue  # a score after training on several chips: of another batch size
                if abs(a - b) > MAX_APART * max(abs(a), abs(b)) and max(abs(a), abs(b)) > 1e-3:
                    return [x, y] if x.no != y.no else [x]
        return []


_BEFORE = re.compile(r"\b(?:before (?:sav\w+|restart|reload\w*|resum\w*)|at save|when saved|saved (?:with|at)|in memory|pre-?save)\b", re.I)  # fmt: skip
_AFTER = re.compile(r"\b(?:after (?:load\w*|reload\w*|restor\w*|resum\w*|restart|sav\w+ (?:and|&|\+) (?:re)?(?:load|stor)\w*)|reload(?:ed)?|restored|loaded (?:model|checkpoint|weights)|from (?:the )?(?:saved|loaded) (?:model|checkpoint|weights)|on load|post-?load|loaded back|resumed)\b", re.I)  # fmt: skip
_WAS = re.compile(
    r"\b(?:was|before|vs\.?|instead of|saved(?: with| at)?|expected)\W{1,3}(\d+(?:\.\d+)?)\b", re.I
)
_RESUMED = re.compile(r"\b(?:resum(?:ed|ing)|restor(?:ed|ing)|load(?:ed|ing) (?:the )?(?:checkpoint|ckpt))\b", re.I)  # fmt: skip


@detector
class WorseAfterRestart(OutputDetector):
    """After a checkpoint was loaded the model is worse than when it was saved."""

    NAME, CATEGORY = "restart_regression", "C3"
    SOURCE = (
        "a checkpoint that restores everything gives the same loss. Ours: the first loss after the "
        "restart is 1.5 times the last one before, or a score falls by more than a tenth"
    )

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        lines = self._labelled(log) or self._restarted(log)
        if not lines:
            return None
        evidence, at = quote(lines)
        return Sighting(
            "the model is worse after the checkpoint was loaded",
            evidence,
            "Compare the names and one tensor of the file with the model in memory, and load the "
            "optimizer's, scheduler's and random state too.",
            threshold="loss 1.5 times as high, score a tenth lower",
            at=at,
        )

    @staticmethod
    def _labelled(log: LogLook) -> list[Line]:
        before: dict[str, tuple[float, Line]] = {}
        latest: dict[tuple[str, bool], Reading] = {}
        for r in log.readings(lambda key: is_loss(key) or is_score(key)) if log.having("load", "restor", "resum", "save") else ():  # fmt: skip
            name = "loss" if is_loss(r.field.key) else "score"
            kind = (name, is_eval(r.row, r.field))
            if _AFTER.search(r.row.text) and (was := _WAS.search(r.row.text)):
                if _worse(name, number(was[1]), r.value):
                    return [r.row.line]
                continue
            if _BEFORE.search(r.row.text):
                before[name] = (r.value, r.row.line)
            elif _AFTER.search(r.row.text):
                if name in before and _worse(name, before[name][0], r.value):
                    return [before[name][1], r.row.line]
                old = latest.get(kind)
                if log.excerpt and old and _much_worse(name, old.value, r.value):
                    return [old.row.line, r.row.line]
            latest[kind] = r
        return []

    @staticmethod
    def _restarted(log: LogLook) -> list[Line]:
        marks = log.matching(_RESUMED, 5, "resum", "restor", "load")
        lost = log.readings(is_loss, lambda row, _: not row.evaluation)
        for mark in marks:
            old = [r for r in lost if r.row.line.no < mark.no]
            new = [r for r in lost if r.row.line.no >= mark.no]
            if len(old) < 2 or not new or new[0].field.key != old[-1].field.key:
                continue
            recent = max(r.value for r in old[-3:])
            if _worse("loss", recent, new[0].value) and new[0].value > 0.5:
                return [old[-1].row.line, mark, new[0].row.line]
        return []


def _worse(name: str, before: float, after: float) -> bool:
    if not (math.isfinite(before) and math.isfinite(after)) or before <= 0:
        return False
    return after > 1.5 * before if name == "loss" else after < 0.9 * before


def _much_worse(name: str, before: float, after: float) -> bool:
    """Of values that no word says to be of one moment: twice the loss, a fifth of the score."""
    return after > 2 * before > 0 if name == "loss" else 0 < after < 0.8 * before


_VERSIONS = re.compile(
    r"\b(?:torch_xla|torch|libtpu|jaxlib|jax|pjrt|neuronx?\w*)\b.{0,80}\b(?:version|versions|build|built|compiled|release)\b.{0,60}"
    r"\b(?:mismatch|incompatib\w*|(?:do|does) not match|not (?:be )?compatible|differs?|different|unsupported|not supported|too (?:old|new))\b"
    r"|\bversion (?:mismatch|conflict)\b.{0,60}\b(?:torch_xla|torch|libtpu|jaxlib|jax)\b",
    re.IGNORECASE,
)


@detector
class VersionsApart(OutputDetector):
    """A library warns that versions do not fit each other, and goes on."""

    NAME, CATEGORY = "version_warning", "C1"
    SOURCE = "the libraries' own warnings; torch and torch_xla are built for each other"

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        lines = log.matching(_VERSIONS, 3, "version", "built", "compiled", "release")
        if not lines:
            return None
        evidence, at = quote(lines)
        return Sighting(
            "libraries of different versions (suspected cause)",
            evidence,
            "Pin torch, torch_xla and libtpu to one release (torch_xla[tpu] names its libtpu).",
            threshold="any warning of it",
            at=at,
        )


_FIRST = re.compile(r"\b(?:first|batch|sample|index|indices|ids|idx|input_ids|data)\b.{0,24}[\[(=:]\s*\[?((?:\d+\s*,\s*){2,20}\d+)", re.I)  # fmt: skip


@detector
class SameDataEverywhere(OutputDetector):
    """Replicas are fed the same samples."""

    NAME, CATEGORY = "same_data_on_ranks", "C3"
    SOURCE = "the first sample numbers of two replicas are the same: no distributed sampler (ours)"

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        seen: dict[tuple[str, float | None], dict[str, Line]] = defaultdict(dict)
        ranks = {row.line.no: row for row in log.rows if row.rank}
        for line in log.having("first", "batch", "sample", "ind", "ids", "idx", "data"):
            m = _FIRST.search(line.text)
            row: Row | None = ranks.get(line.no)
            if m and row is not None:
                seen[(re.sub(r"\s", "", m[1]), row.step)].setdefault(row.rank, line)
        for lines in seen.values():
            if len(lines) > 1:
                evidence, at = quote(lines.values())
                return Sighting(
                    "replicas are fed the same samples",
                    evidence,
                    "Give the DataLoader a DistributedSampler with the world size and rank of "
                    "the run, and call its set_epoch.",
                    threshold="the same sample numbers on two replicas",
                    at=at,
                )
        return None
