"""Wrap what torch_xla adds: the end of a graph, and the functions that reduce gradients."""

import atexit
import sys

from . import asked, collectives, finder, guard, process, steps, torch_hooks, world, wrapping
from .xla_backend import XlaBackend


def install(torch_xla):
    """Called once, right after ``import torch_xla``."""
    with guard.reporting("xla backend"):
        process.backend = XlaBackend(torch_xla)
        kind, fields = process.backend.describe(False)
        process.write(kind, **fields)
    with guard.reporting("hook reads"):
        asked.install(sys.modules["torch"])
    with guard.reporting("hook clip"):
        torch_hooks.wrap_clips(sys.modules["torch"])
    with guard.reporting("hook sync"):
        _hook_sync(torch_xla)
    with guard.reporting("hook scan"):
        finder.watch("torch_xla.experimental.scan", _hook_scan)
    world.xla_loaded()
    with guard.reporting("hook xla reduce"):
        model = sys.modules.get("torch_xla.core.xla_model")
        if model is not None:
            collectives.install_xla(model)
    # torch_xla shuts its runtime down at exit; ours, registered later, runs before that.
    atexit.register(process.finish, "exit")


def _hook_scan(module):
    """``scan`` traces what it repeats with a backward pass of its own: that trains nothing.

    A ``torch.nn.GRU`` is one on a device of torch_xla 2.9, in its first forward pass of each shape.
    """
    wrapping.wrap(module, "value_and_grad_partitioned", "B")  # one inside of it is not observed


def _hook_sync(torch_xla):
    inner = sys.modules.get("torch_xla.torch_xla")
    model = sys.modules.get("torch_xla.core.xla_model")
    process.backend.sync = getattr(torch_xla, "sync", None) or getattr(model, "mark_step", None)
    # sync() and mark_step() run the closures of the step once the graph is under way. There, and
    # not around sync itself: torch_xla's own report of what caused a compile reads the Python
    # frames above the call, and must not find one of ours among them.
    if hasattr(model, "_run_step_closures"):
        wrapping.wrap(model, "_run_step_closures", "M", before=_synced)
        return
    if inner is not None:  # torch_xla.step() and torch_xla.compile() end in this one
        wrapping.wrap(inner, "sync", "M", after=steps.after_sync)
    if hasattr(inner, "sync") and getattr(torch_xla, "sync", None) is not None:
        torch_xla.sync = inner.sync
    if model is not None:
        wrapping.wrap(model, "mark_step", "M", after=steps.after_sync)


def _synced(args, kwargs):
    steps.after_sync(args, kwargs, None)
