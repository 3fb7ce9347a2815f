"""The script of a scripted agent: a TOML file with steps, read with line numbers for mistakes.

::

    title = "..."
    edits = "route/edits.toml"      # optional: stages of edits, named by edit_stage
    pace_s = 1.0                    # pause before each step, at speed 1

    [[step]]
    say = "I start with the training loop."

    [[step]]
    run = true                      # or a command of its own
    stop_on = "C4"                  # the agent stops the run when such a finding opens
    if_failed = "..."               # said after it, by what really happened

A step has one action of :data:`ACTIONS`; what else it may have is listed there too. The
``if_...`` texts are said after the step according to its real outcome, and may hold ``{level}``
and ``{why}`` (of a verdict) or ``{answer}`` (of the operator). ``[[operator]]`` entries are
acts of an operator for a session without one; see :class:`Act`.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.errors import PilotageError
from core.events import JSON

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ACTIONS: dict[str, tuple[str, ...]] = {
    "say": (),
    "read": ("if_failed",),
    "search": ("if_failed",),
    "edit": ("if_failed",),
    "edit_stage": ("if_failed",),
    "patch": ("if_failed",),
    "write": ("if_failed",),
    "shell": ("reason", "if_ok", "if_failed", "if_denied"),
    "run": ("stop_on", "if_ok", "if_failed", "if_stopped", "if_finding"),
    "verify": ("if_ok", "if_failed"),
    "claim": ("text", "if_reached", "if_refuted"),
    "ask": ("reason", "if_allowed", "if_denied"),
    "pause_s": (),
}
"""Actions of a step, and the further keys that each may have (``pause_s`` may go with any)."""

_TEXTS = ("say", "read", "search", "edit_stage", "patch", "shell", "ask")

EVENTS = ("ask", "claim", "run", "ended", "finding", "measured", "finished")
"""What an act of the scripted operator can answer to."""

ACTS = (
    "allow", "deny", "edit", "message", "intervene", "interrupt", "pause", "resume", "mark",
    "verify", "stop run", "stop session",
)  # fmt: skip
"""What the scripted operator can do."""


MAX_PAUSE_S = 86400.0
"""The longest pause a script may ask for: a day."""


class ScriptError(PilotageError):
    """A script can't be used; the sentence names file, line and step."""


@dataclass(frozen=True, slots=True)
class Step:
    """One action. ``number`` is the ``[[step]]`` it comes from (a stage makes several)."""

    number: int
    line: int
    action: str
    input: JSON = field(default_factory=dict)
    text: str = ""
    reason: str = ""
    level: int = 0
    pause_s: float = 0.0
    replies: dict[str, str] = field(default_factory=dict)
    finding_replies: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Act:
    """What the scripted operator does, once, at the next event ``on`` that fits ``match``.

    ``match`` is part of an ask's question, a finding's category, a claimed level (``L3``) or a
    run's purpose. ``after_s`` is the time it takes to decide, at speed 1.
    """

    number: int
    line: int
    on: str
    action: str
    match: str = ""
    text: str = ""
    input: JSON | None = None
    after_s: float = 0.0
    fields: JSON = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Script:
    """A whole script."""

    path: Path
    title: str
    pace_s: float
    steps: list[Step]
    operator: list[Act]

    def hash(self) -> str:
        """Changes when any step does."""
        text = json.dumps([[s.action, s.input, s.text, s.level] for s in self.steps])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def load(path: Path) -> Script:
    """Read a script and the edits it names; raises :class:`ScriptError`."""
    data, lines = _read(path)
    source = _Source(path, lines)
    stages: dict[str, list[JSON]] = {}
    for key in data:
        if key not in ("title", "edits", "pace_s", "step", "operator"):
            raise source.error(
                f"there is no key {key!r}; a script has title, edits, pace_s, [[step]] and [[operator]]"
            )
    edits = data.get("edits", "")
    if not isinstance(edits, str):
        raise source.error("edits has to be the name of a file")
    if edits:
        stages = load_stages(path.parent / edits)
    pace = data.get("pace_s", 0.0)
    if not _is_pause(pace):
        raise source.error("pace_s has to be a number of seconds, 0 to a day")
    steps: list[Step] = []
    tables = _tables(data, "step", source)
    for number, table in enumerate(tables, 1):
        steps += _step(number, table, stages, source)
    if not steps:
        raise source.error("it has no [[step]], so the agent would do nothing")
    acts = [_act(n, t, source) for n, t in enumerate(_tables(data, "operator", source), 1)]
    return Script(path, str(data.get("title", "")), float(pace), steps, acts)


def _is_pause(value: Any) -> bool:
    """Whether it is a number of seconds that ends: TOML also knows ``inf`` and ``nan``."""
    return type(value) in (int, float) and 0 <= value <= MAX_PAUSE_S


def load_stages(path: Path) -> dict[str, list[JSON]]:
    """The edits of each stage, by name; a fault is a stage too. Raises :class:`ScriptError`."""
    data, lines = _read(path)
    source = _Source(path, lines)
    stages: dict[str, list[JSON]] = {}
    for kind in ("stage", "fault"):
        for number, table in enumerate(_tables(data, kind, source), 1):
            name = table.get("name")
            if not isinstance(name, str) or not name:
                raise source.error("it needs a name", kind, number)
            if name in stages:
                raise source.error(f"there are two stages {name!r}", kind, number)
            edits = table.get("edit", [])
            if not isinstance(edits, list):
                raise source.error("edits are [[stage.edit]] tables", kind, number)
            stages[name] = [_edit(e, source, kind, number) for e in edits]
    return stages


@dataclass(frozen=True, slots=True)
class _Source:
    path: Path
    lines: list[str]

    def line(self, kind: str, number: int) -> int:
        """Line of the ``number``-th ``[[kind]]``, 0 if it is not found."""
        seen, quoted = 0, ""
        for index, line in enumerate(self.lines, 1):
            if not quoted and re.match(rf"\s*\[\[\s*{kind}\s*\]\]", line):
                seen += 1
                if seen == number:
                    return index
            # A text over several lines may hold anything, also what looks like a header.
            for mark in re.findall(r"'''|\"\"\"", line):
                if not quoted:
                    quoted = mark
                elif quoted == mark:
                    quoted = ""
        return 0

    def error(self, what: str, kind: str = "", number: int = 0) -> ScriptError:
        where = str(self.path)
        if kind:
            line = self.line(kind, number)
            where += (f", line {line}" if line else "") + f", {kind} {number}"
        return ScriptError(f"{where}: {what}.")


def _read(path: Path) -> tuple[dict[str, Any], list[str]]:
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors begin a file with a mark
    except FileNotFoundError:
        raise ScriptError(f"There is no script {path}.") from None
    except (OSError, UnicodeDecodeError) as err:
        raise ScriptError(f"{path} can't be read: {err}.") from err
    try:
        return tomllib.loads(text), text.splitlines()
    except tomllib.TOMLDecodeError as err:
        raise ScriptError(f"{path} is not TOML: {err}.") from err


def _tables(data: dict[str, Any], kind: str, source: _Source) -> list[dict[str, Any]]:
    tables = data.get(kind, [])
    if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        raise source.error(f"each {kind} has to be a table of its own: [[{kind}]]")
    return tables


def _step(
    number: int, table: dict[str, Any], stages: dict[str, list[JSON]], source: _Source
) -> list[Step]:
    def wrong(what: str) -> ScriptError:
        return source.error(what, "step", number)

    actions = [k for k in ACTIONS if k in table and k != "pause_s"] or [
        k for k in table if k == "pause_s"
    ]
    if len(actions) != 1:
        known = ", ".join(ACTIONS)
        had = f"it has {' and '.join(actions)}" if actions else "it has none"
        raise wrong(f"a step has one action of {known}; {had}")
    action = actions[0]
    allowed = {action, "pause_s", *ACTIONS[action]}
    for key in table:
        if key not in allowed:
            raise wrong(
                f"a {action} step has no key {key!r}; it may have {', '.join(sorted(allowed))}"
            )
    value = table[action]
    pause = table.get("pause_s", 0.0)
    if not _is_pause(pause):
        raise wrong("pause_s has to be a number of seconds, 0 to a day")
    if action in _TEXTS and (not isinstance(value, str) or not value.strip()):
        raise wrong(f"{action} has to be a text")
    replies = {k: v for k, v in table.items() if k.startswith("if_") and k != "if_finding"}
    finding_replies = table.get("if_finding", {})
    if not isinstance(finding_replies, dict):
        raise wrong('if_finding has to be a table such as {C4 = "..."}')
    for key, text in [*replies.items(), *finding_replies.items()]:
        if not isinstance(text, str):
            raise wrong(f"{key} has to be a text")
    for key in ("reason", "text", "stop_on"):
        if not isinstance(table.get(key, ""), str):
            raise wrong(f"{key} has to be a text")
    step = {
        "number": number,
        "line": source.line("step", number),
        "reason": table.get("reason", ""),
        "pause_s": float(pause),
        "replies": replies,
        "finding_replies": finding_replies,
    }
    if action == "edit_stage":
        if value not in stages:
            known = ", ".join(stages) or "none: the script needs `edits`"
            raise wrong(f"there is no stage {value!r}. Stages: {known}")
        return [Step(action="edit", input=edit, **step) for edit in stages[value]]
    if action == "edit":
        return [Step(action=action, input=_edit(value, source, "step", number), **step)]
    if action == "write":
        return [Step(action=action, input=_write(value, wrong), **step)]
    if action == "run":
        return [Step(action=action, input=_run(value, table, wrong), **step)]
    if action == "claim":
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 4:
            raise wrong("claim has to be a level from 0 to 4")
        return [Step(action=action, level=value, text=table.get("text", ""), **step)]
    if action == "verify":
        if value is not True:
            raise wrong("verify has to be true")
        return [Step(action=action, **step)]
    if action in ("say", "ask"):
        return [Step(action=action, text=value.strip(), **step)]
    if action == "pause_s":
        return [Step(action="pause", **step)]
    key = {"read": "path", "search": "pattern", "patch": "patch", "shell": "command"}[action]
    return [Step(action=action, input={key: value}, **step)]


def _edit(value: Any, source: _Source, kind: str, number: int) -> JSON:
    keys = ("path", "search", "replace")
    if not isinstance(value, dict) or sorted(value) != sorted(keys):
        raise source.error("an edit has path, search and replace, and nothing else", kind, number)
    if not all(isinstance(value[k], str) for k in keys):
        raise source.error("path, search and replace of an edit are texts", kind, number)
    return {k: value[k] for k in keys}


def _write(value: Any, wrong: Any) -> JSON:
    if not isinstance(value, dict) or sorted(value) != ["content", "path"]:
        raise wrong("write has to be a table with path and content")
    if not all(isinstance(v, str) for v in value.values()):
        raise wrong("path and content of write are texts")
    return dict(value)


def _run(value: Any, table: dict[str, Any], wrong: Any) -> JSON:
    if value is not True and (not isinstance(value, str) or not value.strip()):
        raise wrong("run has to be true (the target's command) or a command")
    input: JSON = {} if value is True else {"command": value}
    if table.get("stop_on"):
        input["stop_on"] = table["stop_on"]
    return input


def _act(number: int, table: dict[str, Any], source: _Source) -> Act:
    known = {
        "on": EVENTS,
        "action": ACTS,
    }
    for key, values in known.items():
        if table.get(key) not in values:
            raise source.error(
                f"{key} has to be one of {', '.join(values)}, not {table.get(key)!r}",
                "operator",
                number,
            )
    fields = ("kind", "trigger", "category", "necessity", "minutes_claimed")
    for key, value in table.items():
        if key not in ("on", "action", "match", "text", "input", "after_s", *fields):
            raise source.error(f"an operator's act has no key {key!r}", "operator", number)
        wanted: Any = int | float if key in ("after_s", "minutes_claimed") else str
        if key == "input":
            wanted = dict
        if isinstance(value, bool) or not isinstance(value, wanted):
            raise source.error(
                f"{key} has a value of the wrong type: {value!r}", "operator", number
            )
    if not _is_pause(table.get("after_s", 0)):
        raise source.error("after_s has to be a number of seconds, 0 to a day", "operator", number)
    if table["action"] in ("allow", "deny", "edit") and table["on"] != "ask":
        raise source.error(
            f"only an ask can be answered with {table['action']}", "operator", number
        )
    return Act(
        number=number,
        line=source.line("operator", number),
        on=table["on"],
        action=table["action"],
        match=table.get("match", ""),
        text=table.get("text", ""),
        input=table.get("input"),
        after_s=float(table.get("after_s", 0.0)),
        fields={k: table[k] for k in fields if k in table},
    )
