"""torch_xla: lazy tensors, counters of compiles, executions, transfers and fallbacks.

``_XLAC`` is private, so every use of it is guarded: where it has changed, a value counts as not
readable and the program is left alone.
"""

import os
from time import monotonic

from . import guard
from .backends import Backend

# Newest name first. torch_xla 2.1 and older say Server.
FROM_DEVICE = ("TransferFromDeviceTime", "TransferFromServerTime")
# One device, or all devices at once (SPMD): a program has the one or the other.
EXECUTE = ("ExecuteTime", "ExecuteReplicatedTime")
SHORT_SAMPLES = 200
# A metric is handed over with its last 1024 samples, at 80 ns each, and the names of all counters
# as a new list: from so many samples on the look is taken at LOOKS steps in a row of EVERY, or where
# steps are slow. A step that has compiled is looked at in any case. Several in a row, and an odd
# number: where two or more optimizers step before one sync, only one of their steps has an execution.
CHEAP_SAMPLES = 300
EVERY, LOOKS = 23, 5
SLOW_S = 0.25


class XlaBackend(Backend):
    """Values may be read only when they have no pending graph, or the read would compile one."""

    name = "xla"

    def __init__(self, torch_xla):
        super().__init__()
        self.torch_xla = torch_xla
        self.core = getattr(torch_xla, "_XLAC", None)
        import torch_xla.debug.metrics as metrics  # already loaded, or a few small modules

        self.metrics = metrics
        self.report = getattr(self.core, "_short_xla_metrics_report", None)
        self.sync = None  # the function that ends a graph, as it was before our hooks
        self.compiled = (-1, 0, 0.0)  # compiles begun, of which ended, seconds; at the last look
        self.looks = 0
        self.samples = 0
        self.looked = 0.0

    def _metric(self, *names):
        for name in names:
            data = self.metrics.metric_data(name)
            if data is not None:
                return data[0], data[1]
        return 0, 0

    def _counter(self, name):
        return self.metrics.counter_value(name) or 0

    def counters(self):
        """See Backend; compile and execute counts are of the whole process."""
        now = monotonic()
        self.looks += 1
        full = (
            self.samples < CHEAP_SAMPLES or now - self.looked > SLOW_S or self.looks % EVERY < LOOKS
        )
        self.looked = now
        return self._look(full)

    def exact(self):
        """See Backend."""
        return self._look(True)

    def _look(self, full):
        begun = self._counter("UncachedCompile")
        if begun != self.compiled[0] or begun != self.compiled[1]:
            ended, ns = self._metric("CompileTime")
            full = full or begun != self.compiled[0]
            self.compiled = (begun, ended, ns / 1e9)
        executes = transfers = fallbacks = None
        if full:
            executes, sent = self._totals()
            transfers = sent - self.own_transfers
            self.samples = executes + sent
            fallbacks = {}
            for name in self.metrics.counter_names():
                # A read of a scalar shows as this fallback; it is one, but no missing lowering.
                if name.startswith("aten::") and name != "aten::_local_scalar_dense":
                    fallbacks[name] = self._counter(name)
        return {
            "compiles": begun,
            "compile_s": self.compiled[2],
            "executes": executes,
            "transfers": transfers,
            "fallbacks": fallbacks,
        }

    def _totals(self):
        """How many executions and transfers to the host there were.

        From the short report once there are many samples: it states totals in less than half the
        time. A report that reads otherwise than expected is not asked again.
        """
        if self.report is not None and self.samples > SHORT_SAMPLES:
            text = self.report(["-"], [*EXECUTE, FROM_DEVICE[0]])
            alone, together, sent = [_total(text, n) for n in (*EXECUTE, FROM_DEVICE[0])]
            found = together if alone is None else alone
            if found is not None:
                return found, sent or 0
            self.report = None
        return self._metric(*EXECUTE)[0], self._metric(*FROM_DEVICE)[0]

    def progress(self):
        """See Backend. A compile that has begun is counted at once, its time when it has ended."""
        begun, ended, _ = self.compiled
        now = self._counter("UncachedCompile")
        done, ns = self._metric("CompileTime")
        return {
            "compiling": None if begun < 0 else now - done > begun - ended,
            "compiles": now,
            "compile_s": round(ns / 1e9, 6),
        }

    def lazy(self, tensor):
        """See Backend."""
        return tensor.device.type == "xla"

    def identity(self, tensor):
        """See Backend; the id of the XLATensor, which every operation in place replaces."""
        ask = getattr(self.core, "_xla_get_tensor_id", None)
        return None if ask is None else ask(tensor)

    def readable(self, tensor):
        """Whether the tensor is on the host, or on the device with no pending graph.

        A tensor that was moved there and not yet computed with shows a graph of a single
        ``xla::device_data`` node: that is its value, and reading it compiles nothing.
        """
        if tensor.device.type != "xla":
            return super().readable(tensor)
        if self.frozen:
            return False
        for line in self.core._get_xla_tensor_debug_info(tensor).splitlines():
            if line.startswith("IR:"):
                return line == "IR: None" or "] xla::device_data," in line
        return False

    def read(self, tensors):
        """See Backend; counts what the copies cost as the probe's own."""
        if not any(tensor.device.type == "xla" for tensor in tensors):
            return super().read(tensors)
        transfers = self._metric(*FROM_DEVICE)[0]
        compiles = self._counter("UncachedCompile")
        try:
            return super().read(tensors)
        finally:
            self.own_transfers += self._metric(*FROM_DEVICE)[0] - transfers
            self.own_compiles += self._counter("UncachedCompile") - compiles

    def synchronise(self):
        """End the pending graph and run it; the compile it may cause is counted as own."""
        compiles = self._counter("UncachedCompile")
        if self.sync is not None:
            with guard.reporting("synchronise"):
                self.sync()
        self.own_compiles += self._counter("UncachedCompile") - compiles

    def devices(self):
        """Such as ``['CPU:0']`` or ``['TPU:0', ...]``; starts the runtime, so never ask early."""
        for find in (
            getattr(self.core, "_xla_real_devices", None),
            getattr(self.core, "_xla_get_devices", None),
        ):
            if find is not None:
                return [str(device) for device in find()]
        return None

    def describe(self, started):
        """See Backend."""
        return "xla", {
            "version": str(getattr(self.torch_xla, "__version__", "")),
            "pjrt_device": os.environ.get("PJRT_DEVICE"),
            "devices": self.devices() if started else None,
        }


def _total(report, name):
    """``TotalSamples`` of a metric in a metrics report, or None where that does not stand there."""
    _, found, rest = report.partition("Metric: %s\n  TotalSamples: " % name)
    number = rest[:20].split("\n")[0]
    return int(number) if found and number.isdigit() else None
