"""CUDA on the CPU, with ``PILOTAGE_PROBE_CUDA=cpu``: a project that asks for a GPU runs without one.

What it asks of a CUDA device is done on the CPU, in float32 (``precision``): that is what makes its
numbers comparable. Questions about the device are answered as one GPU would; memory counts as
empty. To the program's own code a tensor says that it is on ``cuda:0``; to libraries it says the
truth. What has no equal (graphs, collectives of NCCL's own) fails as it does without a GPU, and the
record ``cuda_redirect`` names it.
"""

import sys

from . import callers, cuda_module, guard, precision, process, replacing, wrapping
from .replacing import replace
from .wrapping import unseen

calls = {}  # name -> count
unsupported = []
NEW = ("new_empty", "new_zeros", "new_ones", "new_full", "new_tensor", "new_empty_strided")
NCCL = ("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "unique_id")
MAX_NAMES = 500


def install(torch):
    """Once, right after torch, after the other parts: this one has the first word on a device."""
    precision.follows_cuda()
    # A library that finds it installed would take its devices, which no GPU project runs on.
    sys.modules.setdefault("torch_xla", None)
    cuda_module.install(torch, note)
    for name in replacing.FACTORIES:
        replace(torch, name, _counted(name, _factory))
    for name in NEW:
        replace(torch.Tensor, name, _counted("Tensor." + name, _factory))
    for owner, label in ((torch.Tensor, "Tensor"), (torch.nn.Module, "Module")):
        replace(owner, "to", _counted(label + ".to", _to))
        replace(owner, "cuda", _counted(label + ".cuda", _self))
    replace(torch.nn.Module, "to_empty", _counted("Module.to_empty", _to))
    _tensors(torch)
    _places(torch)
    _generator(torch)
    _parallel(torch)
    _graphs(torch.cuda)
    for name in NCCL:
        replace(getattr(torch.cuda, "nccl", None), name, _missing("torch.cuda.nccl." + name))
    process.at_end.append(write)


def note(name):
    """Count one call that was redirected."""
    if name in calls or len(calls) < MAX_NAMES:
        calls[name] = calls.get(name, 0) + 1


def write():
    """Write the record."""
    process.write("cuda_redirect", calls=dict(calls), unsupported=list(unsupported))


# --- devices in arguments ----------------------------------------------------------------------


def _is_cuda(value):
    torch = sys.modules["torch"]
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))


def _is_index(value):
    return type(value) is int  # the number of a GPU


def _counted(name, choose):
    def counted(original, args, kwargs):
        chosen = choose(original, args, kwargs)
        if chosen is not None:
            note(name)
        return chosen

    return counted


def _factory(original, args, kwargs):
    device = kwargs.get("device")
    pinned = kwargs.get("pin_memory")
    if not pinned and not _is_cuda(device) and not _is_index(device):
        return None
    kwargs = {k: v for k, v in kwargs.items() if k != "pin_memory"}
    if device is not None:
        kwargs["device"] = "cpu" if _is_cuda(device) or _is_index(device) else device
    return original, args, kwargs


def _to(original, args, kwargs):
    """``to(device, ...)``, where a number alone names a GPU."""
    first = args[1] if len(args) > 1 else None
    device = kwargs.get("device")
    if not any(_is_cuda(v) or _is_index(v) for v in (first, device)):
        return None
    if first is not None:
        args = (args[0], "cpu" if _is_cuda(first) or _is_index(first) else first) + args[2:]
    if device is not None:
        kwargs = dict(kwargs, device="cpu")
    return original, args, kwargs


def _same(value):
    return value


def _self(original, args, kwargs):
    return _same, (args[0],), {}


def _nothing(original, args, kwargs):
    return _same, (None,), {}


# --- tensors -------------------------------------------------------------------------------------


def _tensors(torch):
    cls = torch.Tensor
    replace(cls, "pin_memory", _counted("Tensor.pin_memory", _self))
    replace(cls, "record_stream", _counted("Tensor.record_stream", _nothing))
    replace(cls, "type", _type)
    for name, answer in (("is_cuda", True), ("device", torch.device("cuda", 0))):
        setattr(cls, name, property(_claimed(cls.__dict__.get(name) or getattr(cls, name), answer)))
    replace(cls, "get_device", lambda *_: (_same, (0,), {}) if callers.by_user() else None)
    for name in ("_StorageBase", "TypedStorage"):
        storage = getattr(torch.storage, name, None)
        if storage is not None:
            replace(storage, "cuda", _self)
            replace(storage, "pin_memory", _self)


def _claimed(descriptor, answer):
    """What a tensor says of itself to the program's own code."""
    cpu = sys.modules["torch"].device("cpu")
    ask = wrapping.hook("device of a tensor")(callers.by_user)

    @unseen
    def claimed(self):
        value = descriptor.__get__(self)
        if guard.local.busy or wrapping.compiling() or (value != cpu and value is not False):
            return value
        return answer if ask() else value

    return claimed


def _type(original, args, kwargs):
    """``type("torch.cuda.FloatTensor")``."""
    name = args[1] if len(args) > 1 else kwargs.get("dtype")
    if not isinstance(name, str) or not name.startswith("torch.cuda."):
        return None
    note("Tensor.type")
    rest = {k: v for k, v in kwargs.items() if k != "dtype"}
    return original, (args[0], "torch." + name[len("torch.cuda.") :]) + args[2:], rest


# --- places where a device is a default, or a file's -------------------------------------------------


def _places(torch):
    replace(torch, "load", _load)
    replace(torch, "set_default_device", _default_device)
    replace(torch, "set_default_tensor_type", _default_type)
    loader = sys.modules["torch.utils.data"].DataLoader
    replace(
        loader, "__init__", lambda original, args, kwargs: (_unpinned, (original,) + args, kwargs)
    )


def _load(original, args, kwargs):
    place = args[1] if len(args) > 1 else kwargs.get("map_location")
    if callable(place) or not (place is None or isinstance(place, dict) or _is_cuda(place)):
        return None
    if place is not None:
        note("load")
    return (
        original,
        args[:1] + ("cpu",) + args[2:],
        {k: v for k, v in kwargs.items() if k != "map_location"},
    )


def _default_device(original, args, kwargs):
    device = args[0] if args else kwargs.get("device")
    if not _is_cuda(device) and not _is_index(device):
        return None
    note("set_default_device")
    return original, ("cpu",), {}


def _default_type(original, args, kwargs):
    kind = args[0] if args else kwargs.get("t")
    if not isinstance(kind, str) or not kind.startswith("torch.cuda."):
        return None
    note("set_default_tensor_type")
    return original, ("torch." + kind[len("torch.cuda.") :],), {}


def watch_contexts(module):
    """``with torch.device("cuda"):``"""

    def choose(original, args, kwargs):
        device = args[1] if len(args) > 1 else kwargs.get("device")
        if not _is_cuda(device) and not _is_index(device):
            return None
        note("device")
        return original, (args[0], "cpu"), {}

    replace(module.DeviceContext, "__init__", choose)


@unseen
def _unpinned(original, loader, *args, **kwargs):
    original(loader, *args, **kwargs)
    if getattr(loader, "pin_memory", False):
        note("DataLoader.pin_memory")
        loader.pin_memory = False


def _generator(torch):
    made = torch.Generator

    class _Meta(type(made)):
        def __instancecheck__(cls, value):
            return isinstance(value, made)

    class Generator(made, metaclass=_Meta):
        __doc__ = made.__doc__

        def __new__(cls, device="cpu"):
            if _is_cuda(device) or _is_index(device):
                note("Generator")
                device = "cpu"
            return made(device)

    Generator.__module__, Generator.__qualname__ = made.__module__, made.__qualname__
    torch.Generator = Generator


# --- several devices -----------------------------------------------------------------------------


def _parallel(torch):
    parallel = torch.nn.parallel
    replace(torch.nn.DataParallel, "__init__", lambda o, a, k: (_data_parallel, (o,) + a, k))
    replace(parallel.DistributedDataParallel, "__init__", _distributed)
    group = sys.modules.get("torch.distributed")
    if group is not None and hasattr(group, "init_process_group"):
        for name in ("init_process_group", "new_group"):
            replace(group, name, _group(name))
        group.is_nccl_available = unseen(lambda: True)
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < (2, 3):  # its kernels are for CUDA only; in float32 it changes nothing
        replace(torch.cuda.amp.GradScaler, "__init__", _unscaled)


@unseen
def _data_parallel(original, self, module, *args, **kwargs):
    note("DataParallel")
    original(self, module, device_ids=[0])
    self.device_ids = []  # it calls its module as it is


def _distributed(original, args, kwargs):
    note("DistributedDataParallel")
    kwargs = dict(kwargs, device_ids=None, output_device=None)
    return original, args[:2], kwargs


def _group(name):
    def choose(original, args, kwargs):
        kwargs = {k: v for k, v in kwargs.items() if k != "device_id"}
        at = 0 if name == "init_process_group" else 2
        backend = args[at] if len(args) > at else kwargs.get("backend")
        if not isinstance(backend, str) or "nccl" not in backend.lower():
            return original, args, kwargs
        note(name + "(nccl)")
        if len(args) > at:
            return original, args[:at] + ("gloo",) + args[at + 1 :], kwargs
        return original, args, dict(kwargs, backend="gloo")

    return choose


def _unscaled(original, args, kwargs):
    note("GradScaler")
    return original, args[:1], dict(kwargs, enabled=False)


def _graphs(cuda):
    if hasattr(cuda, "CUDAGraph"):
        made = cuda.CUDAGraph

        class CUDAGraph(made):  # stays a class: annotations name it
            def __new__(cls, *args, **kwargs):
                _lacks("torch.cuda.CUDAGraph")
                return made.__new__(cls, *args, **kwargs)

        CUDAGraph.__module__, CUDAGraph.__qualname__ = made.__module__, made.__qualname__
        cuda.CUDAGraph = CUDAGraph
    replace(getattr(cuda, "graph", None), "__init__", _missing("torch.cuda.graph"))
    replace(cuda, "make_graphed_callables", _missing("torch.cuda.make_graphed_callables"))


def _missing(name):
    return lambda original, args, kwargs: _lacks(name)


def _lacks(name):
    if name not in unsupported and len(unsupported) < 50:
        unsupported.append(name)
