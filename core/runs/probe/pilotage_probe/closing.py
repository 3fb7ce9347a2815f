"""Write the record of a step once everything that belongs to it has happened."""

import time

from . import backends, clips, guard, process, reading
from .threads import everyone

MAX_LATE = 4  # records that wait for a sync before they are written without what they wait for
SHOWN = 20  # losses and clips of one step that are written out


def clock():
    """(monotonic seconds, counters of the backend, RSS in MiB) now."""
    return time.monotonic(), process.backend.counters(), process.rss_mb()


def start_clock(thread):
    """The next step is timed from here."""
    thread.since, thread.base, _ = clock()


def close(thread):
    """Write the record of the step that is pending, if any; in parity mode perhaps the last."""
    cycle, thread.pending = thread.pending, None
    if cycle is None:
        return
    end, counters, rss = cycle.end or clock()
    # Training that goes on after an evaluation has started the clock of the next step already.
    since, base = cycle.began or (thread.since, thread.base)
    dt = None if since is None else end - since
    fields = {
        "tid": thread.tid,
        "n": cycle.n,
        "optimizer": cycle.optimizer,
        "optimizer_id": cycle.known.index,
        "optimizer_n": cycle.known.steps,
        "dt": None if dt is None else round(dt, 6),
        "rss_mb": rss,
        "read_at": thread.read_at and "%s:%d in %s" % thread.read_at,
    }
    thread.read_at = None
    fields.update(backends.difference(counters, base))
    if not thread.frozen and cycle.began is None:
        thread.since, thread.base = end, counters
    slow = (dt or 0) > reading.SLOW_STEP_S
    read = reading.parity() or cycle.n <= 10 or cycle.n % reading.LOSS_EVERY == 0 or slow
    waits = read and process.reads and not reading.parity() and _comes_before_sync(cycle)
    if waits:
        thread.late.append((cycle, fields))
        if len(thread.late) > MAX_LATE:
            flush(thread)
    else:
        flush(thread)
        _write(cycle, fields, read)
    if reading.parity() and cycle.n >= process.parity_steps:
        process.end_now()


def _comes_before_sync(cycle):
    """Whether another optimizer steps before the program's sync: then that is waited for.

    Only where there is another: in a program that never synchronises, what we go on holding would
    be one more output of some later graph, and so a compile that the program does not have alone.
    """
    owner = cycle.owner()
    if cycle.synced or owner is None or all(other is owner for other in list(reading.made)):
        return False
    items = [loss.item for loss in cycle.losses] + [cycle.returned, cycle.closure]
    items += [clip["total_norm"] for clip in cycle.clips]
    return any(reading.waits(item) for item in items)


def flush(thread):
    """Write the records that waited for a sync."""
    late, thread.late = thread.late, []
    for cycle, fields in late:
        with guard.reporting("late record"):
            _write(cycle, fields, True)


def _write(cycle, fields, read):
    def value(item):
        return reading.value(item) if read or not isinstance(item, reading.Held) else None

    counted = cycle.counted()
    losses = [value(loss.item) for loss in counted]
    loss, source = _loss(cycle, counted, losses, value)
    found = [dict(clip, total_norm=value(clip["total_norm"])) for clip in cycle.clips]
    for clip in found:
        clip.pop("items", None)
        clip.setdefault("covers", None)
    grad_norm, grad_source = cycle.grads_before, "computed"
    if grad_norm is None:
        grad_norm, grad_source = clips.gradient_norm(cycle, found)
    if grad_norm is None and not cycle.clips and cycle.grads_after is not None:
        grad_norm, grad_source = cycle.grads_after, "computed"
    if grad_norm is not None:
        cycle.why.pop("grad_norm", None)
    for clip in found:
        clip.pop("covers")
    process.write(
        "step",
        loss=loss,
        loss_source=source,
        losses=losses[:SHOWN] if len(losses) > 1 else None,
        backwards=sum(loss.scaled != "autograd.grad" for loss in counted),
        closures=cycle.closures,
        skipped=cycle.skipped,
        scaler=any(loss.scaled in ("scaled", "unscaled") for loss in counted) or None,
        grad_norm=grad_norm,
        grad_norm_source=grad_source,
        grad_norm_after=cycle.grads_after,
        grad_norms=cycle.grad_norms,
        clips=found[:SHOWN],
        by_hand=cycle.by_hand,
        signature=cycle.signature(),
        groups=cycle.groups,
        param_norm=cycle.param_norm,
        update_norm=cycle.update_norm,
        update_norms=cycle.update_norms,
        norm_elements=cycle.norm_elements,
        params_changed=cycle.changed,
        samples=cycle.samples,
        missing=cycle.why or None,
        **fields,
    )


def _loss(cycle, counted, losses, value):
    """(loss of the step, where it is from); the reason for None goes into ``cycle.why``."""
    if cycle.closures > 1 or not counted:
        for item, source in ((cycle.returned, "step"), (cycle.closure, "closure")):
            found = value(item)
            if found is not None:
                return found, source
            if item is not None:
                if isinstance(item, reading.Asked):
                    cycle.why["loss"] = reading.NOT_READ
                return None, None
        if cycle.closures:
            cycle.why["loss"] = "the closure returned no number"
        elif not cycle.losses:
            cycle.why["loss"] = "no backward pass and no closure since the last step"
        else:
            cycle.why["loss"] = "the gradients of each backward pass were cleared"
        return None, None
    for loss in counted:
        if loss.why:
            cycle.why["loss"] = loss.why
            return None, None
    if None in losses:
        if any(isinstance(loss.item, reading.Asked) for loss in counted):
            cycle.why["loss"] = reading.NOT_READ
        return None, None
    how = {loss.scaled for loss in counted if loss.scaled}
    if "autograd.grad" in how:
        return losses[0], "autograd.grad"
    source = "backward"
    if how:
        source += ", scaled" if "scaled" in how else ", unscaled"
    return sum(losses), source


def close_all():
    """Close what is pending in every thread; returns the totals for ``finish``."""
    threads = everyone()
    process.mode, mode = "light", process.mode  # the process is ending already
    try:
        for thread in threads:
            with guard.reporting("last step"):
                close(thread)
                flush(thread)
    finally:
        process.mode = mode
    for thread in threads:
        blind = sum(thread.blind.values())  # no step came: they were evaluations
        if blind:
            thread.eval_now += blind
            for key, count in thread.blind.items():
                thread.modules[key].eval += count
            thread.blind = {}
    return {
        "steps": sum(thread.steps for thread in threads),
        "backwards": sum(thread.backwards for thread in threads),
        "skipped": sum(thread.skipped_all for thread in threads),
        "eval_samples": sum(s.eval for thread in threads for s in thread.modules.values()),
        # The last evaluation alone: a lost last batch shows here.
        "eval_last": sum(thread.eval_now or thread.eval_last for thread in threads),
    }
