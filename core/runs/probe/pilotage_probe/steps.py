"""One record per optimizer step, from the events that the hooks report.

A step's record is closed at the next backward (or at the end), because what belongs to it comes
both before the optimizer (backward, clip, reduce) and after it (sync, schedule, zero_grad), and
because values on a lazy device can be read only once the program has synchronised.
"""

import time

from . import backends, guard, model, process
from .cycle import is_sparse, note, open_cycle
from .threads import current, everyone
from .threads import reset_after_fork as _reset_threads

LOSS_EVERY = 10  # on a lazy device a read costs up to 20 % of a 5 ms step
SLOW_STEP_S = 0.05  # above this a read each step is lost in the noise


def _parity():
    return process.mode == "parity"


# --- small events ----------------------------------------------------------------------------


def on_zero_grad(args, kwargs):
    """``optimizer.zero_grad()`` or ``module.zero_grad()``."""
    note(current(), "Z")


def on_schedule(args, kwargs):
    """``scheduler.step()``."""
    note(current(), "L")


def on_reduce(args, kwargs, result):
    """A reduction between backward and step: of gradients. Others (of metrics) are not noted."""
    thread = current()
    if thread.pending is None and thread.open is not None and "B" in thread.open.events:
        note(thread, "R")
        if _parity():
            thread.open.grads = _gradient_norm(thread)


def after_sync(args, kwargs, result):
    """``torch_xla.sync()``, ``xm.mark_step()``, the end of ``torch_xla.step()``."""
    thread = current()
    if thread.frozen:
        return
    note(thread, "M")
    cycle = thread.pending
    if cycle is not None and not cycle.synced:
        cycle.synced = True
        if not _parity():
            _read_after_sync(thread, cycle)


# --- forward ---------------------------------------------------------------------------------


def on_forward(module, args, kwargs):
    """A module was called from outside any other module."""
    import torch

    thread = current()
    entry = thread.seen(module)
    if not entry.elements:
        return
    samples = _leading(torch, args) or _leading(torch, tuple(kwargs.values())) or 0
    if module.training and torch.is_grad_enabled():
        if thread.eval_now:
            thread.eval_last, thread.eval_now = thread.eval_now, 0
        if not entry.calls:
            _first_forward(thread, module)
        entry.calls += 1
        entry.train += samples
        thread.samples[id(module)] = thread.samples.get(id(module), 0) + samples
        if thread.frozen:
            thread.frozen = False
            _start_clock(thread)
        elif thread.since is None:
            _start_clock(thread)
        return
    entry.eval += samples
    thread.eval_now += samples
    if entry.calls and thread.pending is not None and not thread.frozen:
        thread.frozen = True
        thread.pending.end = _clock()


def _first_forward(thread, module):
    if _parity():
        for child in module.modules():  # the kernels of recurrent layers drop out by themselves
            if isinstance(getattr(child, "dropout", None), float) and hasattr(child, "all_weights"):
                child.dropout = 0.0
    elif is_sparse(thread.steps + 1):
        if thread.snapshot is None or thread.snapshot[0] != thread.steps:
            parameters = [p for _, p in model.watched(model.named([module]), False)]
            if _lazy(parameters):
                thread.snapshot = _snapshot(thread.steps, parameters)


def before_apply(args, kwargs):
    """``Module._apply``, on which ``.to()``, ``.cuda()`` and ``.half()`` rest, is about to run."""
    current().placed = model.placed(args[0])


def after_apply(args, kwargs, result):
    """Say so if the move put other Parameters in place, or untied any."""
    thread = current()
    before, thread.placed = thread.placed, None
    fields = before and model.moved(args[0], before)
    if fields:
        process.write("moved", **fields)


def _leading(torch, values, depth=0):
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.dim():
                return int(value.shape[0])
        elif depth < 2 and isinstance(value, (list, tuple)):
            found = _leading(torch, value, depth + 1)
            if found:
                return found
        elif depth < 2 and isinstance(value, dict):
            found = _leading(torch, tuple(value.values()), depth + 1)
            if found:
                return found
    return None


# --- backward and clip -----------------------------------------------------------------------


def after_scale(args, kwargs, result):
    """``GradScaler.scale(loss)``: remember the loss behind the scaled one."""
    outputs = args[1] if len(args) > 1 else kwargs.get("outputs")
    if result is not outputs:
        current().scaled = (result, outputs)


def on_backward(args, kwargs):
    """The start of a backward pass: the step before it is complete."""
    thread = current()
    close(thread)
    if not thread.samples:  # no module was seen (a compiled function may hide it): not the last one
        thread.last = set()
    cycle = open_cycle(thread)
    cycle.note("B")
    loss = args[0] if args else kwargs.get("tensors")
    if isinstance(loss, (list, tuple)):
        loss = loss[0] if len(loss) == 1 else None
    if thread.scaled is not None:
        scaled, behind = thread.scaled
        cycle.scaled = "unscaled" if loss is scaled else "scaled"
        loss = behind if loss is scaled else loss
    if loss is None or loss.numel() != 1 or loss.is_complex():
        cycle.losses.append(None)
        return
    # A lazy loss is held at every step, read or not: what is held is an output of the compiled
    # graph, and a graph that differs between steps would be compiled again.
    cycle.losses.append(loss if loss.device.type == "xla" else _early(loss))


def _early(tensor):
    tensor = tensor.detach()
    return float(tensor) if tensor.device.type == "cpu" else tensor


def after_backward(args, kwargs, result):
    """In parity mode, the gradients as the backward pass left them."""
    thread = current()
    if _parity() and thread.open is not None and thread.scaled is None:
        thread.open.grads = _gradient_norm(thread)


def before_clip(args, kwargs):
    """In parity mode, the gradients as they are before the first clip."""
    thread = current()
    if _parity() and thread.open is not None and not thread.open.clips:
        thread.open.grads = _gradient_norm(thread)


def after_clip(args, kwargs, result):
    """``clip_grad_norm_`` or ``clip_grad_value_`` has run."""
    thread = current()
    limit = args[1] if len(args) > 1 else kwargs.get("max_norm", kwargs.get("clip_value"))
    limit = model.number(limit)
    if result is None:
        name, kind, token = "clip_grad_value_", None, "CV"
    else:
        name, token = "clip_grad_norm_", "C"
        kind = float(args[2] if len(args) > 2 else kwargs.get("norm_type", 2.0))
        if result.device.type != "xla":
            result = _early(result)
    cycle = thread.pending or open_cycle(thread)
    cycle.clips.append({"fn": name, "max_norm": limit, "norm_type": kind, "total_norm": result})
    of = "" if kind in (None, 2.0) else ",%g" % kind
    size = "%.6g" % limit if isinstance(limit, (int, float)) else "?"
    note(thread, "%s(%s%s)" % (token, size, of))


# --- optimizer -------------------------------------------------------------------------------


def before_step(optimizer):
    """An optimizer is about to step; of nested optimizers only the outermost counts."""
    thread = current()
    if id(optimizer) in thread.stack:  # it raised last time
        del thread.stack[thread.stack.index(id(optimizer)) :]
    thread.stack.append(id(optimizer))
    if len(thread.stack) > 1:
        return
    if thread.pending is not None:  # two optimizers after one backward
        close(thread)
    cycle = open_cycle(thread)
    roots = thread.trained()
    if optimizer not in thread.optimizers:
        thread.optimizers.add(optimizer)
        _describe(optimizer, roots)
    cycle.groups = model.rates(optimizer)
    cycle.optimizer = type(optimizer).__name__
    cycle.samples = thread.take_samples(roots)
    if not (_parity() or is_sparse(thread.steps + 1)):
        return
    parameters = _watched(thread, optimizer, roots)
    if _parity():
        with_grad = [p.grad for p in parameters if p.grad is not None]
        process.backend.synchronise()
        copies = process.backend.read(with_grad)
        cycle.grads_after = model.norm(copies)
        each = iter(model.norms(copies))
        cycle.grad_norms = [None if p.grad is None else next(each) for p in parameters]
        cycle.before = (parameters, process.backend.read(parameters))
        cycle.losses = [_value(loss) for loss in cycle.losses]
        for clip in cycle.clips:
            clip["total_norm"] = _value(clip["total_norm"])
    elif not _lazy(parameters):
        cycle.before = (parameters, process.backend.read(parameters))
        grads = [p.grad for p in parameters if p.grad is not None]
        cycle.grads_after = model.norm(process.backend.read(grads))


def after_step(optimizer):
    """An optimizer has stepped."""
    thread = current()
    if id(optimizer) in thread.stack:
        del thread.stack[thread.stack.index(id(optimizer)) :]
    if thread.stack:
        return
    cycle = open_cycle(thread)
    cycle.note("S")
    thread.steps += 1
    cycle.n = thread.steps
    thread.pending, thread.open, thread.scaled = cycle, None, None
    if cycle.before is not None:
        parameters, before = cycle.before
        cycle.before = None
        process.backend.synchronise() if _parity() else None
        _compare(cycle, before, process.backend.read(parameters))


def _describe(optimizer, roots):
    with guard.reporting("model"):
        fields = model.describe(roots)
        if _parity():
            process.backend.synchronise()
            single = [p for _, p in model.unique(model.named(roots))][: model.MAX_NAMES]
            fields["norms"] = model.norms(process.backend.read(single))
            fields["dropout"] = "off"
        process.write("model", **fields)
    with guard.reporting("optimizer"):
        process.write("optimizer", **model.describe_optimizer(optimizer, roots))
    with guard.reporting("devices"):
        if any(device.startswith("xla") for device in fields["devices"]):
            describe = getattr(process.backend, "describe", None)
            if describe is not None:
                process.write("xla", **describe(True))


def _watched(thread, optimizer, roots):
    """Trained parameters of the model; those of the optimizer where no module was seen."""
    pairs = model.named(roots)
    if not pairs:
        pairs = [("", p) for group in optimizer.param_groups for p in group["params"]]
    return [p for _, p in model.watched(pairs, _parity())]


def _lazy(parameters):
    return any(p.device.type == "xla" for p in parameters)


def _gradient_norm(thread):
    grads = [p.grad for _, p in model.watched(model.named(thread.trained()), True)]
    grads = [grad for grad in grads if grad is not None]
    process.backend.synchronise()
    return model.norm(process.backend.read(grads))


def _compare(cycle, before, after):
    """Norms of the parameters after the step and of what the step changed."""
    updates = [new.double() - old.double() for new, old in zip(after, before)]
    cycle.param_norm = model.norm(after)
    cycle.update_norm = model.norm(updates)
    cycle.norm_elements = sum(tensor.numel() for tensor in after)
    cycle.changed = None if cycle.update_norm is None else cycle.update_norm != 0
    if _parity():
        cycle.update_norms = model.norms(updates)


# --- reading without forcing -----------------------------------------------------------------


def _snapshot(step, parameters):
    if not all(process.backend.readable(p) for p in parameters):
        return None
    return step, [id(p) for p in parameters], process.backend.read(parameters)


def _read_after_sync(thread, cycle):
    """Right after the program's own sync its parameters are real: copy them, sparsely."""
    if not (is_sparse(cycle.n) or is_sparse(cycle.n + 1)):
        return
    roots = thread.trained()
    parameters = [p for _, p in model.watched(model.named(roots), False)]
    if not _lazy(parameters):
        return
    before, thread.snapshot = thread.snapshot, _snapshot(cycle.n, parameters)
    if before is None or thread.snapshot is None or not is_sparse(cycle.n):
        return
    step, identities, old = before
    if step == cycle.n - 1 and identities == thread.snapshot[1]:
        _compare(cycle, old, thread.snapshot[2])


def _value(item):
    """A held tensor as a float, or None if reading it would compute something."""
    if item is None or isinstance(item, float):
        return item
    if not process.backend.readable(item):
        return None
    return float(process.backend.read([item.detach() if item.device.type != "xla" else item])[0])


# --- closing ---------------------------------------------------------------------------------


def _clock():
    return time.monotonic(), process.backend.counters(), process.rss_mb()


def _start_clock(thread):
    thread.since, thread.base, _ = _clock()


def close(thread):
    """Write the record of the step that is pending, if any; in parity mode perhaps the last."""
    cycle, thread.pending = thread.pending, None
    if cycle is None:
        return
    end, counters, rss = cycle.end or _clock()
    dt = None if thread.since is None else end - thread.since
    delta = backends.difference(counters, thread.base)
    read = _parity() or cycle.n <= 10 or cycle.n % LOSS_EVERY == 0 or (dt or 0) > SLOW_STEP_S
    losses = [_value(loss) if read or isinstance(loss, float) else None for loss in cycle.losses]
    for clip in cycle.clips:
        total = clip["total_norm"]
        clip["total_norm"] = _value(total) if read or isinstance(total, float) else None
    loss = sum(losses) if losses and None not in losses else None
    source = None
    if loss is not None:
        source = "backward" if cycle.scaled is None else "backward, " + cycle.scaled
    grad_norm, grad_source = cycle.grads, "computed" if cycle.grads is not None else None
    if grad_norm is None:
        for clip in cycle.clips:
            if clip["norm_type"] == 2.0 and clip["total_norm"] is not None:
                grad_norm, grad_source = clip["total_norm"], "clip"
                break
    if grad_norm is None and not cycle.clips and cycle.grads_after is not None:
        grad_norm, grad_source = cycle.grads_after, "computed"
    process.write(
        "step",
        tid=thread.tid,
        n=cycle.n,
        optimizer=cycle.optimizer,
        loss=loss,
        loss_source=source,
        backwards=len(cycle.losses),
        grad_norm=grad_norm,
        grad_norm_source=grad_source,
        grad_norm_after=cycle.grads_after,
        grad_norms=cycle.grad_norms,
        clips=cycle.clips[:20],
        signature=cycle.signature(),
        groups=cycle.groups,
        param_norm=cycle.param_norm,
        update_norm=cycle.update_norm,
        update_norms=cycle.update_norms,
        norm_elements=cycle.norm_elements,
        params_changed=cycle.changed,
        dt=None if dt is None else round(dt, 6),
        samples=cycle.samples,
        rss_mb=rss,
        **delta,
    )
    if not thread.frozen:
        thread.since, thread.base = end, counters
    if _parity() and cycle.n >= process.parity_steps:
        process.end_now()


def close_all():
    """Close what is pending in every thread; returns the totals for ``finish``."""
    threads = everyone()
    process.mode, mode = "light", process.mode  # the process is ending already
    try:
        for thread in threads:
            with guard.reporting("last step"):
                close(thread)
    finally:
        process.mode = mode
    return {
        "steps": sum(thread.steps for thread in threads),
        "eval_samples": sum(s.eval for thread in threads for s in thread.modules.values()),
        # The last evaluation alone: a lost last batch shows here.
        "eval_last": sum(thread.eval_now or thread.eval_last for thread in threads),
    }


def reset_after_fork():
    """A forked child has made no step yet."""
    _reset_threads()
