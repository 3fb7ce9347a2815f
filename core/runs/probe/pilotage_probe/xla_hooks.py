"""Wrap what torch_xla adds: the functions that end a graph and those that reduce gradients."""

import atexit
import os
import sys

from . import guard, process, steps, torch_hooks
from .xla_backend import XlaBackend


def install(torch_xla):
    """Called once, right after ``import torch_xla``."""
    with guard.reporting("xla backend"):
        process.backend = XlaBackend(torch_xla)

        def describe(started):
            return {
                "version": str(getattr(torch_xla, "__version__", "")),
                "pjrt_device": os.environ.get("PJRT_DEVICE"),
                "devices": process.backend.devices() if started else None,
            }

        process.backend.describe = describe
        process.write("xla", **describe(False))
    with guard.reporting("hook clip"):
        torch_hooks.wrap_clips(sys.modules["torch"])
    with guard.reporting("hook sync"):
        _wrap_sync(torch_xla)
    # torch_xla shuts its runtime down at exit; ours, registered later, runs before that.
    atexit.register(process.finish, "exit")


def _wrap_sync(torch_xla):
    inner = sys.modules.get("torch_xla.torch_xla")
    model = sys.modules.get("torch_xla.core.xla_model")
    process.backend.sync = getattr(torch_xla, "sync", None) or getattr(model, "mark_step", None)
    if inner is not None:  # torch_xla.step() and torch_xla.compile() end in this one
        torch_hooks.wrap(inner, "sync", "M", after=steps.after_sync)
    if hasattr(inner, "sync") and getattr(torch_xla, "sync", None) is not None:
        torch_xla.sync = inner.sync
    if model is not None:
        torch_hooks.wrap(model, "mark_step", "M", after=steps.after_sync)
        torch_hooks.wrap(model, "reduce_gradients", "R", after=steps.on_reduce)
        torch_hooks.wrap(model, "all_reduce", "R", after=steps.on_reduce)
