"""The gradients of each optimizer's first step, as the backward passes left them (parity mode).

They are read right before the first clip of that step, or before the step itself; a GradScaler's
factor is taken out of them.
"""

import weakref

from . import guard, process, reading, recording, scaling

SCALED = "The gradients of a first step were scaled by what could not be read."

takers = []  # functions of (number of the step, [(key, parameter, read)], why or None)
_done = weakref.WeakSet()  # optimizers whose first step has been seen
_taken = {}  # rank -> keys of gradients that an optimizer's first step had
_clipped = weakref.WeakKeyDictionary()  # optimizer -> (cycle, {id: gradient}, why)


def before_clip(thread, cycle):
    """Gradients are about to be clipped: copy those of optimizers that have not stepped yet."""
    if not takers:
        return
    waiting = [o for o in list(reading.made) if o not in _done]
    if not waiting:
        return
    by = scaling.factor(thread, cycle)
    process.backend.synchronise()
    for optimizer in waiting:
        found = {}
        for key, parameter in _pairs(optimizer):
            if parameter.grad is not None:
                found[id(parameter)] = _read(parameter.grad, by)
        if found:
            _clipped[optimizer] = (weakref.ref(cycle), found, None if by else SCALED)


def before_step(thread, cycle, optimizer):
    """An optimizer is about to step: what there is to read is read now, if it is its first time."""
    if not takers or optimizer in _done:
        return
    _done.add(optimizer)
    held = {id(p) for p in reading.held(optimizer)} if cycle.losses else None
    recording.confirm(recording.rank(), held)
    pairs = _pairs(optimizer)
    of, found, why = _clipped.pop(optimizer, (None, None, None))
    if of is not None and of() is cycle:
        triples = [(key, p, lambda p=p: found.get(id(p))) for key, p in pairs]
    else:
        by = scaling.factor(thread, cycle)
        scale = getattr(optimizer, "grad_scale", None)  # a fused optimizer unscales in its kernel
        if scale is not None and by:
            by *= reading.value(reading.hold(scale)) or 0.0
        why = None if by else SCALED
        process.backend.synchronise()
        triples = [(key, p, lambda p=p: _read(p.grad, by)) for key, p in pairs]
    _taken.setdefault(recording.rank(), set()).update(key for key, _ in pairs)
    for take in takers:
        with guard.reporting("first gradients"):
            take(thread.steps + 1, triples, why)


def _pairs(optimizer):
    """[(key, parameter)] of what its step should change: without what only others hold, or held."""
    taken = _taken.get(recording.rank(), ())
    mine = {id(p) for p in reading.held(optimizer)}
    others = {id(p) for o in list(reading.made) for p in reading.held(o)} - mine
    seen, pairs = set(), []
    for root in recording.living(recording.rank()):
        for key, tensor, kind in root.tensors():
            if kind != "parameter" or id(tensor) in seen or id(tensor) in others:
                continue
            seen.add(id(tensor))
            if tensor.requires_grad and (key not in taken or id(tensor) in mine):
                pairs.append((key, tensor))
    return pairs


def _read(gradient, by):
    """A host copy of a gradient without its scale; None for none."""
    if gradient is None or not by:
        return None
    found = process.backend.read([gradient])[0]
    return found if by == 1.0 else found.float() / by
