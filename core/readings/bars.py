"""Progress bars: tqdm, Lightning, Keras, torchtune."""

from __future__ import annotations

import re
from collections import deque

from core.readings import words
from core.readings.pairs import read_pairs
from core.readings.prefixes import Line, put_label
from core.readings.reading import MAX_VALUES, VALUE, Reading, tidy_name, to_number

_CLOCK = r"(?:\d{1,4} days?, )?(?:\d{1,6}:)?\d{1,2}:\d{2}"
#: ``37/310 [00:12<01:31, 2.99it/s, loss=2.31]``, also without a known total.
_TQDM = re.compile(
    r"(?<![\d.])(?P<n>\d{1,12})(?:\.0)?(?:/(?P<total>\d{1,12}|\?))?(?P<counted>it|step|batch)?\s{0,3}"
    rf"\[\s?(?P<elapsed>{_CLOCK})(?:<(?:{_CLOCK}|\?))?,?\s{{0,3}}"
    r"(?:(?P<rate>\d{1,12}(?:\.\d{1,9})?|\?)\s?(?P<unit>[A-Za-z]{1,12}/s|s/[A-Za-z]{1,12}))?"
    r"(?:,\s{0,3}(?P<postfix>[^\]]{0,1500}))?(?:\]|$)"
)
#: ``Epoch 0/9 ━━━━ 37/310 0:00:12 • 0:01:31 2.99it/s v_num: 0 train_loss: 2.31``
_RICH = re.compile(
    r"(?P<desc>[^━╸╺]{0,60})[━╸╺]{3,}[━╸╺ ]{0,200}(?P<n>\d{1,12})/(?P<total>\d{1,12})\s+"
    rf"{_CLOCK} • (?:{_CLOCK}|-+:-+(?::-+)?)\s+(?P<rate>\d{{1,12}}(?:\.\d{{1,9}})?)(?P<unit>it/s|s/it)"
    r"(?P<postfix>.{0,1500})"
)
#: ``3/10 [=====>......] - ETA: 0s - loss: 0.5``, ``3/10 ━━━━ 1s 55ms/step - loss: 0.5``
_KERAS = re.compile(
    r"(?P<n>\d{1,12})/(?P<total>\d{1,12}|Unknown)\s{1,4}(?:\[[=>.]{3,200}\]|[━╸╺]{3,200})"
    r"(?P<rest>.{0,1500})"
)
_KERAS_STEP = re.compile(r"(?P<x>\d{1,9}(?:\.\d{1,9})?)(?P<u>us|ms|s)/(?:step|epoch|batch)")
#: ``1|25|Loss: 1.2298:   4%|▍``
_TORCHTUNE_BAR = re.compile(
    rf"(?P<epoch>\d{{1,6}})\|(?P<step>\d{{1,12}})\|(?P<name>[A-Za-z_ ]{{1,30}}):\s{{0,3}}(?P<value>{VALUE})"
    r"(?=:|\s|$)"
)
#: ``Step 25 | loss:1.23 lr:2e-05 tokens_per_second_per_gpu:512.3``
_TORCHTUNE_LOG = re.compile(r"Step (?P<step>\d{1,12}) \| (?=\w{1,60}:\S)")
_COLON = re.compile(rf"(?P<name>[\w/.-]{{1,60}}):(?P<value>{VALUE})(?=\s|$)")
_PAIR = re.compile(
    rf"(?P<name>[A-Za-z_][\w/.()@-]{{0,59}}(?: [\w/.()@-]{{1,30}}){{0,2}})\s{{0,2}}[=:]\s{{0,2}}"
    rf"(?P<value>{VALUE})(?P<unit>%|s|ms)?(?=[,\s\]|;]|$)"
)
_EPOCH = re.compile(r"\b(?:epochs?|ep)[ :#=\[(]{0,3}(\d{1,7})", re.IGNORECASE)
_UNITS = frozenset("it its step steps batch batches iter iters ba update updates".split())
#: Bars of loading and of preparing data, which are no progress of training.
_OTHER_WORK = re.compile(
    r"(?<![a-z])(?:load|download|fetch|map\b|tokeni|generat|saving|extract|filter|preprocess|prepar"
    r"|upload|cast|group|concat|shard|install|collect|convert|resolv|unpack|import|sampl|quantiz"
    r"|creat|build|read|writ|pack|cach|merg|verify|warm)",
    re.IGNORECASE,
)
_A_BAR = re.compile(rf"\d{{1,3}}%\||\[{_CLOCK}<")
_NOT_VALUES = frozenset("v_num eta".split())


def is_bar(line: Line) -> bool:
    """Whether a line is a progress bar of any kind of work: then nothing else reads it."""
    return bool(_A_BAR.search(line.text))


def read_bar(line: Line) -> Reading | None:
    """The reading of a progress bar, or null."""
    text = line.text
    return _torchtune(line, text) or _tqdm(line, text) or _rich(line, text) or _keras(line, text)


def _tqdm(line: Line, text: str) -> Reading | None:
    bars = deque(_TQDM.finditer(text), maxlen=1)  # of several on a line the last was written last
    found = bars[0] if bars else None
    if found is None or not (found["total"] or found["counted"]):
        return None
    desc = re.split(r"\d{1,3}%\|", text[: found.start()])[0].strip(" :|")
    unit = (found["unit"] or "it/s").removeprefix("s/").removesuffix("/s")
    postfix = found["postfix"] or ""
    values = _postfix(postfix)
    trained = any(words.is_result(n) for n in values)
    epochs = unit in ("epoch", "epochs", "ep") or desc.lower() in ("epoch", "epochs")
    if not trained and (_OTHER_WORK.search(desc) or not (unit in _UNITS or epochs)):
        return None
    seconds = _per_step(found["rate"], found["unit"])
    n, total = int(found["n"]), found["total"]
    where = dict(line.where)
    epoch = _EPOCH.search(desc)
    rest = _EPOCH.sub("", desc).strip(" :|-[]()/0123456789")
    _label(where, rest)
    if seconds is not None and unit in _UNITS | {"epoch", "epochs", "ep"}:
        values.setdefault("epoch_time_s" if epochs else "step_time_s", seconds)
    lightning = "v_num=" in postfix or (epoch is not None and bool(postfix) and not rest)
    reader = "lightning bar" if lightning else "tqdm postfix" if postfix else "tqdm bar"
    step = _pop_step(values)
    if epochs:
        return Reading(reader, values, step, None, float(n), line.rank, where)
    whole = int(total) if total and total.isdigit() else None
    return Reading(
        reader,
        values,
        n,
        whole,
        float(epoch[1]) if epoch else values.pop("epoch", None),
        line.rank,
        where,
    )


def _label(where: dict[str, str], desc: str) -> None:
    """What a bar is of: a phase where its words name one."""
    kinds = re.findall("[A-Za-z]+", desc)
    phase = next((words.PHASES[w.lower()] for w in kinds if w.lower() in words.PHASES), "")
    if kinds:
        put_label(where, "phase" if phase else "bar", phase or desc)


def _per_step(rate: str | None, unit: str | None) -> float | None:
    value = to_number(rate or "")
    if value is None or value <= 0 or not unit:
        return None
    return value if unit.startswith("s/") else 1 / value


def _postfix(text: str) -> dict[str, float]:
    values: dict[str, float] = {}
    for pair in _PAIR.finditer(text):
        name, value = tidy_name(pair["name"]), to_number(pair["value"])
        if value is None or not name or name in _NOT_VALUES or len(values) >= MAX_VALUES:
            continue
        if pair["unit"] in ("s", "ms"):
            name, value = f"{name}_s", value * (1e-3 if pair["unit"] == "ms" else 1)
        values.setdefault(name, value)
    return values


def _pop_step(values: dict[str, float]) -> int | None:
    step = values.pop("global_step", None)
    return int(step) if step is not None and step >= 0 and step == step and step < 1e15 else None


def _rich(line: Line, text: str) -> Reading | None:
    found = _RICH.match(text)
    if found is None:
        return None
    desc = found["desc"].strip()
    if _OTHER_WORK.search(desc):
        return None
    values = _postfix(found["postfix"])
    seconds = _per_step(found["rate"], found["unit"])
    if seconds is not None:
        values.setdefault("step_time_s", seconds)
    epoch = _EPOCH.search(desc)
    where = dict(line.where)
    if not epoch:
        _label(where, desc)
    return Reading(
        "lightning bar",
        values,
        int(found["n"]),
        int(found["total"]),
        float(epoch[1]) if epoch else None,
        line.rank,
        where,
    )


def _keras(line: Line, text: str) -> Reading | None:
    found = _KERAS.match(text)
    if found is None:
        return None
    rest = found["rest"]
    values: dict[str, float] = {}
    if step := _KERAS_STEP.search(rest):
        scale = {"us": 1e-6, "ms": 1e-3, "s": 1.0}[step["u"]]
        values["step_time_s"] = float(step["x"]) * scale
    parts = [p for p in rest.split(" - ") if "ETA" not in p and "/step" not in p]
    inner = read_pairs(Line(" | ".join(parts), line.rank, None, dict(line.where)))
    if inner is not None:
        values |= inner.values
    total = int(found["total"]) if found["total"].isdigit() else None
    return Reading("keras bar", values, int(found["n"]), total, None, line.rank, dict(line.where))


def _torchtune(line: Line, text: str) -> Reading | None:
    if found := _TORCHTUNE_BAR.match(text):
        value, name = to_number(found["value"]), tidy_name(found["name"])
        if value is None or not words.is_result(name):
            return None
        bar = _TQDM.search(text, found.end())
        values = {name: value}
        seconds = _per_step(bar["rate"], bar["unit"]) if bar else None
        if seconds is not None:
            values["step_time_s"] = seconds
        return Reading(
            "torchtune",
            values,
            int(found["step"]),
            int(bar["total"]) if bar and (bar["total"] or "").isdigit() else None,
            float(found["epoch"]),
            line.rank,
            dict(line.where),
        )
    if found := _TORCHTUNE_LOG.match(text):
        values = {}
        for pair in _COLON.finditer(text, found.end()):
            value = to_number(pair["value"])
            if value is not None and len(values) < MAX_VALUES:
                values[tidy_name(pair["name"])] = value
        if not values:
            return None
        return Reading(
            "torchtune", values, int(found["step"]), None, None, line.rank, dict(line.where)
        )
    return None
