"""The same random numbers on both sides of a comparison (parity mode).

The generators of the host (Python's ``random``, numpy's, torch's of the CPU) start anew from a
fixed seed where every training program passes: when torch is there, at each construction of an
optimizer, and whenever a DataLoader is iterated over; a batch of a map-style data set is made from
a seed that its indices give. A device has a generator of its own, whose
numbers are never those of another: what is drawn for a device is drawn on the CPU and moved. So
is what is drawn into a tensor whose elements do not lie in order, for torch fills those in
another order. Draws from a ``torch.Generator`` of the program's own are left alone.
"""

import itertools
import sys
import zlib

from . import guard, wrapping
from .replacing import replace
from .wrapping import unseen

SEED = 0x9110
# Seeds of optimizers and of iterators must not meet.
OPTIMIZER, ITERATOR = 1 << 20, 1 << 24
MAX_STATES = 256

FACTORIES = ("rand", "randn", "randint", "randperm")
LIKE = ("rand_like", "randn_like", "randint_like")
OF_TENSORS = (
    "bernoulli",
    "multinomial",
    "poisson",
    "binomial",
    "_standard_gamma",
    "_sample_dirichlet",
)
METHODS = ("bernoulli", "multinomial")
IN_PLACE = (
    "normal_", "uniform_", "bernoulli_", "random_", "exponential_", "geometric_", "cauchy_",
    "log_normal_",
)  # fmt: skip

_optimizers = 0
_iterators = {}  # length of the data set -> how often it was iterated over
_numbers = itertools.count(0x5EED << 32)
_states = {}  # number that stands for a state of torch's generator -> that state
_first = {}  # name -> torch's own function


def install(torch):
    """Seed now, and from now on; once, right after torch."""
    _first["empty"] = torch.empty
    seed(SEED)
    replace(torch.optim.Optimizer, "__init__", _constructed)
    replace(sys.modules["torch.utils.data"].DataLoader, "__iter__", _iterated)
    fetcher = sys.modules.get("torch.utils.data._utils.fetch")
    replace(getattr(fetcher, "_MapDatasetFetcher", None), "fetch", _fetched)
    for name in FACTORIES:
        replace(torch, name, _factory)
    for name in LIKE:
        replace(torch, name, _like)
    for name in OF_TENSORS:
        replace(torch, name, _of_tensors)
    replace(torch, "normal", _normal)
    for name in METHODS:
        replace(torch.Tensor, name, _of_tensors)
    for name in IN_PLACE:
        replace(torch.Tensor, name, _in_place)
    for name in ("manual_seed", "manual_seed_all"):
        wrapping.wrap(torch.cuda, name, "seed cuda", None, _device_seeded)


def watch_xla():
    """torch_xla is there: its generator and the one of the CPU are set together."""
    model = sys.modules.get("torch_xla.core.xla_model")
    if model is None:
        return
    wrapping.wrap(model, "set_rng_state", "seed xla", None, _device_seeded)
    replace(model, "get_rng_state", lambda original, args, kwargs: (_state, (), {}))


# --- seeds -----------------------------------------------------------------------------------


def seed(number):
    """Start the generators of the host anew."""
    torch = sys.modules["torch"]
    torch.default_generator.manual_seed(number)
    if "random" in sys.modules:
        sys.modules["random"].seed(number)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(number)


def _constructed(original, args, kwargs):
    return _construct, (original,) + args, kwargs


@unseen
def _construct(original, *args, **kwargs):
    global _optimizers
    original(*args, **kwargs)
    _optimizers += 1
    with guard.reporting("seed"):
        seed(SEED + OPTIMIZER + _optimizers)


def _iterated(original, args, kwargs):
    """By the length of the data: an evaluation at another time shall not change the training."""
    dataset = getattr(args[0], "dataset", None)
    try:
        length = len(dataset)
    except Exception:  # it has none, or says so in its own way
        length = 0
    _iterators[length] = count = _iterators.get(length, 0) + 1
    seed(SEED + ITERATOR + (length % 65536) * 1024 + count)


def _fetched(original, args, kwargs):
    return _fetch, (original,) + args, kwargs


@unseen
def _fetch(original, fetcher, indices):
    """Augmentation and masking depend on the samples alone: not on workers, nor on the order."""
    states = guard.hook("state of the generators")(_states_now)()
    with guard.reporting("seed"):
        seed(SEED + zlib.crc32(repr(indices).encode("utf-8", "replace")))
    try:
        return original(fetcher, indices)
    finally:
        for restore, state in states or ():
            restore(state)


def fetch(fetcher, indices):
    """The batch of these indices as ``fetcher`` makes it for the program."""
    return _fetch(type(fetcher).fetch.__wrapped__, fetcher, indices)


def _states_now():
    torch, random = sys.modules["torch"], sys.modules["random"]
    found = [
        (torch.default_generator.set_state, torch.default_generator.get_state()),
        (random.setstate, random.getstate()),
    ]
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        found.append((numpy.random.set_state, numpy.random.get_state()))
    return found


def _device_seeded(args, kwargs, result):
    number = args[0] if args else kwargs.get("seed")
    if number in _states:
        sys.modules["torch"].set_rng_state(_states[number])
    elif isinstance(number, int):
        sys.modules["torch"].default_generator.manual_seed(number)


def _state():
    """``xm.get_rng_state``: a number that brings the same draws again when it is set again."""
    number = next(_numbers)
    _states[number] = sys.modules["torch"].get_rng_state()
    _states.pop(number - MAX_STATES, None)
    return number


# --- draws -----------------------------------------------------------------------------------


def _away(device):
    return device.type not in ("cpu", "meta")


def _given(kwargs):
    return kwargs.get("generator") is not None


def _wide(torch, dtype):
    """Half precision is drawn in float32 and rounded, as far as both sides can be the same."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def _factory(original, args, kwargs):
    torch = sys.modules["torch"]
    device = kwargs.get("device")
    if device is None:
        device = _first["empty"](0).device  # of torch.set_default_device and its like
    return _made_of(original, args, kwargs, torch.device(device))


def _made_of(original, args, kwargs, device):
    torch = sys.modules["torch"]
    dtype = kwargs.get("dtype") or torch.get_default_dtype()
    if device.type == "meta" or _given(kwargs):
        return None
    if not _away(device) and _wide(torch, dtype) is dtype:
        return None
    return _make, (original, args, dict(kwargs), device), {}


def _make(original, args, kwargs, device):
    torch = sys.modules["torch"]
    out, grad = kwargs.pop("out", None), kwargs.pop("requires_grad", False)
    kwargs.pop("pin_memory", None)
    dtype = kwargs.get("dtype")
    if original.__name__ in ("rand", "randn", "normal"):
        dtype = dtype or torch.get_default_dtype()
    if dtype is not None:
        kwargs["dtype"] = _wide(torch, dtype)
    kwargs["device"] = "cpu"
    with torch.no_grad():
        made = original(*args, **kwargs).to(device=device, dtype=dtype)
        if out is not None:
            return out.resize_(made.shape).copy_(made)
    return made.requires_grad_() if grad else made


def _like(original, args, kwargs):
    torch = sys.modules["torch"]
    like = args[0] if args else kwargs.get("input")
    if type(like) not in (torch.Tensor, torch.nn.Parameter) or _given(kwargs):
        return None
    device = torch.device(kwargs["device"]) if kwargs.get("device") is not None else like.device
    dtype = kwargs.get("dtype") or like.dtype
    if not _away(device) and like.is_contiguous() and _wide(torch, dtype) is dtype:
        return None
    if device.type == "meta":
        return None
    return _make_like, (original, args, dict(kwargs), like, device), {}


def _make_like(original, args, kwargs, like, device):
    torch = sys.modules["torch"]
    grad, dtype = kwargs.pop("requires_grad", False), kwargs.pop("dtype", None) or like.dtype
    kwargs.pop("pin_memory", None)
    kwargs.pop("memory_format", None)
    kwargs.pop("device", None)
    kwargs.pop("input", None)
    with torch.no_grad():
        shape = _first["empty"](like.shape, dtype=_wide(torch, dtype), device="cpu")
        drawn = original(shape, *args[1:], **kwargs)
        if _away(device):
            made = drawn.to(device=device, dtype=dtype)
        else:  # elements that do not lie in order stay where they would be
            made = torch.empty_like(like, dtype=dtype, device=device).copy_(drawn)
    return made.requires_grad_() if grad else made


def _tensors(values):
    return [v for v in values if isinstance(v, sys.modules["torch"].Tensor)]


def _normal(original, args, kwargs):
    """Two forms: normal(mean, std) of tensors, and normal(mean, std, size, ...)."""
    if _tensors(args) or _tensors(v for k, v in kwargs.items() if k != "out"):
        return _of_tensors(original, args, kwargs)
    if kwargs.get("device") is None:  # no default device either: torch makes it on the CPU
        return None
    return _made_of(original, args, kwargs, sys.modules["torch"].device(kwargs["device"]))


def _of_tensors(original, args, kwargs):
    found = [t for t in _tensors(args) + _tensors(kwargs.values()) if _away(t.device)]
    if not found or _given(kwargs):
        return None
    return _draw_of, (original, args, dict(kwargs), found[0]), {}


def _draw_of(original, args, kwargs, like):
    torch = sys.modules["torch"]
    out = kwargs.pop("out", None)

    def near(value):
        if not isinstance(value, torch.Tensor):
            return value
        value = value.detach().cpu()
        return value.to(_wide(torch, value.dtype))

    with torch.no_grad():
        drawn = original(*map(near, args), **{k: near(v) for k, v in kwargs.items()})
        if drawn.dtype is torch.float32 and like.is_floating_point():
            drawn = drawn.to(like.dtype)
        made = drawn.to(like.device)
        return made if out is None else out.resize_(made.shape).copy_(made)


def _in_place(original, args, kwargs):
    torch = sys.modules["torch"]
    tensor = args[0]
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or _given(kwargs):
        return None
    if tensor.device.type == "meta":
        return None
    plain = tensor.is_contiguous() and _wide(torch, tensor.dtype) is tensor.dtype
    if plain and not _away(tensor.device):
        return None
    return _draw_into, (original, tensor, args[1:], kwargs), {}


def _draw_into(original, tensor, args, kwargs):
    torch = sys.modules["torch"]
    args = tuple(v.detach().cpu() if isinstance(v, torch.Tensor) else v for v in args)
    kwargs = {k: v.detach().cpu() if isinstance(v, torch.Tensor) else v for k, v in kwargs.items()}
    drawn = _first["empty"](tensor.shape, dtype=_wide(torch, tensor.dtype), device="cpu")
    original(drawn, *args, **kwargs)
    # As the draw itself does: it is written in place, and refused where a gradient is needed.
    return tensor.copy_(drawn.to(tensor.device))
