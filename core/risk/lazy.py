"""Rules for lazy execution (C4): shapes that depend on data, reads that stop the device, steps."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from core.risk.module import FUNCTIONS, LOOPS, Module, constant, dotted, keyword
from core.risk.rules import Found, rule

_MASK = re.compile(r"(?i)(?:^|_)(?:mask|masks|valid|active|keep|is_pad|non_pad)(?:$|_)")
_LOSS = re.compile(r"(?i)(?:^|_)(?:loss|losses)(?:$|_)|^(?:acc|correct|grad_norm)$")

EVERY_STEP = ("forward", "training_step", "train_step", "train_one_step", "compute_loss")
"""Functions that a loop elsewhere calls in each step."""


@rule(
    "dynamic-shape",
    "C4",
    "A result whose shape depends on the data",
    "XLA compiles a graph for each shape: here every batch may be a new one, and the operator "
    "itself runs on the CPU.",
    "Keep the full shape and weigh with the mask (torch.where with three arguments, masked_fill, "
    "a weighted mean).",
)
def dynamic_shape(at: Module) -> Iterator[Found]:
    sure = ("nonzero", "argwhere", "masked_select", "unique", "unique_consecutive")
    for call in at.called(*("torch." + n for n in sure)):
        if call.func and not (at.is_a(call.func, "torch.nonzero") and _as_tuple_size(call)):
            yield Found(call)
    for call in at.called("torch.where"):
        if len(call.args) + len(call.keywords) == 1 and not isinstance(
            call.args[0] if call.args else None, ast.Starred
        ):
            yield Found(call)
    for call in at.methods("masked_select", "unique_consecutive"):
        yield Found(call, at.torch)
    if at.torch:
        for call in at.methods("nonzero", "argwhere", "unique"):
            yield Found(call, False)


def _as_tuple_size(call: ast.Call) -> bool:
    """``nonzero_static`` style calls give a size, which fixes the shape."""
    return keyword(call, "size") is not None


@rule(
    "boolean-mask",
    "C4",
    "Indexing with a boolean mask",
    "If this is a tensor, the result has as many rows as the mask has true values: a new graph "
    "for each number, and a nonzero on the CPU.",
    "Keep the full shape and weigh with the mask; for an assignment use masked_fill or "
    "torch.where.",
)
def boolean_mask(at: Module) -> Iterator[Found]:
    if not at.torch:
        return
    for node in at.subscripts:
        index = node.slice
        parts = index.elts if isinstance(index, ast.Tuple) else [index]
        if any(_is_mask(p, node) for p in parts):
            yield Found(node, False)


def _is_mask(index: ast.expr, node: ast.Subscript) -> bool:
    if isinstance(index, ast.UnaryOp) and isinstance(index.op, ast.Invert):
        return True
    if isinstance(index, ast.Compare):
        # x[y == 1], but neither x["a" in y] nor the pandas idiom frame[frame.a == 1].
        simple = isinstance(index.ops[0], ast.Eq | ast.NotEq | ast.Lt | ast.LtE | ast.Gt | ast.GtE)
        text = isinstance(constant(index.comparators[0]), str)
        base, left = dotted(node.value), dotted(index.left)
        frame = bool(base) and left.startswith(base + ".")
        in_frame = isinstance(index.left, ast.Subscript) and dotted(index.left.value) == base
        return simple and not text and not frame and not in_frame
    name = dotted(index).rsplit(".", 1)[-1]
    return bool(_MASK.search(name))


@rule(
    "varying-length",
    "C4",
    "Batches padded to their own longest item",
    "Each new length is a new graph: compiling then goes on through the whole run.",
    "Pad to one length, or to a few buckets; see that the loss still ignores the padding.",
)
def varying_length(at: Module) -> Iterator[Found]:
    rnn = "torch.nn.utils.rnn."
    for call in at.called(rnn + "pad_sequence", rnn + "pack_padded_sequence"):
        yield Found(call)
    for call in at.called(rnn + "pack_sequence", rnn + "pad_packed_sequence"):
        yield Found(call)
    collators = ["transformers.DataCollator" + n for n in ("WithPadding", "ForSeq2Seq")]
    collators.append("transformers.DataCollatorForTokenClassification")
    for call in at.called(*collators):
        if keyword(call, "pad_to_multiple_of") is None:
            if constant(keyword(call, "padding")) in (None, True, "longest"):
                sure = keyword(call, "padding") is None or bool(constant(keyword(call, "padding")))
                yield Found(call, sure)
    for call in at.calls:
        if at.is_a(call.func, *collators):
            continue
        value = constant(keyword(call, "padding"))
        if (value is True or value == "longest") and at.torch:
            yield Found(keyword(call, "padding") or call, False)
        if constant(keyword(call, "group_by_length")) is True:
            yield Found(keyword(call, "group_by_length") or call, at.torch)


@rule(
    "last-batch",
    "C4",
    "The last batch of an epoch may be smaller",
    "If the data set does not divide by the batch size, its last batch is one more shape to "
    "compile, and on several chips one may get none.",
    "Accept one more graph, or pad it. drop_last=True drops data in each epoch: L3 counts that.",
)
def last_batch(at: Module) -> Iterator[Found]:
    for call in at.called("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader"):
        shuffled = constant(keyword(call, "shuffle")) is True
        sampler = keyword(call, "sampler") is not None
        dropped = keyword(call, "drop_last") is not None or keyword(call, "batch_sampler")
        if (shuffled or sampler) and not dropped:
            if not any(k.arg is None for k in call.keywords) and len(call.args) < 9:
                yield Found(call, False)


@rule(
    "host-read",
    "C4",
    "A value is read from the device in each step",
    "Reading a tensor ends the lazy graph and waits for the device, once a step.",
    "Keep sums on the device and read them at the logging interval, after the step boundary.",
)
def host_read(at: Module) -> Iterator[Found]:
    if not at.torch:
        return
    hot = _hot_loops(at)
    for call in at.methods("item", "cpu", "numpy", "tolist"):
        if not call.args and not call.keywords and _is_hot(at, call, hot):
            outer = at.parents.get(call)
            if not isinstance(outer, ast.Attribute):  # .cpu().numpy() once
                yield Found(call, False)
    for call in at.calls:
        if not isinstance(call.func, ast.Name) or not call.args or at.resolve(call.func):
            continue
        if call.func.id in ("float", "int", "bool") and _is_value(call.args[0]):
            if _is_hot(at, call, hot):
                yield Found(call, False)
        elif call.func.id == "print" and any(_shows_value(a) for a in call.args):
            if _is_hot(at, call, hot):
                yield Found(call, False, "Printing a tensor reads it.")


def _is_value(node: ast.AST) -> bool:
    return bool(_LOSS.search(dotted(node).rsplit(".", 1)[-1]))


def _shows_value(node: ast.AST) -> bool:
    if isinstance(node, ast.JoinedStr):
        return any(isinstance(v, ast.FormattedValue) and _is_value(v.value) for v in node.values)
    return _is_value(node)


@rule(
    "branch-on-value",
    "C4",
    "A branch on the value of a tensor",
    "If the condition is a tensor, it is read from the device in each step before the graph can go "
    "on.",
    "Compute both ways and choose with torch.where, or look at it at the logging interval only.",
)
def branch_on_value(at: Module) -> Iterator[Found]:
    if not at.torch:
        return
    names = "isnan isinf isfinite any all equal allclose"
    checks = tuple("torch." + n for n in names.split())
    hot = _hot_loops(at)
    for call in at.calls:
        reduced = isinstance(call.func, ast.Attribute) and call.func.attr in ("any", "all")
        inner = call.func.value if reduced and isinstance(call.func, ast.Attribute) else call
        if not (isinstance(inner, ast.Call) and at.is_a(inner.func, *checks)):
            continue
        for outer in at.up(call):
            if isinstance(outer, ast.If | ast.While | ast.Assert | ast.IfExp):
                if _within(call, outer.test) and _is_hot(at, call, hot):
                    yield Found(call)
                break
            if isinstance(outer, ast.stmt):
                break


def _within(node: ast.AST, tree: ast.AST) -> bool:
    return any(n is node for n in ast.walk(tree))


@rule(
    "step-boundary",
    "C4",
    "A training loop written by hand",
    "Without a step boundary the lazy graph grows through the epoch and nothing is executed.",
    "Call torch_xla.sync() after optimizer.step(), or take the batches from MpDeviceLoader, which "
    "does it.",
)
def step_boundary(at: Module) -> Iterator[Found]:
    if not at.torch or "torch_xla" in at.text:
        return
    framework = at.imports_any("accelerate", "lightning", "pytorch_lightning", "transformers")
    seen: set[ast.AST] = set()
    backwards = [c for c in at.methods("backward") if not c.args]
    for backward in backwards:
        place = at.loop(backward) or at.scope(backward)
        if place in seen or isinstance(place, ast.Module):
            continue
        seen.add(place)
        steps = [
            c
            for c in at.methods("step")
            if (at.loop(c) or at.scope(c)) is place or place in at.up(c)
            if _is_optimizer(c)
        ]
        if steps:
            yield Found(steps[-1], not framework)


def _is_optimizer(call: ast.Call) -> bool:
    assert isinstance(call.func, ast.Attribute)
    name = dotted(call.func.value).rsplit(".", 1)[-1].lower()
    return "opt" in name or "scaler" in name or "sgd" in name or "adam" in name


@rule(
    "lbfgs",
    "C4",
    "LBFGS",
    "It evaluates its closure several times a step and decides by values that it reads from the "
    "device each time.",
    "Expect many host reads; a first-order optimizer is another algorithm and changes the result.",
)
def lbfgs(at: Module) -> Iterator[Found]:
    for call in at.called("torch.optim.LBFGS"):
        yield Found(call)


def _hot_loops(at: Module) -> set[ast.AST]:
    """The loops that train or evaluate: those with a backward, and those without gradients."""
    hot: set[ast.AST] = set()
    for call in at.calls:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if name in ("backward", "zero_grad") and not at.resolve(call.func):
            hot.update(_loops_around(at, call))
        elif at.is_a(call.func, "torch.no_grad", "torch.inference_mode"):
            owner = at.parents.get(call)
            if isinstance(owner, FUNCTIONS):  # the decorator
                hot.update(n for n in ast.walk(owner) if isinstance(n, LOOPS))
            elif isinstance(at.parents.get(owner) if owner else None, ast.With):
                block = at.parents[owner] if owner else owner
                assert isinstance(block, ast.With)
                hot.update(n for s in block.body for n in ast.walk(s) if isinstance(n, LOOPS))
                if loop := at.loop(block):
                    hot.add(loop)
    return hot


def _loops_around(at: Module, node: ast.AST) -> list[ast.AST]:
    """The innermost loop: what is in an outer one only runs once an epoch."""
    loop = at.loop(node)
    return [loop] if loop is not None else []


def _is_hot(at: Module, node: ast.AST, hot: set[ast.AST]) -> bool:
    for outer in at.up(node):
        if outer in hot:
            return True
        if isinstance(outer, FUNCTIONS):
            return outer.name in EVERY_STEP
        if isinstance(outer, ast.ClassDef):
            return False
    return False
