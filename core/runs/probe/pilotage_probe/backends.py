"""What is special to a device backend, behind one small interface.

The records must not care which backend ran: a backend that has no compile counter says None.
"""

COUNTERS = ("compiles", "compile_s", "executes", "transfers")


class Backend:
    """Eager PyTorch on the CPU or on CUDA: values can be read at any time, nothing is compiled."""

    name = "eager"

    def __init__(self):
        self.own_transfers = 0
        self.own_compiles = 0

    def counters(self):
        """Totals so far, own transfers excluded, and ``fallbacks`` by operator; or None."""
        return None

    def readable(self, tensor):
        """Whether reading ``tensor`` computes nothing that the program has not computed."""
        return True

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

    def totals(self):
        """Fields of the record ``finish``."""
        now = self.counters() or {}
        fields = {name: now.get(name) for name in COUNTERS}
        fields["fallbacks"] = now.get("fallbacks")
        fields["own_transfers"] = self.own_transfers
        fields["own_compiles"] = self.own_compiles
        return fields


def difference(now, before):
    """Counters since ``before``; every field None when the backend has none."""
    if now is None:
        return dict.fromkeys(COUNTERS + ("fallbacks",))
    before = before or {}
    delta = {name: now[name] - before.get(name, 0) for name in COUNTERS}
    delta["compile_s"] = round(delta["compile_s"], 6)
    old = before.get("fallbacks", {})
    grown = {op: count - old.get(op, 0) for op, count in now["fallbacks"].items()}
    delta["fallbacks"] = {op: count for op, count in grown.items() if count}
    return delta
