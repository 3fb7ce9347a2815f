"""What stands before the words of a program: times, levels, loggers, ranks, labels."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from core.readings.reading import MAX_LABEL_CHARS, MAX_LABELS
from core.readings.words import PHASES

_TIME = r"\d{1,2}:\d{2}:\d{2}(?:[.,]\d{1,9})?(?:Z|[+-]\d{2}:?\d{2})?"
_STAMP = re.compile(
    rf"[\[(]?(?:\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}(?:[T ,]{{1,2}}{_TIME})?"
    rf"|\d{{1,2}}[-/.]\d{{1,2}}(?:[-/.]\d{{2,4}})?[T ,]{{1,2}}{_TIME}"
    rf"|(?:[A-Z][a-z]{{2}} )?[A-Z][a-z]{{2}} [ \d]\d {_TIME}|{_TIME})"
    r"(?: ?[AP]M)?[\])]?\s{0,4}(?:[-|:>]{1,2}\s{1,4})?"
)
_GLOG = re.compile(
    rf"[IWEF]\d{{4}} {_TIME}\s{{1,4}}(?:\d{{1,9}} )?[\w./-]{{1,120}}:\d{{1,6}}\]\s{{0,4}}"
)
_LEVEL = re.compile(
    r"[\[(<]?(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|NOTICE|TRACE|SUCCESS|info|debug)\s{0,9}[\])>]?"
    r"(?::[\w.]{1,80}:|\s{0,3}[-|:]{1,2}(?=\s)|(?=\s)|(?<=[\])>]))\s{0,8}"
)
_SOURCE = re.compile(
    r"\[?(?:[A-Z]{4,8}\|)?[\w./-]{1,120}\.py(?::\w{1,60}){1,3}\]?(?:\([\w ]{1,40}\))?\s{0,4}(?:[-|:>]{1,2}\s{0,4})?"
)
_LOGGER = re.compile(r"\[?[A-Za-z_][\w.]{0,80}\]?\s{0,4}(?:-{1,2}|\|)\s{1,4}")
_RANK = re.compile(
    r"[\[(<]?(?:(?:global|local)[_ ])?(?:rank|default|replica|worker|process|proc)[ _:=#-]{0,3}"
    r"(\d{1,5})(?:\s{0,2}[\])>]:?|\s{0,2}[:|]|\s{0,2}-(?=\s))\s{0,4}",
    re.IGNORECASE,
)
_MPI = re.compile(r"\[\d{1,4},(\d{1,5})\]\s{0,2}<std(?:out|err)>:?\s{0,4}")
_XLA = re.compile(r"\[xla:(\d{1,4})\](?:\((\d{1,9})\))?\s{0,4}")
_ACTOR = re.compile(r"\((\w{1,40} pid=\d{1,9}[^()]{0,60})\)\s{0,4}")
_LABEL = re.compile(r"[\[(]([A-Za-z0-9][\w .+/:-]{0,60})[\])]\s{0,4}[:|-]?\s{0,4}")
_COUNTER = re.compile(r"\b(?:step|iter\w*|epoch|batch|update|it)\b[ :=#]{0,3}\d", re.IGNORECASE)
#: A rank said elsewhere in the line: behind it, or as one of its values. The examples of torch_xla
#: print ``Device=xla:0/3``, the device in its process and the ordinal of all.
_RANK_INSIDE = re.compile(
    r"(?<![\w.])(?:(?:global_|local_)?rank|replica|process_index)(?:\s?[=:#]\s?|\s)(\d{1,5})(?![\w.])"
    r"|[Dd]evice[=: ]{1,2}(?:xla|TPU|CUDA):(?:\d{1,4}/)?(\d{1,5})(?![\w.])",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Line:
    """A line without what stands before its words, and what that said."""

    text: str
    rank: int | None = None
    step: int | None = None
    where: dict[str, str] = field(default_factory=dict)


def put_label(where: dict[str, str], key: str, text: str) -> None:
    """Note a label, within the bounds of a reading."""
    text = " ".join(text.split())[:MAX_LABEL_CHARS]
    if text and (key in where or len(where) < MAX_LABELS):
        where[key] = text


def strip_prefixes(text: str) -> Line:
    """Take times, levels, logger names, ranks and labels off the front of a line."""
    line = Line(text.strip())
    logged = False
    for _ in range(10):
        rest = line.text
        if found := _RANK.match(rest) or _MPI.match(rest):
            line.rank = int(found[1])
        elif found := _XLA.match(rest):
            line.rank = int(found[1])
            line.step = int(found[2]) if found[2] else None
        elif found := _ACTOR.match(rest):
            put_label(line.where, "worker", found[1])
        elif found := _first(rest, _GLOG, _STAMP, _LEVEL, _SOURCE):
            logged = True
        elif logged and (found := _LOGGER.match(rest)) and not _is_word_of_ours(found[0]):
            pass
        elif (found := _LABEL.match(rest)) and _is_label(found[1]):
            _label(line, found[1])
        else:
            break
        if not found or not found[0].strip():
            break
        line.text = rest[found.end() :]
    if line.rank is None and (inside := _RANK_INSIDE.search(line.text)):
        line.rank = int(inside[1] or inside[2])
    return line


def _first(text: str, *patterns: re.Pattern[str]) -> re.Match[str] | None:
    return next((found for p in patterns if (found := p.match(text))), None)


def _is_label(text: str) -> bool:
    return bool(re.search("[A-Za-z]", text)) and not _COUNTER.search(text) and "=" not in text


def _is_word_of_ours(text: str) -> bool:
    return text.strip(" []-|").lower() in PHASES


def _label(line: Line, text: str) -> None:
    phase = PHASES.get(text.strip().lower())
    if phase:
        put_label(line.where, "phase", phase)
    elif "label" not in line.where:
        put_label(line.where, "label", text)
    else:
        put_label(line.where, "label", f"{line.where['label']} {text}")
