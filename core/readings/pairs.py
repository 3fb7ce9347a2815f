"""Names and values in free lines: ``loss: 0.31``, ``epoch 3 val_loss 2.53 | acc 91.2%``.

A small tokenizer and one pass over its tokens, so the time is linear in the length of the line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from core.readings import words
from core.readings.prefixes import Line, put_label
from core.readings.reading import (
    MAX_VALUES,
    NOT_FINITE,
    NUMBER,
    WRAPPED,
    Reading,
    device_of,
    tidy_name,
    to_count,
    to_number,
)

_END = r"(?=$|[\s,;|)\]}\"'#│┃]|:(?!\d)|\.{1,3}(?:\s|$))"
_TOKEN = re.compile(
    rf"(?P<space>\s+)"
    rf"|(?P<path>(?:~|\.{{1,2}})?/[^\s,;|\"']+)"
    rf"|(?P<tensor>{WRAPPED})"
    rf"|(?P<frac>(?P<part>\d{{1,12}})\s{{0,3}}/\s{{0,8}}(?P<whole>\d{{1,12}}|\?|\.{{2,3}}|…|inf)"
    rf"(?![\w/%]|\.\d))"
    rf"|(?P<num>(?:{NUMBER}|{NOT_FINITE})(?P<unit>%|[A-Za-zµμ][A-Za-zµμ/]{{0,11}})?){_END}"
    rf"|(?P<word>[A-Za-z_]\w{{0,80}}(?:[./@-]\w{{1,80}}){{0,8}}(?:\([A-Za-z_%][\w /%]{{0,20}}\))?)"
    rf"|(?P<qual>\([A-Za-z_%/ ]{{1,20}}\)(?=\s{{0,3}}[:=]))"
    rf"|(?P<sep>[:=])"
    rf"|(?P<delim>[|,;│┃║·•→\\]|[-–—]{{1,3}}(?=\s))"
    rf"|(?P<open>[(\[{{<])|(?P<close>[)\]}}>])"
    rf"|(?P<junk>[^\s|,;:=()\[\]]+)"
)
_SECONDS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "msec": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "secs": 1.0,
    "second": 1.0,
    "seconds": 1.0,
    "min": 60.0,
    "mins": 60.0,
}
_RATES = {"it/s": -1.0, "its/s": -1.0, "s/it": 1.0, "ms/it": 1e-3, "s/step": 1.0, "ms/step": 1e-3}
_RATES |= {"s/iter": 1.0, "ms/iter": 1e-3, "s/batch": 1.0, "ms/batch": 1e-3}
#: A unit that stands one space behind its number.
_UNIT_BEHIND = re.compile(
    r"\s?(ns|[uµμ]s|ms|msec|s|secs?|seconds?|%|its?/s|m?s/(?:it|step|iter|batch))(?![\w/])"
)
_PERCENT_BEHIND = re.compile(r"\s{0,2}\(\s{0,3}\d{1,3}(?:\.\d{1,9})?\s?%\)")
_COUNTED = re.compile(r"\s{1,2}(batches|steps|iters|iterations|batch|updates|it)\b")
#: ``Test: [ 0/10]``, ``Train: 3 [ 50/1251 ( 4%)]``: phase, epoch, step and total of two old styles.
_PHASE_HEAD = re.compile(
    r"(train|test|valid(?:ation)?|val|eval)\w{0,4}:?\s{0,3}(?:\[?(\d{1,7})(?:/\d{1,7})?\]?\s{0,3})?"
    r"\[\s{0,8}(\d{1,12})\s?/\s{0,8}(\d{1,12})\s?(?:\(\s{0,3}\d{1,3}%\))?\]",
    re.IGNORECASE,
)
_PHASE_QUAL = re.compile(r"\((\w{2,12})\)$")
_CODE = re.compile(
    r"\s*(?:def|class|return|if|elif|else|for|while|import|from|raise|with|assert|yield|del|lambda"
    r"|print|self\.|>>>|@|#|//|\$|File \"|Traceback)\b|.{0,200}[\w\]]\s?(?:\+=|-=|\*=|==|!=|<=|>=)"
)
_OPERATOR = re.compile(
    r"[\])]?\s{0,2}(?:[*+/@]\s?[\w(]|\*\*|- ?[A-Za-z_(][\w.]{0,80}\s{0,2}[\[(*+/).])"
)
_COMMENT = re.compile(r"\s*(?:#|//|/\*)")
#: Names of devices, versions and times of the day, whatever number stands behind them.
_NO_VALUES = frozenset("xla cuda cpu gpu tpu device v_num eta etc".split())
#: A value between bars, or the last: a name that is not known is believed of such a one only.
_CLOSED = re.compile(r"%?\s{0,8}(?:$|[|,;)\]│(])|%?\s{2}|%?\t")
#: Words that are no part of a name, a counter or a label, at most, and against one pair.
_MAX_LOOSE = 12


@dataclass(slots=True)
class _Scan:
    """What one pass over a line found."""

    values: dict[str, float] = field(default_factory=dict)
    step: int | None = None
    total: int | None = None
    epoch: float | None = None
    phase: str = ""
    strong: bool = False
    """A result whose name is joined to its value by a separator."""
    known: bool = False
    """A result that only a blank joins to its value."""
    anchored: bool = False
    """The line begins with a counter."""
    joined: bool = False
    """Some value is joined to a name by a separator, or is a percentage between bars."""
    loose: int = 0
    """Words that belong to nothing."""
    pairs: int = 0


def read_pairs(line: Line) -> Reading | None:
    """The reading of a line of names and values, or null where it is no line of training."""
    text = line.text
    if _CODE.match(text) or text.endswith((";", "{", "(", "=")):
        return None
    scan = _Scan()
    if head := _PHASE_HEAD.match(text):
        scan.phase = words.PHASES.get(head[1].lower(), head[1].lower())
        scan.epoch = float(head[2]) if head[2] else None
        scan.step, scan.total, scan.anchored = int(head[3]), int(head[4]), True
        text = text[head.end() :]
    _Pass(text, scan).run()
    if not _is_reading(scan) or (not scan.values and _COMMENT.match(text)):
        return None
    where = dict(line.where)
    if phase := scan.phase or _phase_of(scan.values):
        put_label(where, "phase", phase)
    if device := device_of(text):
        put_label(where, "device", device)
    return Reading(
        "key value",
        scan.values,
        line.step if scan.step is None else scan.step,
        scan.total,
        scan.epoch,
        line.rank,
        where,
    )


def _phase_of(values: dict[str, float]) -> str:
    """``val Loss: 0.25 Acc: 0.92``: the phase that the first result says, of those that say none.

    Not where the same quantity is printed both ways: ``loss: 0.5 - val_loss: 0.6``.
    """
    results = [n for n in values if words.is_result(n, weak=False)]
    said = {n: {words.PHASES[p] for p in n.split("_") if p in words.PHASES} for n in results}
    phases = set[str]().union(*said.values())
    if len(phases) != 1 or not said[results[0]]:
        return ""
    plain = {"_".join(p for p in n.split("_") if p not in words.PHASES) for n in results if said[n]}
    bare = {n for n in results if not said[n]}
    return phases.pop() if bare and not bare & plain else ""


def _is_reading(scan: _Scan) -> bool:
    """Whether what was found is a line of training and no prose, no setting, no report."""
    if scan.strong:
        return scan.loose <= _MAX_LOOSE
    if scan.known:
        return scan.loose <= 3 + scan.pairs
    if scan.anchored and scan.joined:
        return scan.loose <= 2 * scan.pairs
    # A bare counter: ``STEP:  0``, ``Epoch 3/90``.
    return scan.anchored and not scan.values and not scan.loose


class _Pass:
    """One pass over the tokens of a line."""

    def __init__(self, text: str, scan: _Scan) -> None:
        self.text = text
        self.scan = scan
        self.names: list[str] = []
        self.qual = ""
        self.sep = ""
        self.fresh = True  # nothing but blanks and brackets since the last delimiter
        self.first = True  # no word consumed yet: a counter here begins the line
        self.calls: list[bool] = []
        self.last = ""  # name of the value just read, while a running average may follow
        self.last_unit = ""
        self.after_epoch = False
        self.before = ""  # kind of the token before, blanks apart; "word!" right behind it

    def run(self) -> None:
        """Fill the scan."""
        adjacent = ""
        for token in _TOKEN.finditer(self.text):
            kind = token.lastgroup or ""
            kind = {"unit": "num", "whole": "frac", "wrapped": "tensor"}.get(kind, kind)
            if kind == "space":
                adjacent = ""
                continue
            if kind == "num" and self._is_word(token):
                kind = "word"
            if kind == "open":
                self.calls.append(adjacent == "word" and token[0] == "(")
                if self.calls[-1]:
                    self._drop()
            elif kind == "close":
                if self.calls:
                    self.calls.pop()
            elif any(self.calls):
                pass
            else:
                getattr(self, f"_{kind}")(token)
            adjacent = self.before = kind
        self._drop()

    def _is_word(self, token: re.Match[str]) -> bool:
        """``inf`` and ``nan`` are values behind a separator or a known name only."""
        if any(c.isdigit() for c in token[0]) or self.sep:
            return False
        return not self.names or not self._name()[1]

    def _drop(self) -> None:
        """What was collected is no name of a value."""
        self.scan.loose += len(self.names)
        self.names, self.qual, self.sep = [], "", ""

    # --- one method per kind of token ----------------------------------------------------------

    def _path(self, token: re.Match[str]) -> None:
        self._drop()
        self.fresh, self.last = False, ""
        self.scan.loose += 1

    def _junk(self, token: re.Match[str]) -> None:
        self._drop()
        self.fresh, self.last = False, ""
        if any(c.isalpha() for c in token[0]):
            self.scan.loose += 1

    def _word(self, token: re.Match[str]) -> None:
        if self.sep:
            self._phase()
            self._drop()
            self.fresh = True
        if len(self.names) >= 8:
            self.scan.loose += 1
            del self.names[0]
            self.fresh = False
        self.names.append(token[0])
        self.last, self.after_epoch = "", False

    def _qual(self, token: re.Match[str]) -> None:
        self.qual = token[0]

    def _sep(self, token: re.Match[str]) -> None:
        if self.names:
            self.sep = token[0]
        else:
            self._delim(token)

    def _delim(self, token: re.Match[str]) -> None:
        self._phase()
        self._drop()
        self.fresh, self.last, self.after_epoch = True, "", False

    def _phase(self) -> None:
        """``Test set: ...``, ``Val: ...``: the words before a separator say what the line is of."""
        kinds = [words.PHASES.get(w.lower().strip("_")) for w in self.names]
        tail = {w.lower() for w, k in zip(self.names, kinds, strict=True) if not k}
        if any(kinds) and tail <= {
            "set",
            "results",
            "result",
            "metrics",
            "epoch",
            "error",
            "summary",
        }:
            self.scan.phase = self.scan.phase or next(k for k in kinds if k)
            self.names = []

    def _tensor(self, token: re.Match[str]) -> None:
        self._value(to_number(token["wrapped"]), "", token)

    def _frac(self, token: re.Match[str]) -> None:
        part, whole = int(token["part"]), token["whole"]
        total = int(whole) if whole.isdigit() else None
        counted = _COUNTED.match(self.text, token.end())
        if not self.names and (self.after_epoch or counted or self._begins()):
            if not _PERCENT_BEHIND.match(self.text, token.end()) or counted:
                self._counter("step", part, total)
                if counted:
                    self.scan.loose -= 1
            self.after_epoch = False
            return
        head = self.names[-1].lower() if self.names else ""
        if self.names and self._is_counter(head):
            is_epoch = _PHASE_QUAL.sub("", head) in words.EPOCHS
            self._counter("epoch" if is_epoch else "step", part, total)
            self._consumed()
        elif self.names and total:
            percent = bool(_PERCENT_BEHIND.match(self.text, token.end()))
            self._value(part / total * (100 if percent else 1), "%" if percent else "", token)
            self.last = ""
        else:
            self.last = ""

    def _num(self, token: re.Match[str]) -> None:
        text = token["num"].removesuffix(token["unit"] or "")
        unit, end = token["unit"] or "", token.end("num")
        if not text or not any(c.isdigit() for c in text):  # nan, inf: no unit behind
            text, unit = token["num"], ""
        if not unit and (behind := _UNIT_BEHIND.match(self.text, end)):
            unit = behind[1]
        value = to_number(text)
        if not self.names:
            self._bare(value, unit)
            return
        head = self.names[-1].lower()
        if self._is_counter(head) and not unit:
            count = to_count(value)
            if _PHASE_QUAL.sub("", head) in words.EPOCHS:
                self.scan.epoch = value if self.scan.epoch is None else self.scan.epoch
                self._counter("", None, None)
                self.after_epoch = True
            elif count is not None:
                self._counter("step", count, None)
            self._consumed()
            return
        if _OPERATOR.match(self.text, end):
            self._drop()
            return
        self._value(value, unit, token)

    # --- what the tokens mean ------------------------------------------------------------------

    def _begins(self) -> bool:
        return self.first and self.fresh

    def _is_counter(self, head: str) -> bool:
        if self.qual or (len(self.names) > 1 and self.names[-2].lower() == "per"):
            return False  # the time per iteration (ms)
        head = _PHASE_QUAL.sub("", head)
        return head in words.EPOCHS or head in words.STEPS or tidy_name(head) in words.STEP_KEYS[:3]

    def _bare(self, value: float | None, unit: str) -> None:
        """A number without a name: a running average, the batch behind an epoch, or nothing."""
        if self.last and self.before == "open" and value is not None:
            if len(self.scan.values) < MAX_VALUES and unit == self.last_unit:
                self.scan.values.setdefault(f"{self.last}_avg", value)
        elif self.after_epoch and (count := to_count(value)) is not None and not unit:
            self._counter("step", count, None)
        self.last, self.after_epoch = "", False

    def _counter(self, what: str, count: int | None, total: int | None) -> None:
        scan = self.scan
        if self.first and len(self.names) <= 2:
            scan.anchored = True
        self.first = False
        if what == "step" and scan.step is None:
            scan.step, scan.total = count, total
        elif what == "epoch" and scan.epoch is None and count is not None:
            scan.epoch = float(count)
        if what == "epoch":
            self.after_epoch = True

    def _consumed(self) -> None:
        """The collected words named a counter; those before it belong to nothing."""
        spare = [w for w in self.names[:-1] if w.lower() not in words.QUALIFIERS]
        if "(" in self.names[-1] and (found := _PHASE_QUAL.search(self.names[-1])):
            self.scan.phase = words.PHASES.get(found[1].lower(), "")
        self.scan.loose += len(spare)
        self.names, self.qual, self.sep, self.fresh = [], "", "", False

    def _value(self, value: float | None, unit: str, token: re.Match[str]) -> None:
        """A number behind a name."""
        if not self.names:
            self.last = ""
            return
        used, known = self._name()
        if used < len(self.names) and self.names[-used - 1].lower() in words.SETTINGS:
            used += 1  # label smoothing loss: a setting
        name = tidy_name(" ".join(self.names[-used:]))
        scan, joined = self.scan, bool(self.sep)
        self.scan.loose += len(self.names) - used
        bar = self.fresh and used == len(self.names)
        unit = unit or _unit_of_name(self.qual)
        self.names, self.qual, self.sep, self.fresh, self.first = [], "", "", False, False
        self.last = ""
        bar = bar and (joined or bool(_CLOSED.match(self.text, token.end())))
        named = _with_unit(name, value, unit, scan.anchored) if value is not None else None
        if named is None or not name or not (joined or known or bar):
            self.scan.loose += used
            return
        name, value = named
        if name in words.RANK_KEYS or name in _NO_VALUES:
            return
        scan.pairs += 1
        if len(scan.values) < MAX_VALUES:
            scan.values.setdefault(name, value)
        self.last, self.last_unit = name, unit
        result = words.is_result(name, weak=joined) or name == "step_time_s"
        scan.strong = scan.strong or (
            result and joined and _plausible(name, value, f"{token[0]}{unit}")
        )
        scan.known = scan.known or (result and known and not joined)
        scan.joined = scan.joined or joined or (bar and unit == "%")

    def _name(self) -> tuple[int, bool]:
        """How many of the collected words name the value, and whether the last is a known noun."""
        head = self.names[-1].lower()
        tidy = tidy_name(head)
        known = (
            words.is_result(tidy, weak=bool(self.sep))
            or head in words.NOUNS
            or tidy in ("learning_rate", "grad_norm")
            or words.is_step_time(tidy_name(" ".join(self.names[-2:])))
        )
        used = 1
        if known:
            while used < len(self.names) and self._belongs(self.names[-used - 1]):
                used += 1
        elif self.fresh and len(self.names) <= 5:
            used = len(self.names)
        return used, known

    def _belongs(self, word: str) -> bool:
        low = word.lower()
        return low in words.QUALIFIERS or words.is_result(tidy_name(low), weak=False)


def _plausible(name: str, value: float, text: str) -> bool:
    """``precision: 32`` is a number format, ``error: 404`` a status, ``score = 0`` a beginning."""
    if words.is_result(name, weak=False) or name == "step_time_s":
        return True
    written_out = "." in text or "e" in text  # 1.0 is a share, 1 is a number of something
    return "%" in text or (written_out and not (abs(value) > 1 and value.is_integer()))


def _unit_of_name(qual: str) -> str:
    unit = qual.strip("()").strip().lower()
    return unit if unit in _SECONDS else ""


def _with_unit(name: str, value: float, unit: str, anchored: bool) -> tuple[str, float] | None:
    """Name and value with the unit worked in; null for a unit that is not known."""
    if not unit or unit == "%":
        own = name.rpartition("_")[2]
        if own in ("ms", "us") and words.is_step_time(name):
            return "step_time_s", value * _SECONDS[own]
        if name in ("ms_batch", "ms_step", "ms_it", "ms_iter"):
            return "step_time_s", value * 1e-3
        if name in ("s_batch", "s_step", "s_it", "sec_step", "sec_it"):
            return "step_time_s", value
        return name, value
    if unit in _RATES:
        scale = _RATES[unit]
        if scale < 0:
            return ("step_time_s", 1 / value) if value > 0 else None
        return "step_time_s", value * scale
    if unit not in _SECONDS:
        return None
    seconds = value * _SECONDS[unit]
    if words.is_step_time(name) or (anchored and name in ("time", "dt") and unit in ("ms", "us")):
        return "step_time_s", seconds
    stem = re.sub(r"_(?:ms|us|s|sec|secs|seconds)$", "", name)
    return f"{stem}_s", seconds
