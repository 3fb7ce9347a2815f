"""Rules for the order of things in training, for memory, and for numerics (C2, C5, C6)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from core.risk.module import Module, constant, dotted, keyword
from core.risk.rules import Found, rule

HALF = ("torch.float16", "torch.half", "torch.HalfTensor")
DOUBLE = ("torch.float64", "torch.double", "torch.DoubleTensor")
DTYPES = (*HALF, *DOUBLE, "torch.float32", "torch.float", "torch.bfloat16")

_FALLBACKS = {
    "torch": {
        "histc": "histc",
        "histogram": "histogram",
        "bincount": "bincount",
        "median": "median",
        "nanmedian": "nanmedian",
        "mode": "mode",
        "multinomial": "multinomial",
        "poisson": "poisson",
        "searchsorted": "searchsorted",
        "bucketize": "bucketize",
        "isin": "isin",
        "lgamma": "lgamma",
        "digamma": "digamma",
        "logcumsumexp": "_logcumsumexp",
        "renorm": "renorm",
        "complex": "complex",
        "polar": "polar",
        "stft": "_fft_r2c",
        "istft": "_fft_c2r",
    },
    "torch.linalg": {
        "qr": "linalg_qr",
        "cholesky": "linalg_cholesky_ex",
        "det": "_linalg_det",
        "solve": "_linalg_solve_ex",
    },
    "torch.nn.functional": {
        "grid_sample": "grid_sampler_2d",
        "embedding_bag": "_embedding_bag",
        "unfold": "im2col",
        "fold": "col2im",
        "ctc_loss": "_ctc_loss",
        "adaptive_max_pool2d": "adaptive_max_pool2d",
        "multi_margin_loss": "multi_margin_loss",
    },
    "torch.nn": {
        "EmbeddingBag": "_embedding_bag",
        "Unfold": "im2col",
        "Fold": "col2im",
        "CTCLoss": "_ctc_loss",
        "AdaptiveMaxPool2d": "adaptive_max_pool2d",
        "MultiMarginLoss": "multi_margin_loss",
        "RReLU": "rrelu_with_noise",
    },
    "torch.nn.utils": {"weight_norm": "_weight_norm_interface"},
    "torch.nn.utils.parametrizations": {"weight_norm": "_weight_norm_interface"},
}
FALLBACKS = {f"{at}.{n}": op for at, table in _FALLBACKS.items() for n, op in table.items()}
"""Functions whose operator ran on the CPU with torch_xla 2.9.0, by its own counters."""


@rule(
    "optimizer-before-move",
    "C2",
    "The optimizer is made before the model is moved",
    "Moving to an XLA device makes new parameters, so the optimizer would update the old ones and "
    "the model would never learn. On CUDA it makes no difference.",
    "Move the model first, then make the optimizer.",
)
def optimizer_before_move(at: Module) -> Iterator[Found]:
    moves = [c for c in at.methods("to", "cuda", "xla") if _moves(at, c)]
    for call in at.calls:
        if not (at.under(call.func, "torch.optim") and not at.under(call.func, LR)):
            continue
        args = [*call.args, *(k.value for k in call.keywords)]
        direct = {_owner(a) for a in args} - {""}
        mentioned = {n.id for a in args for n in ast.walk(a) if isinstance(n, ast.Name)}
        for move in moves:
            assert isinstance(move.func, ast.Attribute)
            name = dotted(move.func.value)
            later = move.lineno > call.lineno and at.scope(move) is at.scope(call)
            if not (name and later and _after(at, call, move)):
                continue
            if name in direct:
                yield Found(call, True, f"{name} is moved in line {move.lineno}.")
                break
            if name in mentioned:
                yield Found(call, False, f"{name} is moved in line {move.lineno}.")
                break


LR = "torch.optim.lr_scheduler"


def _owner(node: ast.AST) -> str:
    """``model`` of ``model.parameters()``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in ("parameters", "named_parameters"):
            return dotted(node.func.value)
    return ""


def _after(at: Module, first: ast.AST, then: ast.AST) -> bool:
    """Whether both can run, one after the other: not in two branches of one ``if``."""
    around = list(at.up(then))
    for outer in at.up(first):
        if outer in around:
            if isinstance(outer, ast.If):
                return not (_inside(first, outer.body) and _inside(then, outer.orelse))
            if isinstance(outer, ast.Try):
                return not (_inside(first, outer.body) and _inside(then, list(outer.handlers)))
            return True
    return False


def _inside(node: ast.AST, body: list[ast.stmt] | list[ast.ExceptHandler]) -> bool:
    return any(n is node for part in body for n in ast.walk(part))


def _moves(at: Module, call: ast.Call) -> bool:
    assert isinstance(call.func, ast.Attribute)
    if call.func.attr != "to":
        return True
    values = [*call.args, *(k.value for k in call.keywords if k.arg in ("device", "other"))]
    return bool(values) and not (len(values) == 1 and at.is_a(values[0], *DTYPES))


@rule(
    "half",
    "C5",
    "fp16",
    "A TPU computes in bf16. fp16 has another range and is converted or emulated.",
    "Use torch.bfloat16, and hold the numbers against an fp32 reference.",
)
def half(at: Module) -> Iterator[Found]:
    for node in at.attributes:
        if at.is_a(node, *HALF):
            yield Found(node, _is_used(at, node))
    for call in at.methods("half"):
        if not call.args and at.torch:
            yield Found(call, False)


def _is_used(at: Module, dtype: ast.AST) -> bool:
    """Whether something is made in a dtype here, rather than compared with it or listed."""
    parent = at.parents.get(dtype)
    return isinstance(parent, ast.Call | ast.keyword) and dtype is not getattr(parent, "func", None)


@rule(
    "double",
    "C5",
    "fp64",
    "A TPU has no fp64: it is emulated, slowly, or computed in fp32.",
    "Use fp32 on the device; keep what needs fp64 on the host.",
)
def double(at: Module) -> Iterator[Found]:
    for node in at.attributes:
        if at.is_a(node, *DOUBLE):
            yield Found(node, _is_used(at, node))
    for call in at.methods("double"):
        if not call.args and at.torch:
            yield Found(call, False)


@rule(
    "fallback-operator",
    "C5",
    "An operator that XLA does not have",
    "It ran on the CPU with torch_xla 2.9.0: the tensors go there and back in each call.",
    "Move it out of the step, or write it in other operators; L2 counts what is left.",
)
def fallback_operator(at: Module) -> Iterator[Found]:
    for call in at.calls:
        for name in at.resolve(call.func):
            if operator := FALLBACKS.get(name):
                yield Found(call, True, f"aten::{operator}")
                break
        else:
            if at.under(call.func, "torch.fft") and not at.is_a(call.func, *FFT_HELPERS):
                yield Found(call, True, "aten::_fft_*")
            elif at.is_a(call.func, "torch.nn.Embedding") and keyword(call, "max_norm"):
                yield Found(call, True, "aten::embedding_renorm_")
            elif at.is_a(call.func, "torch.nn.functional.interpolate", "torch.nn.Upsample"):
                if constant(keyword(call, "mode")) == "bicubic":
                    yield Found(call, True, "aten::upsample_bicubic2d")


FFT_HELPERS = tuple(f"torch.fft.{n}" for n in ("fftfreq", "rfftfreq", "fftshift", "ifftshift"))


@rule(
    "sparse",
    "C5",
    "Sparse tensors or gradients",
    "XLA has no sparse tensors.",
    "Use dense ones: Embedding without sparse=True, and Adam in place of SparseAdam.",
)
def sparse(at: Module) -> Iterator[Found]:
    for call in at.calls:
        asked = constant(keyword(call, "sparse")) is True and at.under(call.func, "torch.nn")
        made = at.under(call.func, "torch.sparse") or at.is_a(call.func, "torch.optim.SparseAdam")
        if asked or made:
            yield Found(call)
    for call in at.methods("to_sparse", "sparse_mask"):
        yield Found(call, at.torch)


@rule(
    "mask-value",
    "C5",
    "A mask filled with the smallest fp32 number",
    "In bf16 the sum of two such values is -inf, and a softmax over a row of them is NaN.",
    "Fill with torch.finfo(tensor.dtype).min of the tensor's own dtype, and only once.",
)
def mask_value(at: Module) -> Iterator[Found]:
    for node in at.attributes:
        if node.attr in ("min", "max") and isinstance(node.value, ast.Call):
            call = node.value
            if at.is_a(call.func, "torch.finfo") and call.args:
                if at.is_a(call.args[0], "torch.float32", "torch.float"):
                    yield Found(node, False)
    for call in at.methods("masked_fill", "masked_fill_"):
        value = constant(call.args[1] if len(call.args) > 1 else keyword(call, "value"))
        if isinstance(value, float) and value <= -1e38 and value != float("-inf"):
            yield Found(call, False)


@rule(
    "gradient-checkpointing",
    "C6",
    "Activations are recomputed to save memory",
    "XLA may merge the recomputation with the first computation again, and save nothing.",
    "Use torch_xla.utils.checkpoint, and look at the device's memory.",
)
def gradient_checkpointing(at: Module) -> Iterator[Found]:
    utils = "torch.utils.checkpoint."
    for call in at.called(utils + "checkpoint", utils + "checkpoint_sequential"):
        yield Found(call)
    for call in at.methods("gradient_checkpointing_enable"):
        yield Found(call, at.torch)
    for call in at.calls:
        value = keyword(call, "gradient_checkpointing")
        if value is not None and constant(value) is True:
            yield Found(value, at.torch)
