"""What a line of training output says, as data; names and numbers in one form."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from functools import lru_cache

#: Longer lines are cut before a pattern sees them.
MAX_CHARS = 2_000
#: A line with more values than that is a dump; the first so many are kept.
MAX_VALUES = 64
#: Labels of a line that tell one series from another, and the length of each.
MAX_LABELS = 4
MAX_LABEL_CHARS = 40
MAX_NAME_CHARS = 80


@dataclass(frozen=True, slots=True)
class Reading:
    """The numbers of one line of training output.

    ``values`` are as printed: ``91.2%`` is 91.2, and ``nan`` and ``inf`` are kept. Their names are
    in the form of :func:`tidy_name`. Durations that state their unit are in seconds, and their
    names end in ``_s``; the time of one step or batch, also from a rate such as ``2.99it/s``, is
    ``step_time_s``. A running average printed in brackets behind a value has the name of the
    value with ``_avg``.

    ``step`` is the optimizer step or batch counter, where one is printed. ``where`` holds what
    tells series of one run apart: ``phase`` (``train``, ``val``, ``test``), ``label`` (a text in
    brackets before the line), ``bar`` (what a progress bar is of), ``task``, ``device``. ``line``
    is the index of the line, in :func:`core.readings.training.series` only.
    """

    reader: str
    values: dict[str, float]
    step: int | None = None
    total_steps: int | None = None
    epoch: float | None = None
    rank: int | None = None
    where: dict[str, str] = field(default_factory=dict)
    line: int | None = None


#: A number as programs print it; at most 30 digits either side, so that no text takes long.
NUMBER = (
    r"[-+]?(?:\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d{0,30})?|\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})"
    r"(?:[eE][-+]?\d{1,4})?"
)
NOT_FINITE = r"[-+]?(?:nan|NaN|NAN|inf|Inf|INF|infinity|Infinity)\b"
VALUE = rf"(?:{NOT_FINITE}|{NUMBER})"
#: One number inside ``tensor(...)``, ``Array(...)``, ``np.float32(...)`` and the like.
WRAPPED = (
    r"(?:[A-Za-z]{1,8}\.)?(?:tensor|Tensor|Array|DeviceArray|array|float(?:16|32|64)?|bfloat16)"
    rf"\(\s{{0,8}}\[{{0,3}}\s{{0,8}}(?P<wrapped>{VALUE})\s{{0,8}}\]{{0,3}}\s{{0,8}}"
    r"(?:,[^()]{0,200})?\)"
)
_DEVICE = re.compile(r"device=['\"]([a-z]+(?::\d{1,4})?)['\"]")

_NOT_NAME = re.compile(r"[^0-9a-z@]+")


@lru_cache(maxsize=4096)  # a program prints the same few names all the time
def tidy_name(text: str) -> str:
    """A name in the one form used here: lower case, and ``_`` for all but letters, digits and @.

    ``Train/Loss``, ``train loss`` and ``train-loss`` are all ``train_loss``; ``Acc@1`` is
    ``acc@1``, ``grad_norm(local)`` is ``grad_norm_local``.
    """
    return _NOT_NAME.sub("_", text[:MAX_NAME_CHARS].lower()).strip("_")


def to_number(text: str) -> float | None:
    """A printed number, with ``1,234.5`` read as thousands; null for what is none."""
    try:
        return float(text.strip().replace(",", ""))
    except ValueError:
        return None


def to_count(value: float | None) -> int | None:
    """A step count: a whole number from 0, else null."""
    if value is None or not math.isfinite(value) or value < 0 or value != int(value):
        return None
    return int(value)


def device_of(text: str) -> str:
    """The device that a printed tensor names, such as ``xla:1``; empty for none."""
    found = _DEVICE.search(text)
    return found[1] if found else ""
