"""Expressions as texts that are alike where they mean the same.

Constants are put in for the names that stand for them, imported names are written in full, moves to
a device are left out, and names of the program are marked, so that a renamed variable is no change.
"""

from __future__ import annotations

import ast
import builtins
import operator
import re
from collections.abc import Callable
from typing import Any

from core.guard.tag import ATTRIBUTE_END, END, NAME
from core.risk.module import FUNCTIONS, Module

MOVES = frozenset("cuda cpu xla contiguous npu numpy tolist".split())
"""Methods that change where a tensor is and not what it is."""

WRAPPERS = frozenset(
    "MpDeviceLoader ParallelLoader tqdm trange_ list_ prepare_data_loader send_cpu_data_to_device "
    "per_device_loader track".split()
)
"""Calls that hand their first argument on."""

DEVICE_KEYWORDS = frozenset(
    "device non_blocking pin_memory num_workers persistent_workers prefetch_factor device_ids "
    "map_location pin_memory_device device_type output_device".split()
)
"""Keyword arguments that say where and how fast, and not what."""

_BUILTINS = frozenset(dir(builtins))
_MARKED = re.compile(f"{NAME}([^{NAME}{END}{ATTRIBUTE_END}]*)([{END}{ATTRIBUTE_END}])")
_DEVICE = re.compile(r"dev(ice)?|xm|cuda|cpu|gpu|rank|xla|torch_xla", re.IGNORECASE)
_MAX_NODES = 1_500  # of one expression; larger ones are data, and are compared by their beginning


def plain(text: str) -> str:
    """The text of a value as it is shown."""
    return _MARKED.sub(r"\1", text)


def common(text: str, shared: set[str], bound: set[str]) -> str:
    """The text with each name that only one version knows, and makes itself, as a mere sign."""

    def sign(match: re.Match[str]) -> str:
        name = match[1] if match[2] == END else f".{match[1]}"
        return match[1] if name in shared or name not in bound else "·"

    return _MARKED.sub(sign, text) if NAME in text else text


def nameless(text: str) -> str:
    """The text with every name of the program as a mere sign."""
    return _MARKED.sub("·", text)


def number(value: Any) -> Any:
    """``1.0`` as ``1``: the same to every call that this guard looks at."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return int(value)
    return value


class Values:
    """The values of one file's expressions."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._scopes: dict[ast.AST, ast.AST] = {module.tree: module.tree}
        for node, parent in module.parents.items():  # in which a parent comes before its children
            inside = isinstance(parent, FUNCTIONS)
            self._scopes[node] = parent if inside else self._scopes.get(parent, module.tree)
        self._bindings = _bindings(self)

    def scope(self, node: ast.AST) -> ast.AST:
        """The function around a node, else the module; as ``Module.scope``, and faster."""
        return self._scopes.get(node, self.module.tree)

    def text(self, node: ast.AST | None, hide: frozenset[str] = frozenset()) -> str:
        """An expression as text, ``""`` for None. ``hide``: methods that are left out as moves are."""
        if node is None:
            return ""
        if isinstance(node, ast.Constant):
            return repr(number(node.value))
        try:
            return ast.unparse(_Simplify(self, self.scope(node), hide).visit(node))
        except _Large:
            return ast.unparse(node)[:2_000]

    def constant(self, name: str, scope: ast.AST) -> ast.expr | None:
        """The constant that a name stands for in a function, if it is bound once and to one."""
        for where in (scope, self.module.tree):
            bound = self._bindings.get((where, name))
            if bound is not None:
                return bound[0] if len(bound) == 1 and _is_constant(bound[0]) else None
        return None

    def made_by(self, name: str, scope: ast.AST) -> ast.expr | None:
        """The expression that a name is bound to, where that is known and the only one."""
        for where in (scope, self.module.tree):
            bound = self._bindings.get((where, name))
            if bound is not None:
                return bound[0] if len(bound) == 1 else None
        return None


class _Large(Exception):
    """An expression has too many nodes."""


def _bindings(values: Values) -> dict[tuple[ast.AST, str], list[ast.expr | None]]:
    """By function and name, what the name is bound to; None for what is not a plain assignment."""
    module = values.module
    found: dict[tuple[ast.AST, str], list[ast.expr | None]] = {}

    def bind(target: ast.AST, value: ast.expr | None) -> None:
        if isinstance(target, ast.Name):
            found.setdefault((values.scope(target), target.id), []).append(value)
            return
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                found.setdefault((values.scope(node), node.id), []).append(None)

    for node in module.parents:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                bind(target, node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            bind(node.target, node.value)
        elif isinstance(
            node, ast.AugAssign | ast.For | ast.AsyncFor | ast.comprehension | ast.NamedExpr
        ):
            bind(node.target, None)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            bind(node.optional_vars, None)
        elif isinstance(node, FUNCTIONS):
            args = node.args
            for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg):
                if arg is not None:
                    found.setdefault((node, arg.arg), []).append(None)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            for name in node.names:
                found.setdefault((module.tree, name), []).append(None)
    return found


def _is_constant(node: ast.AST | None) -> bool:
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.UnaryOp):
        return _is_constant(node.operand)
    if isinstance(node, ast.BinOp):
        return _is_constant(node.left) and _is_constant(node.right)
    if isinstance(node, ast.Tuple | ast.List):
        return len(node.elts) <= 8 and all(_is_constant(e) for e in node.elts)
    return False


def is_move(call: ast.Call, module: Module) -> bool:
    """Whether ``x.to(...)`` moves without a change of the dtype."""
    values = [*call.args, *(k.value for k in call.keywords if k.arg not in DEVICE_KEYWORDS)]
    if not call.args and not call.keywords:
        return False
    for value in values:
        if isinstance(value, ast.Constant):
            if isinstance(value.value, (bool, str)):
                continue  # non_blocking, or "cuda:0"
            return False
        name = value.attr if isinstance(value, ast.Attribute) else getattr(value, "id", "")
        if isinstance(value, ast.Call):
            func = value.func
            name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
        if isinstance(value, ast.JoinedStr) or _DEVICE.search(name):
            continue
        return False
    return True


class _Simplify(ast.NodeTransformer):
    def __init__(self, values: Values, scope: ast.AST, hide: frozenset[str]) -> None:
        self._values = values
        self._module = values.module
        self._scope = scope
        self._hide = hide
        self._left = _MAX_NODES

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """A copy of the node with its children visited: the tree itself stays as it is."""
        self._left -= 1
        if self._left < 0:
            raise _Large
        new = type(node)()
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                made: Any = [self.visit(v) if isinstance(v, ast.AST) else v for v in value]
            elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
                made = self.visit(value)
            else:
                made = value
            setattr(new, name, made)
        return new

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if meanings := self._module.resolve(node):
            return ast.Name(meanings[0].lstrip(".") or node.id)
        known = self._values.constant(node.id, self._scope)
        if known is not None:
            return self.visit(known)
        if node.id in _BUILTINS:
            return node
        return ast.Name(f"{NAME}{node.id}{END}")

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if meanings := self._module.resolve(node):
            return ast.Name(meanings[0].lstrip("."))
        if node.attr in ("module", "_orig_mod"):
            return self.visit(node.value)  # what DataParallel puts around a model
        return ast.Attribute(self.visit(node.value), f"{NAME}{node.attr}{ATTRIBUTE_END}")

    def visit_Call(self, node: ast.Call) -> ast.AST:
        func = node.func
        if isinstance(func, ast.Attribute) and not self._module.resolve(func):
            moved = func.attr in MOVES or func.attr in self._hide
            if moved or (func.attr == "to" and is_move(node, self._module)):
                return self.visit(func.value)
        name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
        if name in WRAPPERS and node.args:
            return self.visit(node.args[0])
        if isinstance(func, ast.Attribute) and not self._module.resolve(func):
            new: ast.expr = ast.Attribute(self.visit(func.value), func.attr)
        else:
            new = self.visit(func)
        return ast.Call(
            new,
            [self.visit(a) for a in node.args if not self._is_device(a)],
            sorted(
                (
                    ast.keyword(k.arg, self.visit(k.value))
                    for k in node.keywords
                    if k.arg not in DEVICE_KEYWORDS and k.arg != "generator"
                ),
                key=lambda k: k.arg or "",
            ),
        )

    def _is_device(self, node: ast.expr) -> bool:
        """Whether an argument only says where: ``device``, ``xm.xla_device()``."""
        at = node.func if isinstance(node, ast.Call) else node
        if isinstance(node, ast.Call) and not self._module.resolve(at):
            return False
        name = at.attr if isinstance(at, ast.Attribute) else getattr(at, "id", "")
        return name in ("device", "xla_device")

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Constant(number(node.value))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        new = ast.UnaryOp(node.op, self.visit(node.operand))
        value = fold(new)
        return new if value is None else ast.Constant(value)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        new = ast.BinOp(self.visit(node.left), node.op, self.visit(node.right))
        value = fold(new)
        return new if value is None else ast.Constant(value)


def fold(node: ast.AST) -> int | float | None:
    """The number that an expression of numbers is; None for anything else."""
    if isinstance(node, ast.Constant):
        return _real(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = fold(node.operand)
        return None if value is None else -value
    if not isinstance(node, ast.BinOp):
        return None
    left, right = fold(node.left), fold(node.right)
    work = _WORK.get(type(node.op))
    if work is None or left is None or right is None or max(abs(left), abs(right)) > 1e15:
        return None
    try:
        return _real(work(left, right))
    except (ZeroDivisionError, OverflowError):
        return None


_WORK: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: lambda a, b: a**b if abs(b) <= 64 else None,
}


def _real(value: Any) -> int | float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return number(value)
