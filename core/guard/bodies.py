"""Facts from what is computed: the statements of functions and variables with a telling name.

``evaluate``, ``collate_fn``, ``lr_lambda``, ``correct += ...``: what they compute is compared statement by
statement, without moves to a device, without logs and without what PyTorch/XLA needs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from core.guard.calls import called, scope_name
from core.guard.tag import Arg, Fact
from core.guard.values import Values
from core.risk.module import dotted

_FUNCTIONS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("metric", re.compile(r"(\w+_)?(metrics?|accuracy|evaluate?|eval|score|f1|bleu|rouge|auc|perplexity|iou|validate"
                          r"|map|precision|recall|top_?k|compute_metrics)(_\w+)?")),
    ("schedule", re.compile(r"(\w+_)?(lr_lambda|get_lr|adjust_learning_rate|(lr_)?schedule\w*|warmup\w*|cosine\w*"
                            r"|set_lr|update_lr)")),
    ("dataset", re.compile(r"__getitem__|__len__|(\w+_)?(collate\w*|augment\w*|transforms?|preprocess\w*|tokenize\w*"
                           r"|normalize|encode|get_batch|load_data|make_batches)")),
    ("loss", re.compile(r"(\w+_)?(loss|criterion|loss_fn)|compute_loss|kl_divergence")),
    ("weights", re.compile(r"_?init_weights?|_?reset_parameters|initialize_weights|weights_init")),
)  # fmt: skip
_METRIC = re.compile(
    r"(\w+_)?(acc|accuracy|correct|f1|f1_score|bleu|rouge|auc|perplexity|ppl|miou|iou|rmse|mae|top1|top5|metric|recall"
    r"|precision|score|n_correct|num_correct)"
)
_LOSS = re.compile(r"(\w+_)?loss(_\w+)?|losses")
_LOSS_LOG = re.compile(
    r"(total|running|epoch|train|sum|avg|mean|val|test|eval|best|last|log|loss)_?(loss(es)?_?(sum|total|avg|acc)?)|.*(meter|log|hist|sum|total|avg|list)"
)
_HIDDEN = frozenset("item detach clone float double".split())
_NO_FACT = frozenset(
    "print info debug warning mark_step sync wait_device_ops rendezvous barrier master_print add_step_closure "
    "train eval set_postfix set_description log write flush add_scalar synchronize empty_cache step close start "
    "update_ set_epoch barrier_ tqdm format seed manual_seed".split()
)
TEST_FILE = re.compile(r"(^|/)(tests?|testing)/|(^|/)test_[^/]*\.py$|_test\.py$|(^|/)conftest\.py$")
METRIC_FILE = re.compile(
    r"(^|/)(metrics?|eval|evaluate|evaluation|scor(e|ing)|validate)[^/]*\.py$|(^|/)(metrics|evaluation)/"
)


def body_facts(values: Values) -> Iterator[Fact]:
    """Facts of statements by the names of functions, variables and the file."""
    module = values.module
    in_tests = bool(TEST_FILE.search(module.path))
    in_metrics = bool(METRIC_FILE.search(module.path))
    kinds: dict[ast.AST, str] = {}
    for function in module.functions:
        name = function.name.lower()
        kind = next((k for k, pattern in _FUNCTIONS if pattern.fullmatch(name)), "")
        if in_tests:
            kind = "tests"
        kinds[function] = kind or ("metric" if in_metrics else "")
    for node in module.parents:
        if isinstance(node, ast.Assert):
            yield from _assert(values, node, in_tests)
        if isinstance(node, ast.Assign | ast.AugAssign | ast.Return | ast.Expr | ast.AnnAssign):
            kind = kinds.get(module.scope(node), "")
            yield from _statement(values, node, kind)


def _assert(values: Values, node: ast.Assert, in_tests: bool) -> Iterator[Fact]:
    args = {"test": Arg("tests", values.text(node.test), in_tests)}
    presence = "gone" if in_tests else "quiet"
    scope = scope_name(values, node)
    yield Fact("assert", "tests", "assert", node.lineno, args, presence, "", scope)


def _statement(values: Values, node: ast.stmt, kind: str) -> Iterator[Fact]:
    value = getattr(node, "value", None)
    if value is None or isinstance(value, ast.Constant | ast.Name):
        if not (isinstance(node, ast.Return | ast.AugAssign) and kind and value is not None):
            return
    if isinstance(value, ast.Call) and called(value) in _NO_FACT:
        return
    target = ""
    if isinstance(node, ast.Assign):
        target = dotted(node.targets[0])
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        target = dotted(node.target)
    last = target.rsplit(".", 1)[-1]
    scope = scope_name(values, node)
    if kind in ("", "metric", "loss") and _LOSS.fullmatch(last):
        if kind != "metric" and not _LOSS_LOG.fullmatch(last):
            yield from _skeleton(values, node, value, target, scope)
        if kind != "loss":
            return
    if not kind and _METRIC.fullmatch(last):
        kind = "metric"
    if not kind or (isinstance(node, ast.Expr) and not isinstance(value, ast.Call)):
        return
    operator = type(node.op).__name__ if isinstance(node, ast.AugAssign) else ""
    text = values.text(value, _HIDDEN)
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        if values.text(node.targets[0], _HIDDEN) == text:
            return  # x = x.to(device)
    word = {"Return": "return", "Expr": ""}.get(type(node).__name__, target)
    args = {"code": Arg(kind, f"{operator} {text}".strip())}
    label = f"{scope or 'module'}(): {word}".rstrip(": ") if scope else word
    owner = values.text(node.targets[0]) if isinstance(node, ast.Assign) else word
    yield Fact(f"body:{kind}", kind, label, node.lineno, args, "guess", owner, scope)


def _skeleton(
    values: Values, node: ast.stmt, value: ast.expr | None, target: str, scope: str
) -> Iterator[Fact]:
    """How a loss is put together: sums, factors, means; not what its calls are given."""
    if value is None:
        return
    text = _arithmetic(values, value)
    if isinstance(node, ast.AugAssign):
        text = f"loss {type(node.op).__name__} {text}"
    if not re.search(r"[*/+-]|\.(mean|sum|max|min|abs|clamp|log|exp)\(|Mult|Div|Add|Sub", text):
        return
    args = {"form": Arg("loss", text)}
    label = f"how {target} is put together"
    yield Fact("loss form", "loss", label, node.lineno, args, "sure", target, scope)


def _arithmetic(values: Values, node: ast.expr) -> str:
    if isinstance(node, ast.BinOp):
        sign = {"Add": "+", "Sub": "-", "Mult": "*", "Div": "/", "Pow": "**"}.get(
            type(node.op).__name__, "?"
        )
        return f"({_arithmetic(values, node.left)} {sign} {_arithmetic(values, node.right)})"
    if isinstance(node, ast.Call):
        name = called(node)
        if isinstance(node.func, ast.Attribute) and name in (
            "mean",
            "sum",
            "max",
            "min",
            "clamp",
            "abs",
            "log",
            "exp",
        ):
            if not values.module.resolve(node.func):
                return f"{_arithmetic(values, node.func.value)}.{name}()"
        return "f()"
    if isinstance(node, ast.Name | ast.Attribute) and "loss" in dotted(node).rsplit(".", 1)[-1]:
        return "f()"
    return values.text(node)


def backward_facts(values: Values) -> Iterator[Fact]:
    """What ``backward()`` is called on, where it is arithmetic: ``(loss / 4).backward()``."""
    for call in values.module.calls:
        if called(call) != "backward" or not isinstance(call.func, ast.Attribute):
            continue
        base: ast.expr = call.func.value
        if call.args:  # accelerator.backward(loss)
            base = call.args[0]
        if isinstance(base, ast.Call) and called(base) == "scale" and base.args:
            base = base.args[0]
        if isinstance(base, ast.BinOp):
            args = {"form": Arg("loss", _arithmetic(values, base))}
            scope = scope_name(values, call)
            yield Fact(
                "loss form",
                "loss",
                "what backward() is called on",
                call.lineno,
                args,
                "sure",
                "",
                scope,
            )
