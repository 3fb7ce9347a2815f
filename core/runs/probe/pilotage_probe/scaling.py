"""GradScaler: the loss behind the scaled one, gradients that are scaled, steps that are skipped."""

import weakref

from . import reading
from .threads import current


def enabled(scaler):
    """Whether a scaler scales at all; a disabled one passes everything through."""
    ask = getattr(scaler, "is_enabled", None)
    return bool(ask()) if ask is not None else True


def after_scale(args, kwargs, result):
    """``GradScaler.scale(loss)``: remember the loss behind the scaled one."""
    outputs = args[1] if len(args) > 1 else kwargs.get("outputs")
    if result is outputs:
        return
    thread = current()
    thread.scaler = weakref.ref(args[0])
    pairs = [(result, outputs)]
    if isinstance(result, (list, tuple)) and isinstance(outputs, (list, tuple)):
        pairs = list(zip(result, outputs))
    thread.scaled = (thread.scaled + pairs)[-8:]


def behind(thread, tensor):
    """(loss, how): the loss before it was scaled and ``unscaled``; ``scaled`` where unknown."""
    if not thread.scaled:
        return tensor, None
    for index, (scaled, loss) in enumerate(thread.scaled):
        if scaled is tensor:
            del thread.scaled[index]
            return loss, "unscaled"
    return tensor, "scaled"


def factor(thread, cycle):
    """By what the gradients are scaled now; None where it can't be known (parity mode only)."""
    if cycle.scaled is None or cycle.unscaled:
        return 1.0
    scaler = thread.scaler and thread.scaler()
    return float(scaler.get_scale()) if scaler is not None else None


def read_gradients(thread, cycle):
    """In parity mode: the norms of the gradients as they are now, without the scale."""
    by = factor(thread, cycle)
    if not by:
        cycle.grads = None
        return
    found = reading.all_gradient_norms(thread)
    cycle.grads = {key: norm / by for key, norm in found.items()} if by != 1.0 else found


def after_unscale(args, kwargs, result):
    """``GradScaler.unscale_(optimizer)``: from here on the gradients are the true ones."""
    thread = current()
    if thread.open is None or not enabled(args[0]):
        return
    thread.open.unscaled = True
    if reading.parity() and not thread.open.clips:
        read_gradients(thread, thread.open)


def before_scaler_step(args, kwargs):
    """``GradScaler.step(optimizer)`` begins."""
    thread = current()
    thread.scaler_at = (thread.steps, thread.skipped_all)


def after_scaler_step(args, kwargs, result):
    """It has ended: if the optimizer did not step, the gradients were not finite."""
    thread = current()
    if (thread.steps, thread.skipped_all) == thread.scaler_at and enabled(args[0]):
        skipped(thread)


def skipped(thread):
    """An optimizer step that was skipped is not a step: what led to it belongs to no record."""
    thread.skipped += 1
    thread.skipped_all += 1
    if thread.open is not None:
        thread.open.abandoned = True
