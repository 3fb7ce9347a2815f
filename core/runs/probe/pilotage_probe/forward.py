"""Forward passes: which modules are trained, on how many samples; evaluations; moves of modules."""

import sys

from . import clips, data, dropout, guard, model, process, reading
from .closing import clock, start_clock
from .cycle import is_sparse
from .threads import current

watchers = []  # functions of (module, args, kwargs): what parity mode does before a forward pass


def watched(module, args, kwargs):
    """``on_forward`` of parity mode."""
    for call in watchers:
        with guard.reporting("before forward"):
            call(module, args, kwargs)
    on_forward(module, args, kwargs)


def on_forward(module, args, kwargs):
    """A module was called from outside any other module."""
    torch = sys.modules["torch"]
    thread = current()
    entry = thread.modules.get(id(module))
    if entry is None or entry.ref() is not module:
        entry = thread.seen(module)
        clips.watch_methods(module)
    if not entry.elements:
        return
    samples = _leading(torch, args) or _leading(torch, tuple(kwargs.values())) or 0
    if module.training:
        if torch.is_grad_enabled() or thread.stack:
            _train(thread, entry, module, samples)
            return
        if not thread.backwards:  # a zeroth-order optimizer, or an evaluation before the training
            _mark(thread, entry)
            thread.blind[id(module)] = thread.blind.get(id(module), 0) + samples
            if thread.since is None:
                start_clock(thread)
            return
        thread.eval_train += samples
    # In training mode it may be part of a step: a generator's pass for its discriminator.
    if entry.calls and thread.pending is not None and not thread.frozen and not module.training:
        data.settle()  # what was trained on by now, before the evaluation counts
        thread.frozen = True
        thread.pending.began = (thread.since, thread.base)
        thread.pending.end = clock()
    entry.eval += samples
    thread.eval_now += samples


def _mark(thread, entry):
    if entry.mark != thread.steps:
        entry.mark = thread.steps
        entry.start = entry.train


def _train(thread, entry, module, samples):
    if thread.eval_now:
        data.settle()
        thread.eval_last, thread.eval_now = thread.eval_now, 0
    if not entry.calls:
        _first(thread, entry, module)
    entry.calls += 1
    _mark(thread, entry)
    if not (thread.stack and thread.open is not None and thread.open.closures > 1):
        entry.train += samples  # a closure sees the same batch each time it is evaluated
    if thread.frozen:
        thread.frozen = False
        start_clock(thread)
    elif thread.since is None:
        start_clock(thread)


def settle_blind(thread):
    """A step came without a backward pass: what ran without gradients was its training."""
    for key, count in thread.blind.items():
        entry = thread.modules[key]
        entry.train += count
        entry.calls += 1
    thread.blind = {}


def _first(thread, entry, module):
    if reading.parity():
        dropout.off_in(module)
    elif process.reads and is_sparse(thread.steps + 1):
        if thread.snapshot is None or thread.snapshot[0] != thread.steps:
            parameters = [p for _, p in model.budget(reading.trained(None, [entry]))]
            if reading.lazy(parameters):
                thread.snapshot = reading.snapshot(thread.steps, parameters)


def _leading(torch, values, depth=0):
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.dim():
                size = value.shape[0]
                return size if type(size) is int else None  # a symbol: asking would fix its value
        elif depth < 2 and isinstance(value, (list, tuple)):
            found = _leading(torch, value, depth + 1)
            if found:
                return found
        elif depth < 2 and isinstance(value, dict):
            found = _leading(torch, tuple(value.values()), depth + 1)
            if found:
                return found
    return None


def before_apply(args, kwargs):
    """``Module._apply``, on which ``.to()``, ``.cuda()`` and ``.half()`` rest, is about to run."""
    current().placed = model.placed(args[0])


def after_apply(args, kwargs, result):
    """Say so if the move put other Parameters in place, or untied any."""
    thread = current()
    before, thread.placed = thread.placed, None
    fields = before and model.moved(args[0], before)
    if fields:
        for known in thread.known.values():
            known.stale = True
        process.write("moved", **fields)
