"""Numbers in a line of output, with the words they belong to.

Programs print numbers in any style (``loss=2.30``, ``'loss': 2.30``, ``| loss 2.30 |``,
``train loss 2.30``). Each number is taken with the words between it and the number, bracket or
separator before it. That finds too much, never too little: a detector asks for the few keys it
knows. Linear in the length of the line.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache

#: A number that is not part of a word or of another number: 1, -2.5e-3, 124,439,808, nan.
_NUMBER = re.compile(
    r"(?<![\w.])(?<!xla:)(?<!XLA:)(?<!tpu:)(?<!TPU:)(?<!cpu:)(?<!CPU:)(?<!cuda:)"
    r"([-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+)"
    r"|[-+]?(?:nan|NaN|NAN|inf|Inf|INF|infinity|Infinity)(?![\w.]))"
)
_UNIT = re.compile(r"\s?(%|[A-Za-zµ]+(?:/[A-Za-z]+)?)(?![A-Za-z_]*(?:\s*[=:]|[_(]))")
_ORDINAL = re.compile(r"^(?:st|nd|rd|th) ")
_KEY_END = re.compile(r"[|,;{}\[\]<>\"'()]")
_TIGHT = re.compile(r"[\s\"':=>]*(?:tensor\(|array\()?[\s\[\(]*$")
_SPACE = re.compile(r"[\s_]+")
#: Longest key, in characters.
KEY_CHARS = 48


@dataclass(frozen=True, slots=True)
class Field:
    """One number of a line: ``key`` is lower case with single spaces, without quotes.

    ``text`` is the number as it was printed, ``unit`` the letters (or %) right after it, ``of``
    the number after a slash (``3/10``), ``pos`` where it stands.
    """

    key: str
    value: float
    text: str
    unit: str = ""
    of: float | None = None
    pos: int = 0

    @property
    def resolution(self) -> float:
        """The step between two values that print differently: 0.001 for ``2.114``."""
        mantissa, _, exponent = self.text.lower().partition("e")
        decimals = len(mantissa.partition(".")[2])
        return float(10.0 ** (_int(exponent) - decimals))


def _int(text: str) -> int:
    try:
        return max(-300, min(300, int(text or 0)))
    except ValueError:
        return 0


def number(text: str) -> float:
    """The value of a printed number; thousands separators allowed."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return math.nan


@lru_cache(maxsize=8192)
def fields(text: str) -> tuple[Field, ...]:
    """All numbers of one line, in order. Remembered, since a live run is read again and again."""
    found: list[Field] = []
    before, main = 0, ""
    matches = list(_NUMBER.finditer(text))[:200]
    for i, match in enumerate(matches):
        if match.start() < before:
            continue
        key = _key(text[max(before, match.start() - 120) : match.start()])
        end = match.end()
        of = None
        follow = matches[i + 1] if i + 1 < len(matches) else None
        if follow and text[end : follow.start()].strip(" ") == "/":
            of, end = number(follow.group(1)), follow.end()
        unit = _UNIT.match(text, end)
        if found:
            between = text[found[-1].pos + len(found[-1].text) : match.start()]
            about = _ABOUT.search(found[-1].key)
            if about and about.start() and _CLAUSE.fullmatch(between):
                key = found[-1].key[: about.start()]  # accuracy on the 10000 test images: 9.8 %
            elif _ARROW.match(between):
                key = found[-1].key  # 124.4M -> 163.0M: two values of one key
            elif not key and _glued(text, found[-1], between):
                key = f"{found[-1].key} {found[-1].text}".strip()
            elif (
                not key
                and main
                and (
                    _LIST.match(between)
                    or (_PLACE.search(found[-1].key) and between.strip() == ":")
                )
            ):
                key = main  # 8.1 (step 100), 2.2 (step 200): the same
        found.append(
            Field(key, number(match[1]), match[1], unit[1] if unit else "", of, match.start())
        )
        if key and not _PLACE.search(key):
            main = key
        elif (rest := _AT.sub("", key)) and rest != key:
            main = rest  # "nodes: step 1 4012, step 2 8024", "size at step 1: 812"
        before = end
    return tuple(found)


def _key(before: str) -> str:
    before = _ORDINAL.sub("", _TIGHT.sub("", before), count=1)
    ends = [m.end() for m in _KEY_END.finditer(before)]
    # "accuracy (val): " and "params after .to(): " keep their words; "'epoch': 1, 'loss': " cuts.
    if ends and not before[ends[-1] :].strip(" :=-"):
        key = _KEY_END.sub(" ", before)
    else:
        key = before[ends[-1] :] if ends else before
    return _SPACE.sub(" ", key).strip(" :=-#*.").lower()[-KEY_CHARS:]


#: A number behind such a word says how many are spoken of; the next one is what is said of them.
_ABOUT = re.compile(r" (?:on|over|for) (?:the|all|these|a)$")
_CLAUSE = re.compile(r" (?:[a-z]+ ){0,3}[a-z]+ ?[:=]?\s*")
_ARROW = re.compile(r"^\s?\w{0,10}\s*(?:->|→|=>|-->)\s*$")


#: What may stand between two values of one list; and keys that say where, not what.
_LIST = re.compile(
    r"^[%\s]{0,3}(?:\([^()]{0,30}\))?\s*[,;]?\s*$|^\)?\s*[,;]\s*(?:\([^()]{0,30}\))?\s*$"
)
_AT = re.compile(
    r"(?:^|[:,]? )(?:(?:at|in|after|for|of) )?(?:the )?(?:\w+ )?(?:step|steps|epoch|epochs|iter|iteration|batch|rank|replica|device|line|at|in|over)$"
)
_PLACE = re.compile(
    r"(?:^|\W)(?:step|steps|epoch|epochs|iter|iteration|batch|rank|replica|device|line|size|at|in|over)$"
)


def _glued(text: str, last: Field, between: str) -> bool:
    """Whether the last number belongs to a name, as in ``top-5: 0.9`` or ``logits[0] 0.9``."""
    return last.pos > 0 and text[last.pos - 1] in "-@[" and not between.strip(" :=]")


_DURATION = re.compile(
    r"(?<![\w.])(\d+(?:\.\d+)?)\s*"
    r"(days?|d|hours?|hrs?|h|minutes?|mins?|min|m|seconds?|secs?|sec|s|ms|us|µs|ns)(?![A-Za-z])"
)
_CLOCK = re.compile(r"(?<![\d:.])(?:(\d{1,4}):)?(\d{1,2}):(\d{2})(?:\.\d+)?(?![\d:])")
_SECONDS = {"d": 86400.0, "h": 3600.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def seconds_of(amount: float, unit: str) -> float:
    """Seconds of ``amount`` in a unit such as ``min``, ``h``, ``ms`` or ``seconds``."""
    if unit in _SECONDS:
        return amount * _SECONDS[unit]
    return amount * {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}.get(unit[:1].lower(), 1.0)


def durations(text: str) -> list[float]:
    """Durations in a line, in seconds: ``31 min``, ``412.3s``, ``00:12:40``, ``13m05s576ms``.

    Parts that follow each other without a gap are one duration.
    """
    found: list[tuple[int, int, float]] = []
    # 13m05s576ms438.079us: parts are glued, so the word boundary is given by the digits.
    for chain in _CHAIN.finditer(text):
        total = sum(seconds_of(float(n), u) for n, u in _PART.findall(chain.group()))
        found.append((chain.start(), chain.end(), total))
    for match in _DURATION.finditer(text):
        if not any(a <= match.start() < b for a, b, _ in found):
            found.append((match.start(), match.end(), seconds_of(float(match[1]), match[2])))
    for match in _CLOCK.finditer(text):
        found.append((match.start(), match.end(), clock(match.group())))
    return [seconds for _, _, seconds in sorted(found)]


_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|us|ns|d|h|m|s)")
_CHAIN = re.compile(r"(?<![\w.])(?:\d{1,6}(?:\.\d{1,9})?(?:ms|us|ns|d|h|m|s)){2,6}(?![A-Za-z])")


def clock(text: str) -> float:
    """Seconds of ``mm:ss`` or ``hh:mm:ss``."""
    total = 0.0
    for part in text.split(":"):
        total = total * 60 + number(part)
    return total


_SIZE = re.compile(
    r"(?<![\w.])(\d+(?:,\d{3})*(?:\.\d+)?)\s?(bytes|byte|[KMGT]i?B?|[kmgt]i?b|B)(?![A-Za-z0-9])"
)
_FACTORS = {"k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "b": 1.0}


def sizes(text: str) -> list[tuple[float, str, int]]:
    """Sizes in a line: (bytes, as printed, position). KB and KiB count as much: 1000."""
    return [
        (number(m[1]) * _FACTORS[m[2][0].lower()], m.group(), m.start())
        for m in _SIZE.finditer(text)
    ]
