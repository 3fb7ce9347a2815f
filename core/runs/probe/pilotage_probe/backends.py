"""What is special to a device backend, behind one small interface.

The records must not care which backend ran: a backend that has no compile counter says None.
``Backend`` is eager PyTorch; ``xla_backend`` and ``tpu_backend`` are torch_xla and TorchTPU.
"""

import sys

COUNTERS = ("compiles", "compile_s", "executes", "transfers")


class Backend:
    """Eager PyTorch on the CPU or on CUDA: values can be read at any time, nothing is compiled."""

    name = "eager"
    keeps = False  # whether a tensor must be held so that no other gets its identity

    def __init__(self):
        self.own_transfers = 0
        self.own_compiles = 0
        self.frozen = False  # the process ends in a hurry: nothing may wait for a device

    def counters(self):
        """Totals so far by ``COUNTERS``, own transfers excluded, and ``fallbacks`` by operator.

        None: this backend counts nothing. A single None: not counted, or not looked at this time.
        """
        return None

    def exact(self):
        """``counters`` with everything looked at, whatever it costs: for the end of a process."""
        return self.counters()

    def progress(self):
        """What a beat may ask from another thread, in the middle of a compile.

        ``compiling`` (None: not known), ``compiles`` and ``compile_s`` so far, ``device_mb``:
        memory that tensors take on the device, in MiB.
        """
        return {"device_mb": _cuda_mb()}

    def lazy(self, tensor):
        """Whether operations on this tensor are noted down and run later."""
        return False

    def identity(self, tensor):
        """What stays with a lazy tensor's value, or None where there is no such thing.

        The same for its ``detach()``, and another one once the tensor is written to.
        """
        return None

    def readable(self, tensor):
        """Whether reading ``tensor`` computes nothing that the program has not computed."""
        return not self.frozen or tensor.device.type == "cpu"

    def read(self, tensors):
        """Copies of ``tensors`` on the host, detached, never sharing memory with them."""
        import torch

        with torch.no_grad():
            return [tensor.to("cpu", copy=True) for tensor in tensors]

    def synchronise(self):
        """Make every pending value real (parity mode only)."""

    def devices(self):
        """The hardware behind the backend's device names, or None."""
        return None

    def describe(self, started):
        """(kind, fields) of a record about the backend, or None; ``started``: it is in use."""
        return None

    def totals(self):
        """Fields of the record ``finish``."""
        now = self.exact() or {}
        fields = {name: now.get(name) for name in COUNTERS}
        fields["fallbacks"] = now.get("fallbacks")
        fields["own_transfers"] = self.own_transfers
        fields["own_compiles"] = self.own_compiles
        return fields


def _cuda_mb():
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_available() or not cuda.is_initialized():
        return None
    return round(cuda.memory_allocated() / 1048576, 1)


def difference(now, before):
    """Counters since ``before``; None, or nothing, for what was not counted or not looked at."""
    if now is None:
        return {}
    before = before or {}
    delta = {name: _grown(now.get(name), before.get(name, 0)) for name in COUNTERS}
    if delta["compile_s"] is not None:
        delta["compile_s"] = round(delta["compile_s"], 6)
    delta["fallbacks"] = None
    old = before.get("fallbacks", {})
    if now.get("fallbacks") is not None and old is not None:
        grown = {op: _grown(count, old.get(op, 0)) for op, count in now["fallbacks"].items()}
        delta["fallbacks"] = {op: count for op, count in grown.items() if count}
    return delta


def _grown(now, before):
    if now is None or before is None:
        return None
    return now - before if now >= before else now  # the program has set its counters to zero
