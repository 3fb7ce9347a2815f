"""A Python file of a stranger's project, read with ``ast`` and never executed.

Names are resolved through the imports of the file (``import torch.nn as nn``, ``from torch import
optim``, ``F = torch.nn.functional``), so a rule asks for ``torch.nn.DataParallel`` whatever it is
called there. What would need types stays unresolved.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator
from functools import cached_property

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.While, ast.AsyncFor)

TORCH = frozenset(
    "torch torchvision torchaudio transformers accelerate lightning pytorch_lightning timm "
    "diffusers fastai monai".split()
)

_PYTHON_2 = re.compile(
    r"^[ \t]{0,80}(?:print[ \t]{1,9}[^(=\s.\[]|exec[ \t]{1,9}[\"']"
    r"|except[ \t]{1,9}[\w.]{1,80}[ \t]{0,9},[ \t]{0,9}\w{1,80}[ \t]{0,9}:)",
    re.MULTILINE,
)


class Unreadable(Exception):
    """The text is no Python that this Python reads; ``str`` is a clause that says why."""


def _parse(text: str) -> ast.Module:
    """The tree; ``x.cuda(async=True)``, which Python 3.7 made an error, is read as it was meant."""
    try:
        return ast.parse(text)
    except SyntaxError:
        mended = re.sub(r"\basync(\s*=)(?!=)", r"async_\1", text)
        if mended == text:
            raise
        return ast.parse(mended)


class Module:
    """The tree of one file, with its imports and what stands where.

    ``line_of`` turns a line of the tree into (path, line) for notebooks, whose cells are joined.
    """

    def __init__(self, path: str, text: str) -> None:
        """Parse; raises :class:`Unreadable`."""
        self.path = path
        self.text = text
        self.lines = text.split("\n")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the stranger's escapes and comparisons
                self.tree = _parse(text)
        except (SyntaxError, ValueError) as err:
            if _PYTHON_2.search(text):
                raise Unreadable("looks like Python 2") from err
            line = getattr(err, "lineno", None)
            raise Unreadable("has a syntax error" + (f" in line {line}" if line else "")) from err
        except (RecursionError, MemoryError) as err:
            raise Unreadable("is nested too deeply to be read") from err
        self.parents: dict[ast.AST, ast.AST] = {}
        self.calls: list[ast.Call] = []
        self.attributes: list[ast.Attribute] = []
        self.strings: list[tuple[ast.AST, str]] = []
        self.subscripts: list[ast.Subscript] = []
        self.assigns: list[ast.Assign | ast.AnnAssign] = []
        self.imports: list[tuple[ast.Import | ast.ImportFrom, str]] = []
        self.functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
        self._names: dict[str, tuple[str, ...]] = {}
        self._resolved: dict[ast.AST, tuple[str, ...]] = {}
        self._collect()

    def _collect(self) -> None:
        todo: list[ast.AST] = [self.tree]
        shadows: set[str] = set()
        while todo:
            node = todo.pop()
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
                todo.append(child)
            if isinstance(node, ast.arg):
                shadows.add(node.arg)
            elif isinstance(node, ast.For):
                shadows.update(n.id for n in ast.walk(node.target) if isinstance(n, ast.Name))
            elif isinstance(node, ast.Call):
                self.calls.append(node)
            elif isinstance(node, ast.Attribute):
                self.attributes.append(node)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                self.strings.append((node, node.value))
            elif isinstance(node, ast.Subscript):
                self.subscripts.append(node)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                self.assigns.append(node)
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if isinstance(node.value, ast.Call):
                    shadows.update(t.id for t in targets if isinstance(t, ast.Name))
            elif isinstance(node, FUNCTIONS):
                self.functions.append(node)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    self.imports.append((node, alias.name))
                    top = alias.name.split(".")[0]
                    self._bind(alias.asname or top, alias.name if alias.asname else top)
            elif isinstance(node, ast.ImportFrom):
                module = "." * node.level + (node.module or "")
                for alias in node.names:
                    self.imports.append((node, f"{module}.{alias.name}"))
                    self._bind(alias.asname or alias.name, f"{module}.{alias.name}")
        for order in (self.calls, self.attributes, self.subscripts, self.assigns, self.functions):
            order.sort(key=lambda n: (n.lineno, n.col_offset))
        for name in shadows & set(self._names):
            # `import model`, then `model = model.Net()` or `def train(model)`: no module any more.
            kept = [m for m in self._names[name] if m.split(".")[0] in TORCH]
            self._names[name] = tuple(kept)
        for assign in self.assigns:
            targets = assign.targets if isinstance(assign, ast.Assign) else [assign.target]
            if len(targets) == 1 and isinstance(targets[0], ast.Name):
                if isinstance(assign.value, ast.Attribute):
                    for name in self.resolve(assign.value):
                        self._bind(targets[0].id, name)
        self._resolved.clear()

    def _bind(self, name: str, meaning: str) -> None:
        known = self._names.get(name, ())
        if meaning not in known and len(known) < 4:
            self._names[name] = (*known, meaning)

    # --- asking ---------------------------------------------------------------------------

    def resolve(self, node: ast.AST) -> tuple[str, ...]:
        """What a dotted name may mean, by the imports: ``("torch.nn.Linear",)``; () if unknown."""
        known = self._resolved.get(node)
        if known is None:
            parts: list[str] = []
            base = node
            while isinstance(base, ast.Attribute):
                parts.append(base.attr)
                base = base.value
            names = self._names.get(base.id, ()) if isinstance(base, ast.Name) else ()
            known = tuple(".".join([name, *reversed(parts)]) for name in names)
            self._resolved[node] = known
        return known

    def is_a(self, node: ast.AST, *names: str) -> bool:
        """Whether ``node`` may mean one of ``names``."""
        return any(name in names for name in self.resolve(node))

    def under(self, node: ast.AST, *packages: str) -> bool:
        """Whether ``node`` may be something of one of the ``packages``."""
        starts = tuple(p + "." for p in packages)
        return any(name.startswith(starts) for name in self.resolve(node))

    def called(self, *names: str) -> Iterator[ast.Call]:
        """The calls of one of ``names``, from the top."""
        found = {c: None for name in names for c in self._by_name.get(name, ())}
        return iter(sorted(found, key=lambda c: (c.lineno, c.col_offset)))

    @cached_property
    def _by_name(self) -> dict[str, list[ast.Call]]:
        index: dict[str, list[ast.Call]] = {}
        for call in self.calls:
            for name in self.resolve(call.func):
                index.setdefault(name, []).append(call)
        return index

    def methods(self, *names: str) -> Iterator[ast.Call]:
        """The calls ``something.name(...)`` whose something is no module that was imported."""
        for name in names:
            yield from self._by_method.get(name, ())

    @cached_property
    def _by_method(self) -> dict[str, list[ast.Call]]:
        index: dict[str, list[ast.Call]] = {}
        for call in self.calls:
            if isinstance(call.func, ast.Attribute) and not self.resolve(call.func):
                index.setdefault(call.func.attr, []).append(call)
        return index

    def source(self, line: int) -> str:
        """The text of a line, from 1; "" beyond the end."""
        return self.lines[line - 1] if 0 < line <= len(self.lines) else ""

    @cached_property
    def torch(self) -> bool:
        """Whether the file imports torch, or something that is built on it."""
        return any(name.split(".")[0] in TORCH for _, name in self.imports)

    def imports_any(self, *packages: str) -> bool:
        """Whether one of the packages is imported, at any place of the file."""
        return any(name.split(".")[0] in packages for _, name in self.imports)

    def up(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around ``node``, from the inside out."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def scope(self, node: ast.AST) -> ast.AST:
        """The function around ``node``, else the module."""
        return next((n for n in self.up(node) if isinstance(n, FUNCTIONS)), self.tree)

    def loop(self, node: ast.AST) -> ast.AST | None:
        """The innermost loop around ``node`` in its own function."""
        for outer in self.up(node):
            if isinstance(outer, FUNCTIONS):
                return None
            if isinstance(outer, LOOPS):
                return outer
        return None


def dotted(node: ast.AST) -> str:
    """``self.net`` for that expression, "" for anything but a dotted name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """The value of a keyword argument."""
    return next((k.value for k in call.keywords if k.arg == name), None)


def constant(node: ast.AST | None) -> object:
    """The value of a literal; None for anything else."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = constant(node.operand)
        return -value if isinstance(value, int | float) else None
    return node.value if isinstance(node, ast.Constant) else None


def notebook_code(text: str) -> list[tuple[int, str]]:
    """The code cells of a notebook, with their numbers from 1; magics and shell lines are blanked.

    Raises :class:`Unreadable`.
    """
    try:
        cells = json.loads(text)["cells"]
        found = []
        for number, cell in enumerate(cells, 1):
            if cell["cell_type"] == "code":
                source = cell["source"]
                source = source if isinstance(source, str) else "".join(source)
                lines = source.split("\n")
                if lines and lines[0].startswith("%%"):
                    continue  # another language
                code = ["" if ln.lstrip().startswith(("%", "!", "?")) else ln for ln in lines]
                found.append((number, "\n".join(code)))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as err:
        raise Unreadable("is no notebook of format 4") from err
    return found
