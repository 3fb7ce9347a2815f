"""What the program asks of half precision; with ``PILOTAGE_PROBE_PRECISION=fp32`` it is not done.

Then two programs can be compared at float32's tolerances whatever they compute in: autocast is
entered disabled, a move keeps the device and loses the half dtype, checkpoints are loaded as
float32. Otherwise nothing is changed, and the same requests are counted. The record ``precision``
says who asked for what, and in which dtypes the first training forward pass computed.
"""

import os
import sys

from . import callers, finder, forward, guard, process, replacing
from .replacing import replace
from .wrapping import unseen

HALF = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
VARIABLES = ("XLA_USE_BF16", "XLA_DOWNCAST_BF16", "XLA_USE_FP16", "XLA_DOWNCAST_FP16")
OFF = ("", "0", "false", "no", "off")
STRIPPED = "PILOTAGE_PROBE_STRIPPED"  # what children of this process are not given, for the record
MAX_REQUESTS = 100

asked = "own"
requests = {}  # (what, line) -> count
environment = {}  # variable -> value
compute = {}  # dtype -> number of leaf modules' outputs
_written = None
_halves = ()
_seen = set()  # ids of modules whose first training forward pass has been looked at


def install(torch):
    """Watch for requests, and stand in their way in fp32 mode; once, right after torch."""
    global asked, _halves
    if os.environ.get("PILOTAGE_PROBE_PRECISION") == "fp32":
        asked = "fp32"
    _halves = tuple(getattr(torch, name) for name in HALF if hasattr(torch, name))
    look_at_environment()
    _autocast(torch)
    _moves(torch)
    _defaults(torch)
    for name in replacing.FACTORIES:
        replace(torch, name, _named(name, _factory))
    finder.watch("transformers.modeling_utils", _transformers)
    process.at_end.append(write)
    if process.mode == "parity":
        process.after_step.append(lambda n: write() if n == 1 else None)
        forward.watchers.append(_first_forward)
        if asked == "fp32":
            torch.nn.modules.module.register_module_forward_pre_hook(_cast_inputs)


def follows_cuda():
    """CUDA runs on the CPU, where float16 is no fair stand-in: compute in float32."""
    global asked
    asked = "fp32"


def look_at_environment():
    """Note variables that make torch_xla compute in half precision; in fp32 mode unset them.

    Called again when torch_xla is there, and before the first forward pass: accelerate and
    Lightning set them in mid-program.
    """
    for word in os.environ.get(STRIPPED, "").split():
        name, _, value = word.partition("=")
        environment[name] = value
    for name in VARIABLES:
        value = os.environ.get(name)
        if value is None:
            continue
        if value.strip().lower() not in OFF:
            environment[name] = value[:50]
        if asked == "fp32":
            del os.environ[name]
    if asked == "fp32" and environment:
        os.environ[STRIPPED] = " ".join("%s=%s" % item for item in sorted(environment.items()))


def note(what, at=None, count=1):
    """Count one request; ``at`` by default the user's line that made it."""
    key = (what, at or callers.line())
    if key in requests or len(requests) < MAX_REQUESTS:
        requests[key] = requests.get(key, 0) + count


def write():
    """Write the record, if there is something new to say."""
    global _written
    _matmul()
    fields = {
        "asked": asked,
        "requests": [
            {"what": what, "count": count, "at": at} for (what, at), count in requests.items()
        ],
        "env": dict(environment),
        "compute": dict(compute),
    }
    if fields != _written:
        _written = fields
        process.write("precision", **fields)


def _short(dtype):
    return str(dtype).replace("torch.", "")


# --- autocast --------------------------------------------------------------------------------


def _autocast(torch):
    module = sys.modules.get("torch.amp.autocast_mode") or sys.modules["torch.autocast_mode"]
    # torch.cuda.amp, torch.cpu.amp and torch_xla.amp have subclasses that end in this one. It is
    # entered as a decorator, too.
    replace(module.autocast, "__enter__", _enter)


def _enter(original, args, kwargs):
    scope = args[0]
    dtype = getattr(scope, "fast_dtype", None)
    if not getattr(scope, "_enabled", False) or dtype not in _halves:
        return None
    note("autocast(%s)" % _short(dtype))
    return (_entered_disabled, (original, scope), {}) if asked == "fp32" else None


@unseen
def _entered_disabled(original, scope):
    scope._enabled = False
    try:
        return original(scope)
    finally:
        scope._enabled = True


# --- moves of modules and tensors ------------------------------------------------------------


def _moves(torch):
    for owner, label in ((torch.nn.Module, "Module"), (torch.Tensor, "Tensor")):
        ask = callers.by_user_or_framework if label == "Module" else callers.by_user
        for name in ("half", "bfloat16"):
            replace(owner, name, _half("%s.%s()" % (label, name), ask, label))
        for name in ("to", "type"):
            replace(owner, name, _moved("%s.%s" % (label, name), ask, label))


def _half(what, ask, label):
    def choose(original, args, kwargs):
        if not ask():
            return None
        note(what)
        if asked != "fp32":
            return None
        if label == "Module":
            return _same, (args[0],), {}
        return args[0].float, (), kwargs

    return choose


def _same(value):
    return value


def _moved(what, ask, label):
    """``to`` and ``type``: among their arguments at most one is a dtype."""
    types = {"HalfTensor": "float16", "BFloat16Tensor": "bfloat16"}

    def half(value):
        if isinstance(value, type(sys.modules["torch"].float32)):
            return _short(value) if value in _halves else None
        if what.endswith("type"):
            name = value if isinstance(value, str) else getattr(value, "__name__", "")
            return types.get(name.rpartition(".")[2])
        return None

    def choose(original, args, kwargs):
        found = [half(v) for v in args[1:] + tuple(kwargs.values()) if half(v)]
        if not found or not ask():
            return None
        note("%s(%s)" % (what, found[0]))
        if asked != "fp32":
            return None
        if label == "Tensor":
            whole = sys.modules["torch"].float32
            args = args[:1] + tuple(whole if half(v) else v for v in args[1:])
            return original, args, {k: whole if half(v) else v for k, v in kwargs.items()}
        named = {k: v for k, v in kwargs.items() if not half(v)}
        if len(args) > 1 and half(args[1]):  # to(dtype, ...) is to no device
            args = args[:1]
        args = args[:1] + tuple(None if half(v) else v for v in args[1:])
        if len(args) == 1 and not set(named) & {"device", "memory_format", "tensor"}:
            return _same, (args[0],), {}
        return original, args, named

    return choose


# --- defaults and factories ------------------------------------------------------------------


def _defaults(torch):
    def default(original, args, kwargs):
        value = args[0] if args else kwargs.get("d")
        if value not in _halves or not callers.by_user_or_framework():
            return None
        direct = callers.direct()
        if direct[2].startswith("transformers."):  # by from_pretrained, which is noted itself
            return None
        note("set_default_dtype(%s)" % _short(value))
        return (_same, (None,), {}) if asked == "fp32" else None

    def default_type(original, args, kwargs):
        value = args[0] if args else kwargs.get("t")
        name = value if isinstance(value, str) else getattr(value, "__name__", "")
        short = {"HalfTensor": "float16", "BFloat16Tensor": "bfloat16"}.get(name.rpartition(".")[2])
        if short is None or not callers.by_user_or_framework():
            return None
        note("set_default_tensor_type(%s)" % short)
        return (_same, (None,), {}) if asked == "fp32" else None

    def matmul(original, args, kwargs):
        value = args[0] if args else kwargs.get("precision")
        if value != "highest" and callers.by_user_or_framework():
            note("matmul precision(%s)" % (value,))
        return None

    replace(torch, "set_default_dtype", default)
    replace(torch, "set_default_tensor_type", default_type)
    replace(torch, "set_float32_matmul_precision", matmul)


def watch_xla():
    """torch_xla is there: its own setting of the precision of products of matrices."""
    look_at_environment()
    backends = sys.modules.get("torch_xla.backends")
    if backends is not None and hasattr(backends, "set_mat_mul_precision"):

        def matmul(original, args, kwargs):
            note("matmul precision(%s)" % (args[0] if args else kwargs.get("precision"),))
            return None

        replace(backends, "set_mat_mul_precision", matmul)


def _matmul():
    """TF32 is set by an attribute; only its state can be looked at."""
    torch = sys.modules["torch"]
    try:
        allowed = torch.backends.cuda.matmul.allow_tf32
    except Exception:  # torch refuses to answer where a program has mixed its two interfaces
        return
    what = "matmul precision(tf32)"
    asked_by_name = any(name.startswith("matmul precision(") for name, _ in requests)
    if allowed is True and not asked_by_name:
        requests[what, None] = 1


def _named(name, choose):
    return lambda original, args, kwargs: choose(name, original, args, kwargs)


def _factory(name, original, args, kwargs):
    """``torch.zeros(..., dtype=half)`` in the user's own code; torch's modules have their own."""
    dtype = kwargs.get("dtype")
    if dtype is None or dtype not in _halves or not callers.by_user():
        return None
    note("%s(%s)" % (name, _short(dtype)))
    if asked != "fp32":
        return None
    return original, args, dict(kwargs, dtype=sys.modules["torch"].float32)


# --- checkpoints of transformers -------------------------------------------------------------


def _transformers(module):
    cls = getattr(module, "PreTrainedModel", None)
    for name in ("from_pretrained", "_from_config"):
        if hasattr(cls, name):
            replace(cls, name, _loaded)


def _loaded(original, args, kwargs):
    torch = sys.modules["torch"]
    given = {}
    for name in ("dtype", "torch_dtype"):
        value = kwargs.get(name)
        if value in _halves or value in HALF:
            given[name] = value
    what = original.__name__.lstrip("_")
    if given:
        note("%s(%s)" % (what, _short(next(iter(given.values())))))
        if asked == "fp32":
            kwargs = dict(kwargs, **dict.fromkeys(given, torch.float32))
    return _load, (original, args, kwargs, what, bool(given), callers.line()), {}


@unseen
def _load(original, args, kwargs, what, noted, at):
    """Load, and look at what came: without a dtype it is the checkpoint's own."""
    result = original(*args, **kwargs)
    model = result[0] if isinstance(result, tuple) else result
    with guard.reporting("checkpoint's dtype"):
        half = {_short(p.dtype) for p in model.parameters() if p.dtype in _halves}
        if half and not getattr(model, "is_quantized", False):
            if not noted:
                note("%s(%s)" % (what, sorted(half)[0]), at)
            if asked == "fp32":
                _whole(model)
    return result


def _whole(module):
    module._apply(lambda tensor: tensor.float() if tensor.dtype in _halves else tensor)


# --- the first training forward pass ---------------------------------------------------------


def _first_forward(module, args, kwargs):
    if not module.training or id(module) in _seen:
        return
    _seen.add(id(module))
    look_at_environment()
    torch = sys.modules["torch"]
    halves = [_short(p.dtype) for p in module.parameters() if p.dtype in _halves]
    known = ("Module.", "from_", "set_default")
    if halves and not any(what.startswith(known) for what, _ in requests):
        note("%s parameters of %s" % (halves[0], type(module).__name__), count=len(halves))
    if halves and asked == "fp32":
        _whole(module)

    def count(child, inputs, output):
        with guard.reporting("compute dtype"):
            if not child._modules:
                for tensor in output if isinstance(output, (tuple, list)) else (output,):
                    if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                        name = _short(tensor.dtype)
                        compute[name] = compute.get(name, 0) + 1
            if child is module:
                handle.remove()

    handle = torch.nn.modules.module.register_module_forward_hook(count)


def _cast_inputs(module, inputs):
    """Half-precision data meets modules that are kept in float32."""
    torch = sys.modules["torch"]
    if not any(isinstance(x, torch.Tensor) and x.dtype in _halves for x in inputs):
        return None
    with guard.reporting("half-precision input"):
        if type(module).__module__.startswith("torch.nn."):
            weights = next(iter(module.parameters(recurse=False)), None)
            if weights is not None and weights.dtype in _halves:
                return None
    return tuple(
        x.float() if isinstance(x, torch.Tensor) and x.dtype in _halves else x for x in inputs
    )
