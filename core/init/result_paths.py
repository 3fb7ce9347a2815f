"""Result files that a program writes: what is written, and to which path, as far as it is known."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from core.init.facts import Entry
from core.init.script import Script, Scripts
from core.risk.module import Module, constant, dotted, keyword


class PathReader:
    """Reads path expressions with the command's options and the parser's defaults put in."""

    def __init__(self, entry: Entry, scripts: Scripts) -> None:
        self._values: dict[str, str] = {}
        for script in scripts.closure(entry.script):
            for name, option in script.options.items():
                if isinstance(option.default, str):
                    self._values.setdefault(_attribute(name), option.default)
        words = list(entry.words)
        for index, word in enumerate(words):
            name, sign, value = word.partition("=")
            if name.startswith("--"):
                follows = words[index + 1] if index + 1 < len(words) else ""
                if sign or (follows and not follows.startswith("-")):
                    self._values[_attribute(name)] = value if sign else follows

    def read(self, node: ast.expr | None, script: Script, depth: int = 0) -> str:
        """A path relative to the project; "" where it is not known."""
        text = self._text(node, script, depth)
        if not text or "$" in text or text.startswith(("/", "~")):
            return ""
        path = PurePosixPath(text)
        return "" if ".." in path.parts else str(path)

    def _text(self, node: ast.expr | None, script: Script, depth: int) -> str:
        if node is None or depth > 8:
            return ""
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else ""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            return self._join([node.left, node.right], script, depth)
        if isinstance(node, ast.Call):
            if script.module.is_a(node.func, "os.path.join"):
                return self._join(node.args, script, depth)
            name = node.func.attr if isinstance(node.func, ast.Attribute) else dotted(node.func)
            if name in ("Path", "PurePath", "str", "fspath") and node.args:
                return self._join(node.args, script, depth)
        if isinstance(node, ast.JoinedStr):
            parts = []
            for value in node.values:
                inner = value.value if isinstance(value, ast.FormattedValue) else value
                text = self._text(inner, script, depth + 1)
                if not text:
                    return ""
                parts.append(text)
            return "".join(parts)
        if isinstance(node, ast.Attribute):
            return self._values.get(node.attr, "")
        if isinstance(node, ast.Name):
            values = _assigned(script.module, node)
            if len(values) == 1:
                return self._text(values[0], script, depth + 1)
        return ""

    def _join(self, nodes: list[ast.expr], script: Script, depth: int) -> str:
        parts = [self._text(n, script, depth + 1) for n in nodes]
        return "/".join(p.rstrip("/") for p in parts) if all(parts) else ""


def _attribute(option: str) -> str:
    return option.lstrip("-").replace("-", "_")


def _assigned(module: Module, node: ast.Name) -> list[ast.expr]:
    """What the name is given in its own function, else at the top of the file."""
    for scope in (module.scope(node), module.tree):
        found = []
        for assign in module.assigns:
            targets = assign.targets if isinstance(assign, ast.Assign) else [assign.target]
            named = any(isinstance(t, ast.Name) and t.id == node.id for t in targets)
            if named and assign.value is not None and module.scope(assign) is scope:
                found.append(assign.value)
        if found:
            return found
    return []


def dict_keys(module: Module, node: ast.expr | None) -> list[str]:
    """The keys of a dict display, or of the one that a name is given; [] for anything else."""
    if isinstance(node, ast.Name):
        values = _assigned(module, node)
        node = values[-1] if values else None
    if isinstance(node, ast.Dict):
        return [k for key in node.keys if isinstance(k := constant(key), str)][:40]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
        return [k.arg for k in node.keywords if k.arg][:40]
    return []


def writes(script: Script) -> Iterator[tuple[ast.Call, list[str], ast.expr]]:
    """Calls that write a dict or rows to a file: the call, the keys, the path's expression."""
    module = script.module
    for call in module.called("json.dump"):
        if len(call.args) > 1 and (where := _opened(module, call.args[1])) is not None:
            yield call, dict_keys(module, call.args[0]), where
    for call in module.methods("write_text"):
        assert isinstance(call.func, ast.Attribute)
        inner = next(
            (n for a in call.args for n in ast.walk(a) if isinstance(n, ast.Call)
             and module.is_a(n.func, "json.dumps") and n.args), None,
        )  # fmt: skip
        if inner is not None:
            yield call, dict_keys(module, inner.args[0]), call.func.value
    for call in module.called("csv.DictWriter"):
        fields = keyword(call, "fieldnames") or (call.args[1] if len(call.args) > 1 else None)
        where = _opened(module, call.args[0]) if call.args else None
        if where is not None:
            yield call, _texts(module, fields), where
    for call in module.called("csv.writer"):
        where = _opened(module, call.args[0]) if call.args else None
        rows = [
            r
            for r in module.methods("writerow")
            if module.scope(r) is module.scope(call) and r.args and _texts(module, r.args[0])
        ]
        if where is not None and rows:
            yield call, _texts(module, rows[0].args[0]), where


def _texts(module: Module, node: ast.expr | None) -> list[str]:
    if isinstance(node, ast.Name):
        values = _assigned(module, node)
        node = values[-1] if values else None
    if isinstance(node, ast.List | ast.Tuple):
        found = [constant(e) for e in node.elts]
        return [f for f in found if isinstance(f, str) and re.search(r"\w", f)]
    return []


def _opened(module: Module, node: ast.expr) -> ast.expr | None:
    """The path of ``open(path, "w")``, where ``node`` is that call or what it was bound to."""
    if isinstance(node, ast.Name):
        for outer in module.up(node):
            if isinstance(outer, ast.With):
                for item in outer.items:
                    if (
                        isinstance(item.optional_vars, ast.Name)
                        and item.optional_vars.id == node.id
                    ):
                        return _opened(module, item.context_expr)
        values = _assigned(module, node)
        return _opened(module, values[-1]) if len(values) == 1 else None
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id == "open" and node.args:
            return node.args[0]
        if isinstance(node.func, ast.Attribute) and node.func.attr == "open":
            return node.func.value
    return None
