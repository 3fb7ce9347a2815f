"""Lists of numbers that the output prints of two sides: the CPU and the device, or two replicas.

A log that compares prints the same words twice, each time with another side before them:
``cpu: logits [0.1, 0.9]`` and ``xla: logits [0.4, 0.6]``.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from itertools import pairwise

from core.detectors.output_look import Line, LogLook

#: Relative difference of two lists, by the largest number in them, that is none of rounding.
MAX_APART = 0.02
_LISTED = re.compile(r"\[[\[\s]*([-+\w.,\s]{1,2000}?)[\]\s]*\]")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|\.\d+|nan|inf)", re.IGNORECASE)
_DEVICE_OF = re.compile(r",?\s*device='?(?:xla|tpu|cpu|cuda)(?::\d+)?'?|,?\s*dtype=[\w.]+|,?\s*grad_fn=<\w+>")  # fmt: skip
_HOST = re.compile(r"\b(?:cpu|gpu|cuda|host|reference|expected|torch|eager)\b", re.IGNORECASE)
_CHIP = re.compile(r"\b(?:xla|tpu|neuron|actual|got)\b(?::\d+)?", re.IGNORECASE)
_RANK = re.compile(r"\b(?:rank|replica|ordinal|core|worker|process|host|device|xla:|tpu:)[ _:=#]{0,3}(\d{1,4})\b", re.I)  # fmt: skip
_HELD = re.compile(r"\b(?:weights?|params?|parameters?|bias|embeddings?)\b", re.IGNORECASE)
_BEFORE_TRAINING = re.compile(r"\bgrads?\b|gradients?|shard|local|slice", re.IGNORECASE)


def _numbers(text: str) -> tuple[list[float], str]:
    """The first list of two numbers or more in a line, and the line without it."""
    bare = _DEVICE_OF.sub("", text)
    for m in _LISTED.finditer(bare):
        items = [x.strip() for x in m[1].split(",") if x.strip() and x.strip() != "..."]
        if len(items) >= 2 and all(_NUMBER.fullmatch(x) for x in items):
            return [float(x) for x in items], bare[: m.start()]
    return [], ""


def _words(before: str, side: re.Pattern[str]) -> str:
    """What a line says of its list, without the side: what has to be alike."""
    bare = re.sub(r"tensor|array|[^a-z ]", " ", side.sub(" ", before).lower())
    return " ".join(bare.split())


def _apart(a: list[float], b: list[float]) -> bool:
    if len(a) != len(b):
        return False
    if any(math.isfinite(x) != math.isfinite(y) for x, y in zip(a, b, strict=True)):
        return True
    pairs = [(x, y) for x, y in zip(a, b, strict=True) if math.isfinite(x)]
    size = max((max(abs(x), abs(y)) for x, y in pairs), default=0.0)
    return size > 1e-3 and max(abs(x - y) for x, y in pairs) > MAX_APART * size


def devices_apart(log: LogLook) -> list[Line]:
    """Two lines, of the CPU and of the device, whose lists differ; empty where there are none."""
    found: dict[str, dict[str, tuple[list[float], Line]]] = defaultdict(dict)
    for line in log.having("["):
        values, before = _numbers(line.text) if len(line.text) < 2000 else ([], "")
        if not values or re.search(r"shape|size|mesh|time|seconds|loss", before, re.I):
            continue
        device = re.search(r"device='?(?:xla|tpu)", line.text) or _CHIP.search(before)
        host = _HOST.search(before)
        if bool(device) == bool(host):
            continue
        words = _words(before, _CHIP if device else _HOST)
        found[words].setdefault("device" if device else "host", (values, line))
    for sides in found.values():
        if len(sides) == 2 and _apart(sides["host"][0], sides["device"][0]):
            return [sides["host"][1], sides["device"][1]]
    return []


def replicas_apart(log: LogLook) -> list[Line]:
    """Lines of several replicas whose weights, printed as lists, differ."""
    found: dict[str, dict[str, tuple[list[float], Line]]] = defaultdict(dict)
    for line in log.having("["):
        rank = _RANK.search(line.text) if len(line.text) < 2000 else None
        values, before = _numbers(line.text) if rank else ([], "")
        if rank is None or not _HELD.search(before) or _BEFORE_TRAINING.search(before):
            continue
        if values:
            found[_words(before, _RANK)].setdefault(rank[1], (values, line))
    for ranks in found.values():
        if any(_apart(a[0], b[0]) for a, b in pairwise(ranks.values())):
            return [line for _, line in ranks.values()]
    return []
