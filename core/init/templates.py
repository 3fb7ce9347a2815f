"""Texts that a program prints, taken apart into literal parts and the values between them.

f-strings, ``%`` and ``str.format``, the arguments of ``print`` and of a logger are one thing here:
a list of texts and holes. From it comes a pattern for the value of one hole, and the pattern is
tried on a line made from the same text before it is proposed.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from core.risk.module import constant

MAX_PARTS = 60
NUMBER = r"(-?inf|nan|[-+0-9.eE]+)"
"""The group of a pattern that reads the number."""


@dataclass(frozen=True, slots=True)
class Hole:
    """A value between the texts: the expression, and how it is printed (``.4f``, ``%``)."""

    node: ast.expr
    form: str = ""


Part = str | Hole


def parts_of(call: ast.Call, first: int = 0) -> list[Part]:
    """What a call of print or of a logger writes, from its argument ``first`` on."""
    args = call.args[first:]
    if not args or any(isinstance(a, ast.Starred) for a in args):
        return []
    if len(args) > 1 and isinstance(constant(args[0]), str) and "%" in str(constant(args[0])):
        filled = _percent(str(constant(args[0])), args[1:])  # logger.info("loss %.3f", loss)
        if filled:
            return filled
    parts: list[Part] = []
    for index, arg in enumerate(args[:MAX_PARTS]):
        if index:
            parts.append(" ")
        parts += _parts(arg)
    return _joined(parts)


def _parts(node: ast.expr) -> list[Part]:
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    if isinstance(node, ast.JoinedStr):
        return [p for value in node.values[:MAX_PARTS] for p in _fstring(value)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        text = constant(node.left)
        if isinstance(text, str):
            right = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
            return _percent(text, right) or [Hole(node)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right_parts = _parts(node.left), _parts(node.right)
        if any(isinstance(p, str) for p in (*left, *right_parts)):
            return [*left, *right_parts]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "format" and isinstance(constant(node.func.value), str):
            return _format(str(constant(node.func.value)), node) or [Hole(node)]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str":
        return [Hole(node.args[0])] if node.args else []
    return [Hole(node)]


def _fstring(node: ast.expr) -> list[Part]:
    if isinstance(node, ast.FormattedValue):
        form = ""
        if isinstance(node.format_spec, ast.JoinedStr):
            form = "".join(str(constant(v) or "") for v in node.format_spec.values)
        return [Hole(node.value, form)]
    return [str(constant(node))]


def _percent(text: str, values: list[ast.expr]) -> list[Part]:
    parts: list[Part] = []
    at, index = 0, 0
    for match in re.finditer(r"%(?:\((\w+)\))?([-+ #0-9.]*[diouxXeEfFgGrsa%])", text):
        parts.append(text[at : match.start()])
        at = match.end()
        if match[2].endswith("%"):
            parts.append("%")
        elif match[1] or index >= len(values):
            return []  # by name, from a dict
        else:
            parts.append(Hole(values[index], match[2]))
            index += 1
    return _joined([*parts, text[at:]])


def _format(text: str, call: ast.Call) -> list[Part]:
    named = {k.arg: k.value for k in call.keywords if k.arg}
    parts: list[Part] = []
    at, index = 0, 0
    # {0}, {name}, {meter.avg:.3f}: what comes after the name is an attribute or index of it.
    field = r"\{\{|\}\}|\{(\w*)(?:[.\[][^{}:!]{1,60})?(?:![rsa])?(?::([^{}]*))?\}"
    for match in re.finditer(field, text):
        parts.append(text[at : match.start()])
        at = match.end()
        if match[0] in ("{{", "}}"):
            parts.append(match[0][0])
            continue
        name = match[1]
        if not name or name.isdecimal():
            number = int(name[:4]) if name else index
            index += 1
            if number >= len(call.args):
                return []
            parts.append(Hole(call.args[number], match[2] or ""))
        elif name in named:
            parts.append(Hole(named[name], match[2] or ""))
        else:
            return []
    return _joined([*parts, text[at:]])


def _joined(parts: list[Part]) -> list[Part]:
    joined: list[Part] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        elif part != "":
            joined.append(part)
    return joined


def last_line(parts: list[Part]) -> list[list[Part]]:
    """The lines a text has, each as its own parts."""
    lines: list[list[Part]] = [[]]
    for part in parts:
        if isinstance(part, Hole):
            lines[-1].append(part)
            continue
        pieces = part.split("\n")
        lines[-1].append(pieces[0])
        lines += [[p] for p in pieces[1:]]
    return [line for line in lines if any(isinstance(p, Hole) for p in line)]


def pattern_for(parts: list[Part], hole: Hole) -> str:
    """A pattern whose group is the value of ``hole``; "" where no text tells it from others.

    It begins with what is written before the value, back to the value before that one, or
    further where that is too little to know it by.
    """
    index = next(i for i, p in enumerate(parts) if p is hole)
    before = ""
    for part in reversed(parts[:index]):
        if isinstance(part, Hole):
            if len(re.findall(r"\w", before)) >= 3:
                break
            before = ".*?" + before
        else:
            before = _escape(part[-60:]) + before
    before = before.removeprefix(".*?")
    if len(re.findall(r"[A-Za-z]", before)) < 2:
        return ""
    before = re.sub(r"^[^\w\\(]+", "", before)
    pattern = (
        before.rstrip(" ") + " *" * _padded(hole) + NUMBER if _padded(hole) else before + NUMBER
    )
    return pattern if tried(pattern, parts, hole) else ""


def _escape(text: str) -> str:
    text = re.sub(r"([.^$*+?{}\[\]\\|()])", r"\\\1", text)
    return re.sub(r"\s{2,}|[\t\r\f]", r"\\s+", text)


def _padded(hole: Hole) -> bool:
    """Whether blanks may stand before the number: a width, or a sign's place."""
    return bool(re.match(r"[ >+]|\d*[1-9]", hole.form.split(".")[0]))


def sample_line(parts: list[Part], hole: Hole, value: float = 0.8125) -> str:
    """The line as it may look: ``value`` in the hole, other numbers in the others."""
    shown = f"{value:.4f}"
    others = (f"{n}" for n in range(3, 3 + len(parts)))
    return "".join(p if isinstance(p, str) else shown if p is hole else next(others) for p in parts)


def tried(pattern: str, parts: list[Part], hole: Hole) -> bool:
    """Whether the pattern finds the hole's value, and no other, in such lines."""
    try:
        compiled = re.compile(pattern)
    except re.error:
        return False
    for value in (0.8125, 73.0625):
        found = compiled.findall(sample_line(parts, hole, value))
        if len(found) != 1 or found[0].rstrip(".") != f"{value:.4f}":
            return False
    return True
