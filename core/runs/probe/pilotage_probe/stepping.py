"""An optimizer's step: what it is given, what it changes, which closure it evaluates."""

import functools
import sys
import weakref

from . import clips as clipping
from . import dropout, forward, guard, model, process, reading, scaling
from .closing import close
from .cycle import Loss, is_sparse, open_cycle
from .threads import Known, current
from .wrapping import hook, is_function, unseen

# --- begin -----------------------------------------------------------------------------------


def before_step(optimizer, args, kwargs):
    """An optimizer is about to step; of nested optimizers only the outermost counts.

    Returns (args, kwargs) with the closure, if there is one, put under observation.
    """
    thread = current()
    thread.stack.append(id(optimizer))
    if len(thread.stack) > 1:
        open_cycle(thread).steppers.add(id(optimizer))
        return None
    if thread.pending is not None:  # two optimizers after one backward
        close(thread)
    cycle = open_cycle(thread)
    cycle.abandoned = False
    cycle.steppers = {id(optimizer)}
    cycle.owner = weakref.ref(optimizer)
    if thread.blind and not cycle.losses:
        forward.settle_blind(thread)
    watched = _watch_closure(args, kwargs)
    if watched is None:
        _prepare(thread, cycle, optimizer)
        return None
    if _wanted(thread):
        _copy_own(cycle, optimizer)
    return watched


def _wanted(thread):
    return reading.parity() or is_sparse(thread.steps + 1)


def _copy_own(cycle, optimizer):
    """Copies of the optimizer's parameters before a closure may move them (zeroth order)."""
    pairs = [("", p) for p in reading.held(optimizer) if p.requires_grad]
    pairs = model.unique(pairs if reading.parity() else model.budget(pairs))
    parameters = [p for _, p in pairs]
    if reading.parity():
        process.backend.synchronise()
    elif reading.lazy(parameters):
        return
    copies = process.backend.read(parameters)
    cycle.before = {id(p): copy for p, copy in zip(parameters, copies)}


def _prepare(thread, cycle, optimizer):
    """What is known right before the update: after the closure's first evaluation, if any."""
    known = thread.latest
    if known is None or known.ref() is not optimizer:
        known = thread.known.get(optimizer)
        if known is None:
            thread.optimizers += 1
            known = thread.known[optimizer] = Known(thread.optimizers, optimizer)
        thread.latest = known
    cycle.known = known
    if thread.grad_call is not None:
        _loss_of_grad_call(thread, cycle, optimizer)
    wanted = _wanted(thread)
    if wanted or known.stale or thread.functional or _elsewhere(thread, known):
        known.roots = reading.roots_of(thread, optimizer)
    cycle.roots = known.roots
    pairs = None
    if wanted or known.stale:
        pairs = reading.trained(optimizer, known.roots)
        _describe(known, optimizer, pairs)
    cycle.groups = model.rates(optimizer)
    cycle.optimizer = type(optimizer).__name__
    cycle.samples = _samples(known)
    clipping.cover(cycle, known)
    if not wanted:
        return
    parameters = [p for _, p in (pairs if reading.parity() else model.budget(pairs))]
    if reading.parity():
        for call in process.before_step:
            with guard.reporting("before step"):
                call(thread, cycle, optimizer)
        process.backend.synchronise()
        for loss in cycle.losses:
            loss.item = reading.value(loss.item)
        for clip in cycle.clips:
            clip["total_norm"] = reading.value(clip["total_norm"])
    elif reading.lazy(parameters):
        cycle.before = None if process.reads else reading.written(parameters)
        return
    before = cycle.before or {}
    missing = [p for p in parameters if id(p) not in before]
    before.update(zip(map(id, missing), process.backend.read(missing)))
    cycle.before = (parameters, [before[id(p)] for p in parameters])
    scale = getattr(optimizer, "grad_scale", None)  # a fused optimizer unscales in its kernel

    def read():
        _read_gradients(cycle, parameters, scale)

    read()
    cycle.wanted = read


def _elsewhere(thread, known):
    """Whether what it trains was not called since the last step, but other modules were."""
    for entry in known.roots:
        if entry.mark == thread.steps:
            return False
    return bool(thread.called())


def _samples(known):
    if not known.roots:
        return None
    entry = known.roots[0]
    taken = entry.start
    if known.taken[0] == id(entry) and known.taken[1] > taken:
        taken = known.taken[1]
    known.taken = (id(entry), entry.train)
    return entry.train - taken if entry.calls else None


def _loss_of_grad_call(thread, cycle, optimizer):
    """Gradients by ``torch.autograd.grad``: its output was the loss, if they are this step's."""
    call, thread.grad_call = thread.grad_call, None
    if cycle.losses or call[0] is None:
        return
    if call[1] & {id(p) for p in reading.held(optimizer)}:
        cycle.losses.append(Loss(call[0], "autograd.grad"))


def _read_gradients(cycle, parameters, scale):
    """Norms of the gradients that the optimizer gets, and whether a hand has changed them."""
    by = 1.0
    if scale is not None:
        by = reading.value(reading.hold(scale))
        if not by:
            cycle.why["grad_norm_after"] = "the gradients are scaled"
            return
    with_grad = [p for p in parameters if p.grad is not None]
    if reading.parity():
        process.backend.synchronise()
    read = process.backend.read([p.grad for p in with_grad])
    found = {id(p): norm / by for p, norm in zip(with_grad, model.norms(read))}
    cycle.grads_after = _together(found.values())
    if not reading.parity():
        return
    cycle.grad_norms = [found.get(id(p)) for p in parameters]
    if cycle.grads is not None:
        cycle.grads_before = _together(
            [cycle.grads[id(p)] for p in parameters if id(p) in cycle.grads]
        )
        clipping.compare_by_hand(cycle, cycle.grads, found)


def _together(norms):
    norms = list(norms)
    return sum(norm * norm for norm in norms) ** 0.5 if norms else None


# --- the closure -----------------------------------------------------------------------------


def _watch_closure(args, kwargs):
    if "closure" in kwargs:
        if is_function(kwargs["closure"]):
            return args, dict(kwargs, closure=_watched(kwargs["closure"]))
    elif args and is_function(args[0]):
        return (_watched(args[0]),) + tuple(args[1:]), kwargs
    return None


def _watched(closure):
    begin = hook("closure before")(_begin_closure)
    end = hook("closure after")(_end_closure)

    @functools.wraps(closure)
    @unseen
    def watched(*args, **kwargs):
        begin()
        try:
            value = closure(*args, **kwargs)
        except BaseException as error:
            guard.unframe(error)
            raise
        end(value)
        return value

    return watched


def _begin_closure():
    open_cycle(current()).closures += 1


def _end_closure(value):
    thread = current()
    cycle = open_cycle(thread)
    cycle.closure = reading.hold(value)
    if reading.parity():
        process.backend.synchronise()
        cycle.closure = reading.value(cycle.closure)
    optimizer = cycle.owner and cycle.owner()
    if cycle.known is None and optimizer is not None:
        _prepare(thread, cycle, optimizer)


# --- end -------------------------------------------------------------------------------------


def failed_step(optimizer):
    """``step`` raised an exception: no step was made."""
    thread = current()
    thread.stack.pop() if thread.stack else None


def after_step(optimizer, result):
    """An optimizer has stepped, and ``step`` returned ``result``."""
    thread = current()
    if thread.stack:
        thread.stack.pop()
    if thread.stack:
        return
    cycle = open_cycle(thread)
    if cycle.known is None:  # it has a closure and did not evaluate it
        _prepare(thread, cycle, optimizer)
    found_inf = getattr(optimizer, "found_inf", None)
    if found_inf is not None and reading.value(reading.hold(found_inf)):
        # A fused optimizer is called all the same, and changes nothing.
        scaling.skipped(thread)
        return
    cycle.note("S")
    if result is not None:
        cycle.returned = reading.hold(result)
    thread.steps += 1
    cycle.known.steps += 1
    cycle.n = thread.steps
    cycle.skipped, thread.skipped = thread.skipped, 0
    thread.pending, thread.open = cycle, None
    thread.scaled, thread.functional = [], False
    cycle.wanted = None
    before, cycle.before = cycle.before, None
    if isinstance(before, tuple):
        if reading.parity():
            process.backend.synchronise()
            cycle.returned = reading.value(cycle.returned)
        parameters, copies = before
        reading.compare(cycle, copies, process.backend.read(parameters))
        if reading.parity():
            for call in process.after_step:
                with guard.reporting("after step"):
                    call(cycle.n)
    elif callable(before):
        cycle.changed = before()


# --- description -----------------------------------------------------------------------------


def _describe(known, optimizer, pairs):
    """Write what the model and the optimizer are: at its first step, and when that has changed."""
    roots = reading.modules(known.roots)
    elements = sum(p.numel() for _, p in pairs)
    orphaned = _orphaned(optimizer, roots)
    known.ids = {id(p) for _, p in pairs}
    known.cover = {}
    again = known.stale or elements != known.trained or orphaned != known.orphaned
    known.stale, known.trained, known.orphaned = False, elements, orphaned
    if not again:
        return
    fields = {"devices": {}}
    with guard.reporting("model"):
        fields = model.describe(roots)
        fields["dropouts"] = dropout.described(sys.modules["torch"], roots)
        if reading.parity():
            process.backend.synchronise()
            single = [p for _, p in model.unique(model.named(roots))][: model.MAX_NAMES]
            fields["norms"] = model.norms(process.backend.read(single))
            fields["dropout"] = "off"
        process.write("model", optimizer_id=known.index, **fields)
    with guard.reporting("optimizer"):
        process.write(
            "optimizer",
            optimizer_id=known.index,
            orphaned=orphaned,
            state_tensors=None if known.steps else model.state_tensors(optimizer),
            **model.describe_optimizer(optimizer),
        )
    with guard.reporting("devices"):
        if any(device.startswith(("xla", "tpu")) for device in fields["devices"]):
            described = process.backend.describe(True)
            if described is not None:
                process.write(described[0], **described[1])


def _orphaned(optimizer, roots):
    """How many of its tensors belong to no trained module, None where no module was seen.

    A module may be called part by part (Lightning does so): those parts' owner, if one lives,
    counts too. An optimizer made before the model was moved keeps the old tensors.
    """
    if not roots:
        return None
    mine = reading.held(optimizer)
    owned = {id(p) for _, p in model.named(roots)}
    missing = [p for p in mine if id(p) not in owned]
    if not missing:
        return 0
    with guard.reporting("owners"):
        for owner in model.owners(sys.modules["torch"], roots):
            owned.update(id(p) for _, p in model.named([owner]))
    return sum(id(p) not in owned for p in mine)
