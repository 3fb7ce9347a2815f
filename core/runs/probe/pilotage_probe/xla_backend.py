"""torch_xla: lazy tensors, counters of compiles, executions, transfers and fallbacks.

``_XLAC`` is private, so every use of it is guarded: where it has changed, a value counts as not
readable and the program is left alone.
"""

from . import guard
from .backends import Backend

# Newest name first; torch_xla 2.1 still had the second.
FROM_DEVICE = ("TransferFromDeviceTime", "TransferFromServerTime")


class XlaBackend(Backend):
    """Values may be read only when they have no pending graph, or the read would compile one."""

    name = "xla"

    def __init__(self, torch_xla):
        super().__init__()
        self.torch_xla = torch_xla
        self.core = getattr(torch_xla, "_XLAC", None)
        import torch_xla.debug.metrics as metrics  # already loaded, or a few small modules

        self.metrics = metrics
        self.sync = None  # the function that ends a graph, as it was before our hooks

    def _metric(self, *names):
        for name in names:
            data = self.metrics.metric_data(name)
            if data is not None:
                return data[0], data[1]
        return 0, 0

    def counters(self):
        """See Backend; compile and execute counts are of the whole process."""
        _, compile_ns = self._metric("CompileTime")
        transfers, _ = self._metric(*FROM_DEVICE)
        fallbacks = {}
        for name in self.metrics.counter_names():
            # A read of a scalar shows as this fallback; it is one, but not a missing lowering.
            if name.startswith("aten::") and name != "aten::_local_scalar_dense":
                fallbacks[name] = self.metrics.counter_value(name) or 0
        return {
            "compiles": self.metrics.counter_value("UncachedCompile") or 0,
            "compile_s": compile_ns / 1e9,
            "executes": self._metric("ExecuteTime")[0],
            "transfers": transfers - self.own_transfers,
            "fallbacks": fallbacks,
        }

    def readable(self, tensor):
        """Whether the tensor is on the host, or on the device with no pending graph.

        A tensor that was moved there and not yet computed with shows a graph of a single
        ``xla::device_data`` node: that is its value, and reading it compiles nothing.
        """
        if tensor.device.type != "xla":
            return True
        for line in self.core._get_xla_tensor_debug_info(tensor).splitlines():
            if line.startswith("IR:"):
                return line == "IR: None" or "] xla::device_data," in line
        return False

    def read(self, tensors):
        """See Backend; counts what the copies cost as the probe's own."""
        transfers = self._metric(*FROM_DEVICE)[0]
        compiles = self.metrics.counter_value("UncachedCompile") or 0
        try:
            return super().read(tensors)
        finally:
            self.own_transfers += self._metric(*FROM_DEVICE)[0] - transfers
            self.own_compiles += (self.metrics.counter_value("UncachedCompile") or 0) - compiles

    def synchronise(self):
        """End the pending graph and run it; the compile it may cause is counted as own."""
        compiles = self.metrics.counter_value("UncachedCompile") or 0
        if self.sync is not None:
            with guard.reporting("synchronise"):
                self.sync()
        self.own_compiles += (self.metrics.counter_value("UncachedCompile") or 0) - compiles

    def devices(self):
        """Such as ``['CPU:0']`` or ``['TPU:0', ...]``; starts the runtime, so never ask early."""
        for find in (
            getattr(self.core, "_xla_real_devices", None),
            getattr(self.core, "_xla_get_devices", None),
        ):
            if find is not None:
                return [str(device) for device in find()]
        return None
