"""TorchTPU (package ``torch_tpu``, device type ``tpu``): deferred tensors, a compilation cache.

Written against torch_tpu 0.2.0, whose statistics are private: ``_device_ops_backend`` counts
requests, hits and misses of the compilation cache and keeps the time of each entry's compile;
``sync.is_materialized`` says whether a tensor has its value. It has no mode without a TPU: none
of this has run on one. Executions, transfers and fallbacks are not counted by it: None.
"""

import sys

from .backends import Backend

DEVICE_OPS = "torch_tpu._internal.device._device_ops_backend"
SYNC = "torch_tpu._internal.sync"


class TpuBackend(Backend):
    """Nothing is imported here: its modules are there once the program has loaded torch_tpu."""

    name = "tpu"
    keeps = True

    def __init__(self, torch_tpu):
        super().__init__()
        self.torch_tpu = torch_tpu
        self.compiled = (0, 0.0)  # misses, and the seconds of their compiles

    def _started(self):
        """The module of the runtime, once the program has started it."""
        module = sys.modules.get(DEVICE_OPS)
        ready = getattr(module, "_is_initialized", None)
        return module if ready is not None and ready() else None

    def counters(self):
        """See Backend; a miss of the compilation cache is a compile."""
        module = self._started()
        count = getattr(module, "_get_cache_misses", None)
        if count is None:
            return None
        misses = count()
        if misses != self.compiled[0]:
            self.compiled = (misses, _compile_s(module))
        return {"compiles": misses, "compile_s": self.compiled[1]}

    def progress(self):
        """See Backend. Whether one runs right now is not to be seen: a miss is counted at once."""
        now = self.counters() or {}
        return {"compiles": now.get("compiles"), "compile_s": now.get("compile_s")}

    def lazy(self, tensor):
        """See Backend."""
        return tensor.device.type == "tpu"

    def identity(self, tensor):
        """See Backend; the storage and how often it was written to."""
        return tensor.untyped_storage()._cdata, tensor._version

    def readable(self, tensor):
        """See Backend; a deferred tensor has no value yet."""
        if tensor.device.type != "tpu":
            return super().readable(tensor)
        ask = getattr(sys.modules.get(SYNC), "is_materialized", None)
        return not self.frozen and ask is not None and bool(ask(tensor))

    def read(self, tensors):
        """See Backend; counts the copies and what they compiled as the probe's own."""
        before = (self.counters() or {}).get("compiles") or 0
        try:
            return super().read(tensors)
        finally:
            self.own_transfers += sum(tensor.device.type == "tpu" for tensor in tensors)
            self.own_compiles += ((self.counters() or {}).get("compiles") or 0) - before

    def synchronise(self):
        """See Backend: ``torch.tpu.synchronize`` waits for all that was launched."""
        tpu = getattr(sys.modules.get("torch"), "tpu", None)
        if self._started() is not None and hasattr(tpu, "synchronize"):
            tpu.synchronize()

    def devices(self):
        """Such as ``['TPU:0', 'TPU:1']``, those of this process."""
        module = self._started()
        count = getattr(module, "_get_device_count", None)
        return None if count is None else ["TPU:%d" % index for index in range(count())]

    def describe(self, started):
        """See Backend."""
        return "tpu", {
            "version": _version(self.torch_tpu),
            "devices": self.devices() if started else None,
        }


def _compile_s(module):
    """Seconds of all compiles, or None where an entry states no ``timedelta``."""
    total = 0.0
    for entry in module._get_cache_stats().per_entry_stats:
        seconds = getattr(entry.compilation_duration, "total_seconds", None)
        if seconds is None:
            return None
        total += seconds()
    return total


def _version(module):
    stated = getattr(module, "__version__", None)
    if stated is not None:
        return str(stated)
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("torch-tpu")
    except PackageNotFoundError:
        return ""
