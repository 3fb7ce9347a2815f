"""Dictionaries and JSON objects in a line: HF Trainer, accelerate, Lightning, JSON logs."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from core.readings import words
from core.readings.pairs import read_pairs
from core.readings.prefixes import Line, put_label
from core.readings.reading import (
    MAX_VALUES,
    VALUE,
    WRAPPED,
    Reading,
    device_of,
    tidy_name,
    to_count,
    to_number,
)

_OPEN = re.compile(r"[\w.]{0,40}\(?\{\s{0,8}(?=[\"'])")
_ITEM = re.compile(
    r"(?P<q>[\"'])(?P<name>[^\"'\\]{1,80})(?P=q)\s{0,4}:\s{0,4}"
    rf"(?:(?P<v>[\"'])(?P<text>{VALUE})\s?%?(?P=v)|{WRAPPED}|(?P<bare>{VALUE}))(?=\s{{0,8}}[,}}\]]|\s{{0,8}}$)"
)
_INNER = ("message", "msg", "log", "text", "line")
_DEPTH = 4


def read_dict(line: Line) -> Reading | None:
    """The reading of the first dictionary of a line, or null."""
    text = line.text
    found = _OPEN.search(text)
    if found is None:
        return None
    before, inside = text[: found.start()], text[found.end() :]
    if text.startswith("{") and text.endswith("}"):
        data = _loads(text)
        if data is not None:
            return _of_json(data, line)
    values: dict[str, float] = {}
    for item in _ITEM.finditer(inside):
        value = to_number(item["text"] or item["wrapped"] or item["bare"])
        if value is not None and len(values) < MAX_VALUES:
            values.setdefault(tidy_name(item["name"]), value)
    reading = _of_values("hf dict", values, line)
    if reading is None:
        return None
    return _with_head(reading, before, line, device_of(text))


def _loads(text: str) -> dict[str, Any] | None:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _of_json(data: dict[str, Any], line: Line) -> Reading | None:
    values: dict[str, float] = {}
    _flatten(data, "", values, 0)
    reading = _of_values("json", values, line)
    if reading is not None:
        for key in ("split", "phase", "stage", "mode"):
            phase = data.get(key)
            if isinstance(phase, str) and phase.lower() in words.PHASES:
                put_label(reading.where, "phase", words.PHASES[phase.lower()])
        return reading
    for key in _INNER:  # a log record as JSON, as containers write them
        inner = data.get(key)
        if isinstance(inner, str):
            sub = Line(inner.strip(), line.rank, line.step, dict(line.where))
            return read_dict(sub) or read_pairs(sub)
    return None


def _flatten(data: dict[str, Any], before: str, into: dict[str, float], depth: int) -> None:
    for key, value in data.items():
        if len(into) >= MAX_VALUES:
            return
        name = tidy_name(f"{before}_{key}" if before else str(key))
        if isinstance(value, dict) and depth < _DEPTH:
            _flatten(value, name, into, depth + 1)
        elif isinstance(value, bool) or value is None:
            continue
        elif isinstance(value, int | float):
            try:
                into.setdefault(name, float(value))
            except OverflowError:
                continue
        elif isinstance(value, str) and re.fullmatch(rf"{VALUE}\s?%?", value):
            number = to_number(value.rstrip("% "))
            if number is not None:
                into.setdefault(name, number)


def _of_values(reader: str, values: dict[str, float], line: Line) -> Reading | None:
    """A reading of these values, if one of them is a result."""
    trained = any(
        words.is_result(n, weak=v != int(v) if math.isfinite(v) and abs(v) > 1 else True)
        or words.is_step_time(n)
        for n, v in values.items()
    )
    counted = words.first_of(values, words.STEP_KEYS) is not None
    if not trained and not (counted and _measured(values)):
        return None
    step = to_count(words.first_of(values, words.STEP_KEYS))
    total = to_count(words.first_of(values, words.TOTAL_KEYS))
    epoch = words.first_of(values, words.EPOCH_KEYS)
    rank = to_count(words.first_of(values, words.RANK_KEYS))
    counters = {*words.STEP_KEYS, *words.EPOCH_KEYS, *words.RANK_KEYS, *words.TOTAL_KEYS}
    kept = {n: v for n, v in values.items() if n not in counters}
    return Reading(
        reader,
        kept,
        line.step if step is None else step,
        total,
        epoch,
        line.rank if line.rank is not None else rank,
        dict(line.where),
    )


def _measured(values: dict[str, float]) -> bool:
    """Whether a dictionary with a step, but without a result, is a measurement of training."""
    return any(
        n in ("lr", "learning_rate") or n.endswith("_per_second") for n in values
    ) and not any(
        n in ("batch_size", "seed", "weight_decay", "num_workers", "epochs") for n in values
    )


def _with_head(reading: Reading, before: str, line: Line, device: str) -> Reading:
    """Counters and labels that stand before the dictionary: ``epoch 3: {...}``."""
    where = dict(reading.where)
    step, epoch = reading.step, reading.epoch
    if before.strip(" :[-"):
        head = read_pairs(Line(f"{before.rstrip(' :[-')} | loss: 0", line.rank, None, dict(where)))
        if head is not None:
            where = head.where
            step = head.step if step is None else step
            epoch = head.epoch if epoch is None else epoch
    if device:
        put_label(where, "device", device)
    return Reading(
        reading.reader, reading.values, step, reading.total_steps, epoch, reading.rank, where
    )
