"""The events around a step: backward passes, zero_grad, schedules, reductions, syncs.

A step's record is closed at the next backward (or at the end), because what belongs to it comes
both before the optimizer (backward, clip, reduce) and after it (sync, schedule, zero_grad), and
because values on a lazy device can be read only once the program has synchronised.
"""

from . import reading, scaling
from .closing import close, close_all, flush
from .cycle import Loss, note, open_cycle
from .threads import current
from .threads import reset_after_fork as _reset_threads

__all__ = ["close_all", "reset_after_fork"]

NO_NUMBER = "backward was called on a tensor that is not one real number"


def on_zero_grad(args, kwargs):
    """``optimizer.zero_grad()`` or ``module.zero_grad()``."""
    thread = current()
    note(thread, "Z")
    if thread.open is not None and args:
        thread.open.zeroed.append((id(args[0]), len(thread.open.losses)))


def on_schedule(args, kwargs):
    """``scheduler.step()``."""
    note(current(), "L")


def on_reduce(args, kwargs, result):
    """A reduction between backward and step: of gradients. Others (of metrics) are not noted."""
    thread = current()
    if thread.pending is None and thread.open is not None and "B" in thread.open.events:
        if thread.open.events[-1] != "R" or thread.open.grads is not None:
            note(thread, "R")
        if not thread.open.clips:
            thread.open.grads = None  # they are other ones now; read again at the clip or the step


def after_sync(args, kwargs, result):
    """``torch_xla.sync()``, ``xm.mark_step()``, the end of ``torch_xla.step()``."""
    thread = current()
    if thread.frozen:
        return
    note(thread, "M")
    cycle = thread.pending
    if cycle is not None and not cycle.synced:
        cycle.synced = True
        if not reading.parity():
            reading.after_sync(thread, cycle)
    flush(thread)


def on_backward(args, kwargs):
    """The start of a backward pass: the step before it is complete."""
    thread = current()
    close(thread)
    if thread.open is not None and thread.open.abandoned:
        thread.open = None
    thread.backwards += 1
    if thread.blind:  # evaluations before the training, as it turns out now
        for key, count in thread.blind.items():
            thread.modules[key].eval += count
            thread.eval_now += count
            thread.eval_train += count
        thread.blind = {}
    cycle = open_cycle(thread)
    cycle.note("B")
    given = args[0] if args else kwargs.get("tensors")
    cycle.losses.append(_loss(thread, cycle, given))


def _loss(thread, cycle, given):
    if not thread.scaled and not isinstance(given, (list, tuple)):
        item = reading.hold(given)
        return Loss(item, None, NO_NUMBER if item is None else None)
    several = given if isinstance(given, (list, tuple)) else (given,)
    total, scaled = 0.0, None
    for tensor in several:
        tensor, how = scaling.behind(thread, tensor)
        scaled = how or scaled
        item = reading.hold(tensor)
        if item is None:
            return Loss(None, scaled, NO_NUMBER)
        if len(several) == 1:
            total = item
        elif isinstance(item, float):
            total += item
        else:
            return Loss(None, scaled, "backward was called on several tensors of a device")
    cycle.scaled = scaled or cycle.scaled
    return Loss(total, scaled)


def after_backward(args, kwargs, result):
    """Of parity mode alone: the gradients as the backward pass left them."""
    thread = current()
    if thread.open is not None:
        scaling.read_gradients(thread, thread.open)


def before_grad(args, kwargs):
    """``torch.autograd.grad``: remember the loss, should a step follow without a backward."""
    if kwargs.get("create_graph") or (len(args) > 4 and args[4]):
        return  # a penalty on gradients, not a training pass
    outputs = args[0] if args else kwargs.get("outputs")
    inputs = args[1] if len(args) > 1 else kwargs.get("inputs")
    if isinstance(outputs, (list, tuple)):
        outputs = outputs[0] if len(outputs) == 1 else None
    inputs = [inputs] if not isinstance(inputs, (list, tuple)) else inputs[:1]
    thread = current()
    thread.grad_call = (reading.hold(outputs), {id(tensor) for tensor in inputs})


def before_functional(args, kwargs):
    """``torch.func.functional_call``: the module runs with tensors that are not its own."""
    current().functional = True


def reset_after_fork():
    """A forked child has made no step yet."""
    _reset_threads()
    reading.made.clear()
