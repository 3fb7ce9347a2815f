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

METRIC_FUNCTION = re.compile(
    r"(\w+_)?(metrics?|accuracy|evaluate?|eval|score|f1|bleu|rouge|auc|perplexity|iou|validate"
    r"|map|precision|recall|top_?k|compute_metrics)(_\w+)?"
)
"""Names of functions that measure a result."""

_FUNCTIONS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("reduce", re.compile(r"(average|reduce|sync|all_?reduce|synchronize)_(grad\w*|param\w*|model\w*)")),
    ("checkpoint", re.compile(r"_?(load|save|resume|restore)_(\w+_)?(checkpoint|state|adapter|model|weights|ckpt)\w*")),
    ("architecture", re.compile(r"forward")),
    ("metric", METRIC_FUNCTION),
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
        parent = module.parents.get(function)
        if isinstance(parent, ast.ClassDef) and any(
            "Optimizer" in ast.unparse(b) for b in parent.bases
        ):
            kind = "optimizer"
        kinds[function] = kind or ("metric" if in_metrics else "")
    in_file = {f for f in module.functions if kinds[f] == "metric" and not _named(f, "metric")}
    for node in module.parents:
        if isinstance(node, ast.Assert):
            yield from _assert(values, node, in_tests)
        if isinstance(node, ast.Break):
            yield from _stop(values, node)
        if isinstance(node, ast.Assign | ast.AugAssign | ast.Return | ast.Expr | ast.AnnAssign):
            kind = kinds.get(values.scope(node), "")
            if values.scope(node) in in_file and isinstance(getattr(node, "value", None), ast.Call):
                continue  # the rest of a file with metric code: how things are called, not measured
            yield from _statement(values, node, kind)


def _named(function: ast.FunctionDef | ast.AsyncFunctionDef, kind: str) -> bool:
    return any(k == kind and p.fullmatch(function.name.lower()) for k, p in _FUNCTIONS)


def _stop(values: Values, node: ast.Break) -> Iterator[Fact]:
    """A loop over the evaluation data that ends before its end."""
    scope = scope_name(values, node)
    if METRIC_FUNCTION.fullmatch(scope.lower()) and isinstance(values.module.loop(node), ast.For):
        label = f"{scope}() leaves its loop"
        yield Fact("evaluation exit", "evaluation data", label, node.lineno, {}, "sure", "", scope)


def _is_nothing(node: ast.expr | None) -> bool:
    """Whether a value is what a sum or a list begins with: 0, [], ``torch.zeros(...)``."""
    if isinstance(node, ast.Tuple | ast.List):
        return all(_is_nothing(e) for e in node.elts)
    if isinstance(node, ast.Call):
        zero = called(node) == "tensor" and bool(node.args) and _is_nothing(node.args[0])
        return zero or called(node) in ("zeros", "zeros_like")
    return isinstance(node, ast.Constant) and node.value in (0, None, "")


def _assert(values: Values, node: ast.Assert, in_tests: bool) -> Iterator[Fact]:
    args = {"test": Arg("tests", values.text(node.test), in_tests)}
    presence = "gone" if in_tests else "quiet"
    scope = scope_name(values, node)
    yield Fact("assert", "tests", "assert", node.lineno, args, presence, "", scope)


def _statement(values: Values, node: ast.stmt, kind: str) -> Iterator[Fact]:
    value = getattr(node, "value", None)
    if isinstance(node, ast.Assign | ast.AnnAssign) and _is_nothing(value):
        return
    if value is None or isinstance(value, ast.Constant | ast.Name):
        told = isinstance(node, ast.Return | ast.AugAssign) or kind == "optimizer"
        if not (told and kind and value is not None):
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
        # Elsewhere only what is computed there: `accuracy = evaluate(model)` is told where that is.
        kind = "" if isinstance(value, ast.Call) and isinstance(node, ast.Assign) else "metric"
    if not kind or (isinstance(node, ast.Expr) and not isinstance(value, ast.Call)):
        return
    operator = type(node.op).__name__ if isinstance(node, ast.AugAssign) else ""
    text = values.text(value, _HIDDEN)
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        if values.text(node.targets[0], _HIDDEN) == text:
            return  # x = x.to(device)
    word = {"Return": "return", "Expr": ""}.get(type(node).__name__, target)
    if kind == "architecture" and "mask" in text.lower():
        args = {"code": Arg("masks", text)}
    else:
        args = {"code": Arg(kind, f"{operator} {text}".strip())}
    label = f"{scope or 'module'}(): {word}".rstrip(": ") if scope else word
    owner = values.text(node.targets[0]) if isinstance(node, ast.Assign) else word
    presence = "gone" if kind == "reduce" else "guess"
    yield Fact(f"body:{kind}", kind, label, node.lineno, args, presence, owner, scope)


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


def _is_setting(node: ast.expr) -> bool:
    """Whether an argument of a loss is a number or a setting, and no tensor."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float)
    return dotted(node).startswith(
        ("args.", "config.", "cfg.", "self.args.", "self.config.", "hparams.")
    )


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
        settings = [a for a in node.args if _is_setting(a)]
        return f"f({', '.join(values.text(a) for a in settings)})"
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
