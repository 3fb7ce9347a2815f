"""Reading one field of a probe's record: a JSON value in, a trusted value out.

Records come from a stranger's process: a value of the wrong type, huge or hostile, reads as None
(or as empty). ``Record`` is what all records have in common.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from core.text import clean

MAX_TEXT = 500  # characters
MAX_ITEMS = 2000  # of one list or table
_WORDS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def number(value: Any) -> float | None:
    """A number, ``nan`` and infinities included."""
    if isinstance(value, str):
        return _WORDS.get(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def count(value: Any) -> int | None:
    """A whole number from 0 on."""
    found = number(value)
    if found is None or not math.isfinite(found) or not 0 <= found < 2**63:
        return None
    return int(value)


def flag(value: Any) -> bool | None:
    """True or false."""
    return value if isinstance(value, bool) else None


def text(value: Any) -> str | None:
    """A text of at most ``MAX_TEXT`` characters, cleaned."""
    return clean(value[:MAX_TEXT]) if isinstance(value, str) else None


def string(value: Any) -> str:
    """``text``, empty where there is none."""
    return text(value) or ""


def listed(item: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    """A reader of lists, at most ``MAX_ITEMS`` long; empty for anything else."""

    def read(value: Any) -> tuple[Any, ...]:
        return tuple(item(x) for x in value[:MAX_ITEMS]) if isinstance(value, list) else ()

    return read


def maybe_list(item: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...] | None]:
    """``listed``, but None for anything else."""
    read = listed(item)
    return lambda value: read(value) if isinstance(value, list) else None


def counts(value: Any) -> dict[str, int]:
    """A table of counts; entries that are none are left out."""
    if not isinstance(value, dict):
        return {}
    pairs = ((string(k), count(v)) for k, v in list(value.items())[:MAX_ITEMS])
    return {name: n for name, n in pairs if n is not None}


def maybe_counts(value: Any) -> dict[str, int] | None:
    """``counts``, but None where there is no table."""
    return counts(value) if isinstance(value, dict) else None


def maybe_texts(value: Any) -> dict[str, str] | None:
    """A table of texts, None where there is no table."""
    if not isinstance(value, dict):
        return None
    pairs = ((string(k), text(v)) for k, v in list(value.items())[:MAX_ITEMS])
    return {name: found for name, found in pairs if found is not None}


def hyperparameter(value: Any) -> Any:
    """What a parameter group may hold: number, text, flag or a list of them."""
    if isinstance(value, list):
        return [hyperparameter(x) for x in value[:20]]
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) < 2**63:
        return value
    found = number(value)
    return found if found is not None else text(value)


def group(value: Any) -> dict[str, Any]:
    """One parameter group of an optimizer."""
    if not isinstance(value, dict):
        return {}
    return {string(k): hyperparameter(v) for k, v in list(value.items())[:50]}


def entry(read: Callable[[Any], Any]) -> Any:
    """A field of a record, with its reader; its default is what the reader makes of None."""
    empty = read(None)
    if isinstance(empty, dict):
        return field(default_factory=dict, metadata={"read": read})
    return field(default=empty, metadata={"read": read})


@dataclass(frozen=True, slots=True)
class Record:
    """What every record has: who wrote it and when."""

    K: ClassVar[str] = ""
    pid: int | None = entry(count)
    tid: int | None = entry(count)
    rank: int | None = entry(count)
    t: float | None = entry(number)
    wall: float | None = entry(number)


def build(cls: type[Any], value: Any) -> Any:
    """An instance of a record class from a JSON object, each field by its reader."""
    given = value if isinstance(value, dict) else {}
    return cls(
        **{
            f.name: f.metadata["read"](given.get(f.name))
            for f in dataclasses.fields(cls)
            if "read" in f.metadata
        }
    )
