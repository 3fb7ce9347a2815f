"""Collectives that combine values of several ranks, counted where a metric is made.

That is during an evaluation and after it, until the training goes on. What reduces gradients or
logs a loss is no part of it: how often a loss is logged may change with the device.
"""

import sys

from .threads import local
from .wrapping import wrap

DISTRIBUTED = (
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "gather",
    "gather_object",
    "reduce",
)

counts = {}  # name -> calls


def install():
    """Wrap those of ``torch.distributed``; of nested ones the outermost counts."""
    module = sys.modules.get("torch.distributed")
    if module is None:
        return
    wrap(module, "all_reduce", "R", None, _reducing("all_reduce"))
    for name in DISTRIBUTED:
        wrap(module, name, "R", None, _counting(name))


def install_xla(model):
    """Wrap those of ``torch_xla.core.xla_model``."""
    from . import steps

    wrap(model, "reduce_gradients", "R", after=steps.on_reduce)
    wrap(model, "all_reduce", "R", after=_reducing("all_reduce"))
    for name in ("mesh_reduce", "all_gather"):
        wrap(model, name, "R", after=_counting(name))
    wrap(model, "rendezvous", "R", after=_met)


def _counting(name):
    def count(args, kwargs, result):
        thread = local.state
        if thread is not None and (thread.eval_now or thread.blind):
            counts[name] = counts.get(name, 0) + 1

    return count


def _met(args, kwargs, result):
    """A rendezvous hands over values where it has a payload; else it is a barrier."""
    if kwargs.get("payload") or (len(args) > 1 and args[1]):
        _counting("rendezvous")(args, kwargs, result)


def _reducing(name):
    from . import steps

    count = _counting(name)

    def reduced(args, kwargs, result):
        steps.on_reduce(args, kwargs, result)
        count(args, kwargs, result)

    return reduced


def reset_after_fork():
    """The parent's calls are the parent's."""
    counts.clear()
