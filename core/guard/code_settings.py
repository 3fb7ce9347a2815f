"""Facts from settings in code: constants, defaults, arguments and keys with a telling name."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from core.guard.calls import scope_name
from core.guard.kinds import environment_kind, setting_kind
from core.guard.tag import NAME, Arg, Fact
from core.guard.values import Values
from core.risk.module import dotted

_NUMERIC = (
    "learning rate", "batch size", "epochs", "accumulation", "clipping", "schedule", "dropout", "seed",
)  # fmt: skip


def setting(
    values: Values, name: str, owner: str, node: ast.AST, value: ast.expr, label: str = ""
) -> Iterator[Fact]:
    """The fact of a name that is given a value, where the name is that of a setting."""
    kind = setting_kind(name)
    if not kind or isinstance(value, ast.Call | ast.Lambda | ast.ListComp | ast.Await | ast.Dict):
        return
    text = values.text(value)
    constant = NAME not in text and not isinstance(value, ast.Subscript | ast.Attribute)
    if not constant and (kind not in _NUMERIC or isinstance(value, ast.Name | ast.Subscript)):
        return
    sure = kind not in ("dataset", "architecture", "data subset", "metric") or _is_number(value)
    line = getattr(value, "lineno", getattr(node, "lineno", 1))
    args = {"value": Arg(kind, text, sure)}
    yield Fact("setting", kind, label or name, line, args, "quiet", owner, scope_name(values, node))


def _is_number(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, int | float)


def scaled(values: Values, node: ast.AugAssign) -> Iterator[Fact]:
    """``lr *= 8``: a setting that is changed in place."""
    name = target = ""
    if isinstance(node.target, ast.Name | ast.Attribute):
        name = dotted(node.target)
        target = values.text(node.target)
    elif isinstance(node.target, ast.Subscript) and isinstance(node.target.slice, ast.Constant):
        name = target = str(node.target.slice.value)
    kind = setting_kind(name) if name else ""
    if kind in _NUMERIC and not (isinstance(node.op, ast.Add) and values.text(node.value) == "1"):
        text = f"{type(node.op).__name__} {values.text(node.value)}"
        scope = scope_name(values, node)
        yield Fact(
            "scaled",
            kind,
            f"{name} is scaled",
            node.lineno,
            {"by": Arg(kind, text)},
            "sure",
            target,
            scope,
        )


def defaults(values: Values, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Fact]:
    """The default values of a function's parameters."""
    positional = [*node.args.posonlyargs, *node.args.args]
    pairs = list(
        zip(
            positional[len(positional) - len(node.args.defaults) :], node.args.defaults, strict=True
        )
    )
    pairs += [(a, d) for a, d in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if d]
    for arg, value in pairs:
        yield from setting(values, arg.arg, f"{node.name}.{arg.arg}", node, value)


def argument(values: Values, call: ast.Call) -> Iterator[Fact]:
    """``add_argument("--lr", default=...)``."""
    names = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    long = next((n for n in names if n.startswith("--")), names[0] if names else "")
    for keyword in call.keywords:
        if keyword.arg == "default" and long:
            yield from setting(values, long, long, call, keyword.value)
        elif (
            keyword.arg == "action"
            and long
            and values.text(keyword.value) in ("'store_false'", "'store_true'")
        ):
            if kind := setting_kind(long):
                args = {"action": Arg(kind, values.text(keyword.value))}
                yield Fact("flag", kind, long, call.lineno, args, "quiet", long)


def keys(values: Values, node: ast.Dict) -> Iterator[Fact]:
    """``{"lr": 0.1}``, and parameter groups ``{"params": ..., "lr": ...}``."""
    for key, value in zip(node.keys, node.values, strict=True):
        if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
            continue
        if key.value == "params":
            args = {"params": Arg("parameter groups", values.text(value))}
            for other, its in zip(node.keys, node.values, strict=True):
                if isinstance(other, ast.Constant) and other.value != "params":
                    kind = setting_kind(str(other.value)) or "parameter groups"
                    args[str(other.value)] = Arg(kind, values.text(its))
            scope = scope_name(values, node)
            yield Fact(
                "group", "parameter groups", "parameter group", node.lineno, args, "sure", "", scope
            )
            return
        yield from setting(values, key.value, f"['{key.value}']", node, value)


def is_environ(values: Values, node: ast.AST) -> bool:
    """Whether an expression is ``os.environ``."""
    return "os.environ" in values.module.resolve(node) or dotted(node).endswith("environ")


def environment(values: Values, node: ast.AST, name: str, value: ast.expr) -> Iterator[Fact]:
    """A variable of the environment that is set."""
    if kind := environment_kind(name):
        args = {"value": Arg(kind, values.text(value))}
        line = getattr(node, "lineno", 1)
        yield Fact("environment", kind, f"the variable {name}", line, args, "sure", name)
