"""Take note of TorchTPU. It loads itself with ``import torch``, before torch is whole.

Everything else is what ``torch_hooks`` wraps: TorchTPU adds no end of a step of its own.
"""

import sys

from . import asked, guard, process
from .tpu_backend import TpuBackend


def install(torch_tpu):
    """Called once, right after ``import torch_tpu``."""
    if "torch_xla" in sys.modules:  # both can't hold the same chip: the first one counts
        return
    with guard.reporting("tpu backend"):
        process.backend = TpuBackend(torch_tpu)
        kind, fields = process.backend.describe(False)
        process.write(kind, **fields)
    torch = sys.modules.get("torch")
    if hasattr(torch, "Tensor") and hasattr(torch, "nn"):  # else torch_hooks does it
        with guard.reporting("hook reads"):
            asked.install(torch)
