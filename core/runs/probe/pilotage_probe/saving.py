"""Files of tensors that are written, and states that are loaded.

Norms are of tensors on the host or on a GPU (whose copy the save has just waited for), up to a
budget that is a small part of what the save itself costs. A tensor on a lazy device is never read.
"""

import os
import sys

from . import hashing, model, process, threads
from .wrapping import wrap

MAX_SAVES = 200  # records of one process
MAX_LOADS = 64
MAX_NORMS = 100  # tensors of one file
ELEMENTS = 4 * 1024 * 1024  # of one file that are read: 30 ms on one core
MAX_NODES = 20000
DEPTH = 8

written = {"saved": 0, "loaded": 0}


def install(torch):
    """Wrap ``torch.save`` and the ``load_state_dict`` of modules, optimizers and schedules."""
    wrap(torch, "save", "save", None, _saved)
    serialization = sys.modules.get("torch.serialization")
    wrap(serialization, "save", "save", None, _saved)  # one function under two names stays one
    wrap(torch.nn.Module, "load_state_dict", "load", None, _module_loaded)
    wrap(torch.optim.Optimizer, "load_state_dict", "load", None, _optimizer_loaded)
    for cls in list(vars(sys.modules["torch.optim.lr_scheduler"]).values()):
        if isinstance(cls, type) and "load_state_dict" in vars(cls):
            wrap(cls, "load_state_dict", "load", None, _schedule_loaded)


def install_safetensors(module):
    """Wrap ``safetensors.torch.save_file``, on which ``save_model`` rests."""
    wrap(module, "save_file", "save", None, _file_saved)


# --- saved -----------------------------------------------------------------------------------


def _saved(args, kwargs, result):
    value = args[0] if args else kwargs.get("obj")
    _note("torch.save", value, args[1] if len(args) > 1 else kwargs.get("f"))


def _file_saved(args, kwargs, result):
    value = args[0] if args else kwargs.get("tensors")
    _note("safetensors", value, args[1] if len(args) > 1 else kwargs.get("filename"))


def _note(kind, value, target):
    if written["saved"] >= MAX_SAVES:
        return
    found = _tensors(value)
    if not found:
        return  # settings or numbers, no state
    written["saved"] += 1
    path = target if isinstance(target, (str, os.PathLike)) else getattr(target, "name", None)
    process.write(
        "saved",
        path=os.path.basename(os.fspath(path)) if isinstance(path, (str, os.PathLike)) else None,
        format=kind,
        tensors=len(found),
        elements=sum(tensor.numel() for _, tensor in found),
        norms=_norms(found),
        keys_hash=hashing.of_text("\n".join(sorted(name for name, _ in found))),
        n=_steps(),
    )


def _tensors(value):
    """(name, tensor) of all with real numbers and a dimension, however they are nested."""
    torch = sys.modules["torch"]
    found, left = [], [("", value, 0)]
    nodes = 0
    while left and nodes < MAX_NODES:
        name, item, depth = left.pop()
        nodes += 1
        if isinstance(item, torch.Tensor):
            if item.dim() and (item.is_floating_point() or item.is_complex()):
                found.append((name, item))
        elif isinstance(item, torch.nn.Module):
            left += [(_join(name, key), p, depth) for key, p in model.named([item])]
        elif depth >= DEPTH:
            continue
        elif isinstance(item, dict):
            left += [(_join(name, key), entry, depth + 1) for key, entry in item.items()]
        elif isinstance(item, (list, tuple)):
            left += [(_join(name, key), entry, depth + 1) for key, entry in enumerate(item)]
    found.reverse()  # a stack gives the last one first
    return found


def _join(name, key):
    return "%s.%s" % (name, key) if name else str(key)


def _norms(found):
    """name -> 2-norm or None, of tensors spread evenly over all of them."""
    step = max(1.0, len(found) / float(MAX_NORMS))
    chosen = [found[int(index * step)] for index in range(min(MAX_NORMS, len(found)))]
    left, norms = ELEMENTS, {}
    for name, tensor in sorted(chosen, key=lambda pair: pair[1].numel()):
        norms[name] = None
        near = tensor.is_cpu or (tensor.is_cuda and process.mode == "light")
        if near and tensor.numel() <= left and not tensor.is_sparse:
            left -= tensor.numel()
            norms[name] = model.norms([tensor.detach()])[0]
    return norms


def _steps():
    return max([thread.steps for thread in threads.everyone()] or [0])


# --- loaded ----------------------------------------------------------------------------------


def _module_loaded(args, kwargs, result):
    state = args[1] if len(args) > 1 else kwargs.get("state_dict")
    missing = getattr(result, "missing_keys", None)
    unexpected = getattr(result, "unexpected_keys", None)
    _loaded(
        "module",
        type(model.unwrap(args[0])).__name__,
        keys=_length(state),
        missing=None if missing is None else len(missing),
        unexpected=None if unexpected is None else len(unexpected),
    )


def _optimizer_loaded(args, kwargs, result):
    state = args[1] if len(args) > 1 else kwargs.get("state_dict")
    entries = state.get("state") if isinstance(state, dict) else None
    _loaded(
        "optimizer",
        type(args[0]).__name__,
        keys=_length(entries),
        state_tensors=model.state_tensors(args[0]),
    )


def _schedule_loaded(args, kwargs, result):
    state = args[1] if len(args) > 1 else kwargs.get("state_dict")
    _loaded("scheduler", type(args[0]).__name__, keys=_length(state))


def _length(value):
    return len(value) if isinstance(value, dict) else None


def _loaded(what, cls, **fields):
    if written["loaded"] < MAX_LOADS:
        written["loaded"] += 1
        process.write("loaded", what=what, cls=cls, n=_steps(), **fields)


def reset_after_fork():
    """A child's records are counted anew."""
    written.update(saved=0, loaded=0)
