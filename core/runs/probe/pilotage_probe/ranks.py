"""Which rank this process (or thread) has, from whatever says so, without asking it early.

Nothing is initialised by asking: torch.distributed is asked once the program has initialised it,
torch_xla only once its runtime runs and several processes or threads share it.
"""

import os
import sys

_by_thread = {}  # tid -> (rank, world, source), of threads that are ranks of their own
_process = (None, None, None)
_said = {}


def find(tid, own):
    """(rank, world, source) of a thread; ``own``: it is the calling one. None where unknown."""
    global _process
    found = _distributed() or (_xla() if own else None)
    if found is not None and found[2] == "torch_xla":
        _by_thread[tid] = found
        return found
    if found is None and _process[2] == "torch.distributed":
        found = _process  # its group has been taken down; the rank stays what it was
    _process = found or _by_environment() or _spawned() or (None, None, None)
    return _by_thread.get(tid, _process) if found is None else found


def news(tid, found):
    """Whether this rank has not been said yet; a rank that changes is news again."""
    key = tid if found[2] == "torch_xla" else 0
    if found[0] is None or _said.get(key) == found[:2]:
        return False
    _said[key] = found[:2]
    return True


def local():
    """The rank within this machine, as torchrun, accelerate and torch_xla state it, or None."""
    return _number("LOCAL_RANK", "PJRT_LOCAL_PROCESS_RANK")


def _distributed():
    module = sys.modules.get("torch.distributed")
    ready = getattr(module, "is_initialized", None)
    if ready is None or not ready():
        return None
    rank = module.get_rank()
    return (rank, module.get_world_size(), "torch.distributed") if rank >= 0 else None


def _xla():
    runtime = sys.modules.get("torch_xla.runtime")
    core = getattr(sys.modules.get("torch_xla"), "_XLAC", None)
    started = getattr(core, "_xla_runtime_is_initialized", None)
    replicas = getattr(core, "_xla_get_replication_devices_count", None)
    if runtime is None or started is None or replicas is None or not started():
        return None
    # Not runtime.world_size(): it keeps its first answer, and ours might come too early.
    world = replicas()
    return (runtime.global_ordinal(), world, "torch_xla") if world > 1 else None


def _by_environment():
    rank = _number("RANK")
    return None if rank is None else (rank, _number("WORLD_SIZE"), "RANK")


def _spawned():
    """The index that ``torch.multiprocessing.spawn`` hands to the function it runs."""
    module = sys.modules.get("multiprocessing.process")
    if module is None:
        return None
    process = module.current_process()
    target, arguments = getattr(process, "_target", None), getattr(process, "_args", ())
    if getattr(target, "__module__", None) != "torch.multiprocessing.spawn" or len(arguments) < 2:
        return None
    return (arguments[1], None, "spawn") if isinstance(arguments[1], int) else None


def _number(*names):
    for name in names:
        text = os.environ.get(name, "")
        if text.isdigit():
            return int(text)
    return None


def reset_after_fork():
    """A forked child may become another rank."""
    global _process
    _by_thread.clear()
    _said.clear()
    _process = (None, None, None)
