"""Facts from statements: settings by their names, modes, masks, slices, exceptions, environment."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from core.guard.bodies import METRIC_FUNCTION, backward_facts, body_facts
from core.guard.calls import call_facts, called, is_evaluation, owner_of, scope_name
from core.guard.code_settings import (
    argument,
    defaults,
    environment,
    is_environ,
    keys,
    scaled,
    setting,
)
from core.guard.kinds import setting_kind
from core.guard.known_calls import KNOWN
from core.guard.tag import Arg, Fact, Facts
from core.guard.values import Values, is_move
from core.risk.module import dotted

_DATA = re.compile(
    r"(\w+_)?(data|dataset|ds|samples?|examples?|files?|texts?|records?|lines|rows|images?|labels|paths?"
    r"|train|val|test|valid|\w*loader|DataLoader)(_\w+)?|(train|val|test|valid)\w*|[xXyY]_\w+"
)
_SHARD = re.compile(r"rank|ordinal|world|shard|replica", re.IGNORECASE)
_CASTS = {"half": "float16", "bfloat16": "bfloat16", "double": "float64", "float": "float32", "int": "int32",
          "long": "int64"}  # fmt: skip
_HARMLESS_ERRORS = (
    "ImportError",
    "ModuleNotFoundError",
    "KeyboardInterrupt",
    "AttributeError",
    "FileExistsError",
)
_LOGGING = re.compile(
    r"(^|\.)(append|item|print|log|info|debug|update|add|add_scalar|write|numpy|tolist|extend)$"
)
_NO_GRAD = ("no_grad", "inference_mode", "set_grad_enabled", "enable_grad")


def statement_facts(values: Values) -> Iterator[Fact]:
    """The facts of single nodes, from the top of the file."""
    for node in values.module.parents:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _assigned(values, node, target, node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield from _assigned(values, node, node.target, node.value)
        elif isinstance(node, ast.AugAssign):
            yield from scaled(values, node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from defaults(values, node)
            yield from _decorated(values, node)
        elif isinstance(node, ast.Call):
            yield from _call(values, node)
        elif isinstance(node, ast.Dict):
            yield from keys(values, node)
        elif isinstance(node, ast.With | ast.AsyncWith):
            yield from _contexts(values, node)
        elif isinstance(node, ast.Try):
            yield from _swallowed(values, node)
        elif isinstance(node, ast.Subscript):
            yield from _slice(values, node)


def _assigned(values: Values, node: ast.stmt, target: ast.expr, value: ast.expr) -> Iterator[Fact]:
    if isinstance(target, ast.Tuple | ast.List):
        if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
            for one, its in zip(target.elts, value.elts, strict=True):
                yield from _assigned(values, node, one, its)
        return
    scope = scope_name(values, node)
    if isinstance(target, ast.Name):
        yield from setting(values, target.id, values.text(target), node, value)
    elif isinstance(target, ast.Attribute):
        yield from _attribute(values, node, target, value, scope)
    elif isinstance(target, ast.Subscript):
        key = target.slice
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            if is_environ(values, target.value):
                yield from environment(values, node, key.value, value)
            elif kind := setting_kind(key.value):
                args = {"value": Arg(kind, values.text(value))}
                yield Fact("key", kind, key.value, node.lineno, args, "sure", key.value, scope)
        elif isinstance(value, ast.Constant | ast.UnaryOp) and values.text(value) == "-100":
            args = {"where": Arg("masks", values.text(target))}
            yield Fact(
                "label mask", "masks", "labels set to -100", node.lineno, args, "sure", "", scope
            )


def _attribute(
    values: Values, node: ast.stmt, target: ast.Attribute, value: ast.expr, scope: str
) -> Iterator[Fact]:
    if target.attr == "requires_grad":
        args = {
            "requires_grad": Arg("frozen", values.text(value)),
            "of": Arg("frozen", values.text(target.value)),
        }
        yield Fact("requires_grad", "frozen", "requires_grad", node.lineno, args, "sure", "", scope)
    elif target.attr in ("weight", "bias") and isinstance(value, ast.Attribute):
        if value.attr in ("weight", "bias"):
            args = {
                "tie": Arg("weights", values.text(value)),
                "of": Arg("weights", values.text(target)),
            }
            yield Fact("tie", "weights", "tied weights", node.lineno, args, "sure", "", scope)
    else:
        yield from setting(values, target.attr, values.text(target), node, value)


def _decorated(values: Values, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Fact]:
    for item in node.decorator_list:
        name = called(item) if isinstance(item, ast.Call) else dotted(item).rsplit(".", 1)[-1]
        if name in _NO_GRAD and not is_evaluation(node.name):
            yield Fact("no_grad", "detach", f"@{name}", item.lineno, {}, "sure", "", node.name)
        elif name in ("skip", "skipif", "xfail"):
            args = {"how": Arg("tests", values.text(item))}
            yield Fact(
                "skipped test", "tests", f"test marked {name}", item.lineno, args, "sure", node.name
            )


def _call(values: Values, call: ast.Call) -> Iterator[Fact]:
    name, scope = called(call), scope_name(values, call)
    is_method = isinstance(call.func, ast.Attribute) and not values.module.resolve(call.func)
    if name == "add_argument":
        yield from argument(values, call)
    elif (
        name in ("setdefault", "putenv")
        and isinstance(call.func, ast.Attribute)
        and len(call.args) == 2
    ):
        key = call.args[0]
        if is_environ(values, call.func.value) or name == "putenv":
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield from environment(values, call, key.value, call.args[1])
    elif name == "suppress" and values.module.resolve(call.func):
        errors = ", ".join(values.text(a) for a in call.args)
        if errors and not any(e in errors for e in _HARMLESS_ERRORS):
            args = {"errors": Arg("exceptions", errors)}
            yield Fact(
                "swallow",
                "exceptions",
                "errors are suppressed",
                call.lineno,
                args,
                "sure",
                "",
                scope,
            )
    elif is_method and name in ("train", "eval"):
        yield from _mode(values, call, name, scope)
    elif is_method and name in _CASTS and not call.args and not call.keywords:
        yield _cast(call, _CASTS[name], owner_of(values, call), scope)
    elif is_method and name in ("to", "type") and not is_move(call, values.module):
        dtype = [
            values.text(a)
            for a in call.args
            if "torch." in values.text(a) or "dtype" in values.text(a)
        ]
        dtype += [values.text(k.value) for k in call.keywords if k.arg == "dtype"]
        for text in dtype[:1]:
            yield _cast(call, text.removeprefix("torch."), owner_of(values, call), scope)
    elif is_method and name in ("detach", "detach_"):
        yield from _detached(values, call, scope)
    for keyword in call.keywords:
        if keyword.arg in (
            "attention_mask",
            "attn_mask",
            "key_padding_mask",
            "src_key_padding_mask",
            "mask",
        ):
            if name not in KNOWN:
                args = {"value": Arg("masks", values.text(keyword.value))}
                label = f"{name}({keyword.arg}=)"
                yield Fact("mask argument", "masks", label, call.lineno, args, "gone", label, scope)


def _cast(call: ast.Call, to: str, owner: str, scope: str) -> Fact:
    half = to in ("float16", "half", "bfloat16")
    to = {"half": "float16", "float": "float32", "double": "float64", "long": "int64"}.get(to, to)
    args = {"to": Arg("dtype", to)}
    return Fact(
        "cast",
        "dtype",
        f"cast to {to}",
        call.lineno,
        args,
        "sure" if half else "guess",
        owner,
        scope,
    )


def _mode(values: Values, call: ast.Call, name: str, scope: str) -> Iterator[Fact]:
    assert isinstance(call.func, ast.Attribute)
    base = dotted(call.func.value)
    if not base or base.rsplit(".", 1)[-1] in ("trainer", "self", "experiment", "df", "tokenizer"):
        return
    mode = name
    if call.args and values.text(call.args[0]) == "False":
        mode = "eval"
    presence = "gone" if mode == "train" else ("gone" if is_evaluation(scope) else "sure")
    args = {"mode": Arg("mode", mode)}
    yield Fact(
        "mode",
        "mode",
        f"{name}()",
        call.lineno,
        args,
        presence,
        values.text(call.func.value),
        scope,
    )


def _detached(values: Values, call: ast.Call, scope: str) -> Iterator[Fact]:
    """A detached tensor; not where it only goes into a log or a sum for one."""
    at: ast.AST = call
    for _ in range(6):
        parent = values.module.parents.get(at)
        if isinstance(parent, ast.Attribute) and _LOGGING.search(parent.attr):
            return
        if isinstance(parent, ast.Attribute) and parent.attr in (
            "cpu",
            "clone",
            "float",
            "mean",
            "sum",
            "numpy",
        ):
            base = dotted(call.func.value) if isinstance(call.func, ast.Attribute) else ""
            if parent.attr in ("cpu", "numpy") or "loss" in base:
                return
        if (
            isinstance(parent, ast.Call)
            and parent.func is not at
            and _LOGGING.search(called(parent))
        ):
            return
        if isinstance(parent, ast.Return) and "loss" in ast.unparse(call.func).lower():
            return  # a loss that is handed out, for a log
        if parent is None or isinstance(
            parent, ast.AugAssign | ast.Dict | ast.FormattedValue | ast.Return
        ):
            if not isinstance(parent, ast.Return):
                return
        if parent is None or isinstance(parent, ast.stmt):
            break
        at = parent
    if is_evaluation(scope):
        return
    assert isinstance(call.func, ast.Attribute)
    base = values.text(call.func.value)
    owner = owner_of(values, call)
    if "loss" in base and owner and owner != base and "loss" in owner:
        return  # total_loss = loss.detach(), a copy for the log
    yield Fact(
        "detach",
        "detach",
        "detach()",
        call.lineno,
        {"of": Arg("detach", base)},
        "sure",
        owner,
        scope,
    )


def _contexts(values: Values, node: ast.With | ast.AsyncWith) -> Iterator[Fact]:
    scope = scope_name(values, node)
    for item in node.items:
        call = item.context_expr
        name = called(call) if isinstance(call, ast.Call) else ""
        if name in _NO_GRAD:
            inner = {called(n) for n in ast.walk(node) if isinstance(n, ast.Call)}
            quiet = is_evaluation(scope) or bool(
                inner & {"normal_", "uniform_", "copy_", "zero_", "eval", "fill_"}
            )
            args = {"class": Arg("detach", name if name == "enable_grad" else "no_grad")}
            if isinstance(call, ast.Call) and name == "set_grad_enabled":
                args["on"] = Arg("detach", values.text(call.args[0] if call.args else None))
            presence = "guess" if quiet and "backward" not in inner else "sure"
            yield Fact("no_grad", "detach", f"{name}()", call.lineno, args, presence, "", scope)


def _swallowed(values: Values, node: ast.Try) -> Iterator[Fact]:
    for handler in node.handlers:
        if not all(_does_nothing(s) for s in handler.body):
            continue
        error = values.text(handler.type) or "everything"
        if any(e in error for e in _HARMLESS_ERRORS):
            continue
        args = {"errors": Arg("exceptions", error)}
        scope = scope_name(values, node)
        yield Fact(
            "swallow", "exceptions", "errors are swallowed", handler.lineno, args, "sure", "", scope
        )


def _does_nothing(node: ast.stmt) -> bool:
    if isinstance(node, ast.Pass | ast.Continue | ast.Break):
        return True
    if isinstance(node, ast.Return):
        return node.value is None or isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Expr):
        call = node.value
        logs = isinstance(call, ast.Call) and called(call) in (
            "print",
            "warning",
            "info",
            "debug",
            "warn",
            "error",
        )
        return isinstance(call, ast.Constant) or logs
    return False


def _slice(values: Values, node: ast.Subscript) -> Iterator[Fact]:
    if not isinstance(node.slice, ast.Slice) or not isinstance(node.ctx, ast.Load):
        return
    base = dotted(node.value).rsplit(".", 1)[-1]
    if isinstance(node.value, ast.Call):
        base = called(node.value)
        if base in ("list", "tuple", "sorted") and node.value.args:
            inner = node.value.args[0]
            base = called(inner) if isinstance(inner, ast.Call) else dotted(inner)
    scope = scope_name(values, node)
    step = values.text(node.slice.step)
    text = values.text(node.slice)
    if step and _SHARD.search(text):
        args = {"slice": Arg("sampler", text)}
        yield Fact(
            "shard",
            "sampler",
            "a share of the data for each process",
            node.lineno,
            args,
            "gone",
            "",
            scope,
        )
    elif _DATA.fullmatch(base):
        measured = bool(METRIC_FUNCTION.fullmatch(scope.lower()))
        measured = measured or is_evaluation(base, owner_of(values, node))
        kind = "evaluation data" if measured else "data subset"
        bounded = node.slice.upper is not None or node.slice.lower is not None or step
        if bounded:
            args = {"slice": Arg(kind, text)}
            yield Fact(
                "slice",
                kind,
                f"a slice of {base}",
                node.lineno,
                args,
                "sure",
                values.text(node.value),
                scope,
            )


def collect(values: Values) -> Facts:
    """All facts of one Python file."""
    from core.guard.loop import loop_facts

    facts = Facts(lines=values.module.lines)
    for source in (call_facts, loop_facts, statement_facts, body_facts, backward_facts):
        facts.facts += source(values)
    names, bound = facts.names, facts.bound
    for node in values.module.parents:
        if isinstance(node, ast.Name):
            names.add(node.id)
            if not isinstance(node.ctx, ast.Load):
                bound.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(f".{node.attr}")
            if not isinstance(node.ctx, ast.Load):
                bound.add(f".{node.attr}")
        elif isinstance(node, ast.arg):
            names.add(node.arg)
            bound.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for name in (node.name, f".{node.name}"):  # a method is called by its attribute
                names.add(name)
                bound.add(name)
        elif isinstance(node, ast.Call) and called(node) == "add_argument":
            for arg in node.args:
                if isinstance(arg, ast.Constant) and isinstance(arg.value, str):
                    bound.add(f".{arg.value.lstrip('-').replace('-', '_')}")
    return facts
