"""Facts of a text that has no syntax tree: what its lines look like. Everything here is a guess."""

from __future__ import annotations

import re
from collections.abc import Iterator

from core.guard.bodies import METRIC_FILE, TEST_FILE
from core.guard.kinds import setting_kind
from core.guard.known_calls import KNOWN
from core.guard.tag import Arg, Fact, Facts

_MAX_LINE = 2_000
_SETTING = re.compile(
    r"([A-Za-z_][\w.]{0,60})[\"']?\s{0,4}[=:]\s{0,4}(-?\d[\w.+-]{0,30}|True|False|None|[\"'][^\"']{0,60}[\"'])"
)
_CALL = re.compile(r"(?:\.|\b)([A-Za-z_]\w{0,60})\s{0,4}\(([^()]{0,200})")
_ARGUMENT = re.compile(
    r"add_argument\(\s*[\"']--([\w-]{1,60})[\"'].{0,200}default\s{0,4}=\s{0,4}([^,)\s]{1,60})"
)
_SWALLOW = re.compile(r"^\s*except\b[^:]{0,80}:\s*(pass|continue)?\s*(#.*)?$")
_ASSERT = re.compile(r"^\s*assert\b(.*)")


def line_facts(path: str, text: str) -> Facts:
    """What the lines of a text say; comments are left out."""
    lines = text.replace("\r\n", "\n").split("\n")
    facts = Facts(lines=lines)
    for number, line in enumerate(lines, 1):
        code = line[:_MAX_LINE].split("#", 1)[0]
        if code.strip():
            following = lines[number] if number < len(lines) else ""
            facts.facts += _of_line(path, number, code, following)
    return facts


def _of_line(path: str, number: int, code: str, following: str) -> Iterator[Fact]:
    in_tests = bool(TEST_FILE.search(path))
    seen = set()
    if match := _ARGUMENT.search(code):
        if kind := setting_kind(match[1]):
            yield Fact(
                "line setting",
                kind,
                match[1],
                number,
                {"value": Arg(kind, match[2])},
                "quiet",
                match[1],
            )
        return
    for match in _SETTING.finditer(code):
        name, value = match[1], match[2]
        if (kind := setting_kind(name)) and name not in seen:
            seen.add(name)
            yield Fact(
                "line setting", kind, name, number, {"value": Arg(kind, value)}, "quiet", name
            )
    for match in _CALL.finditer(code):
        known = KNOWN.get(match[1])
        if (
            known is not None
            and known.presence != "quiet"
            and known.group not in ("layer", "init", "subset method")
        ):
            args = {"arguments": Arg(known.kind, " ".join(match[2].split()))}
            yield Fact(f"line {known.group}", known.kind, match[1], number, args, "guess", match[1])
        elif match[1] in ("detach", "half", "bfloat16", "eval"):
            kind = {"detach": "detach", "eval": "mode"}.get(match[1], "dtype")
            yield Fact(f"line {match[1]}", kind, f"{match[1]}()", number, {}, "guess")
    if _SWALLOW.match(code) and (
        code.rstrip().endswith(("pass", "continue")) or following.strip() in ("pass", "continue")
    ):
        yield Fact("line swallow", "exceptions", "errors are swallowed", number, {}, "guess")
    if (match := _ASSERT.match(code)) and in_tests:
        yield Fact(
            "line assert",
            "tests",
            "assert",
            number,
            {"test": Arg("tests", match[1].strip())},
            "guess",
        )
    elif in_tests or METRIC_FILE.search(path):
        kind = "tests" if in_tests else "metric"
        text = " ".join(code.split())
        yield Fact(f"line {kind}", kind, f"a line of {'a test' if in_tests else 'metric code'}", number,
                   {"line": Arg(kind, text)}, "guess")  # fmt: skip
