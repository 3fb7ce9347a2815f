"""Write the record of a step once everything that belongs to it has happened."""

import time

from . import backends, clips, collectives, data, dropout, guard, process, reading
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
    cycle = thread.pending
    if cycle is None:
        return
    thread.pending = None
    end, counters, rss = cycle.end or clock()
    # Training that goes on after an evaluation has started the clock of the next step already.
    since, base = cycle.began or (thread.since, thread.base)
    dt = None if since is None else end - since
    # What may be another one by the time that the record is written.
    facts = (thread.tid, cycle.known.steps, dt, rss, thread.read_at, counters, base)
    thread.read_at = None
    if not thread.frozen and cycle.began is None:
        thread.since, thread.base = end, counters
    parity = process.mode == "parity"
    slow = dt is not None and dt > reading.SLOW_STEP_S
    read = parity or slow or cycle.n <= 10 or cycle.n % reading.LOSS_EVERY == 0
    if thread.late or (process.reads and not parity and read):
        if read and process.reads and not parity and _comes_before_sync(cycle):
            thread.late.append((cycle, facts))
            if len(thread.late) > MAX_LATE:
                flush(thread)
            return
        flush(thread)
    _write(cycle, facts, read)
    if parity and cycle.n >= process.parity_steps:
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
    for cycle, facts in late:
        with guard.reporting("late record"):
            _write(cycle, facts, True)


class _Unknown:
    """Stands in a finished cycle for a scalar whose number is not known, and will not be."""

    __slots__ = ()


_UNKNOWN, _UNASKED = _Unknown(), _Unknown()


def _write(cycle, facts, read):
    """Take the numbers of what is held now; the rest of the work may wait."""
    counted = cycle.counted()
    if counted is not cycle.losses:
        for loss in cycle.losses:
            if loss not in counted:
                loss.item = None
    for loss in counted:
        if type(loss.item) is not float:
            loss.item = _number(loss.item, read)
    if cycle.returned is not None:
        cycle.returned = _number(cycle.returned, read)
    if cycle.closure is not None:
        cycle.closure = _number(cycle.closure, read)
    for clip in cycle.clips:
        clip.pop("items", None)
        if type(clip["total_norm"]) is not float:
            clip["total_norm"] = _number(clip["total_norm"], read)
    process.write_step(cycle.n, facts[0], _fields, cycle, counted, facts)


def _number(item, read):
    if item is None or type(item) is float:
        return item
    held = isinstance(item, reading.Held)
    found = reading.value(item) if read or not held else None
    if found is None:
        return _UNKNOWN if held else _UNASKED
    return found


def _known(item):
    return item if type(item) is float else None


def _fields(cycle, counted, facts):
    """The fields of a step's record; nothing is asked of torch or of the host any more."""
    _, optimizer_n, dt, rss, read_at, counters, base = facts
    losses = [_known(loss.item) for loss in counted]
    loss, source = _loss(cycle, counted, losses)
    for clip in cycle.clips:
        clip["total_norm"] = _known(clip["total_norm"])
        clip.setdefault("covers", None)
    grad_norm, grad_source = cycle.grads_before, "computed"
    if grad_norm is None:
        grad_norm, grad_source = clips.gradient_norm(cycle, cycle.clips)
    if grad_norm is None and not cycle.clips and cycle.grads_after is not None:
        grad_norm, grad_source = cycle.grads_after, "computed"
    if grad_norm is not None:
        cycle.why.pop("grad_norm", None)
    for clip in cycle.clips:
        del clip["covers"]
    fields = {
        "loss": loss,
        "loss_source": source,
        "losses": losses[:SHOWN] if len(losses) > 1 else None,
        "backwards": sum(loss.scaled != "autograd.grad" for loss in counted),
        "closures": cycle.closures,
        "skipped": cycle.skipped,
        "scaler": any(loss.scaled in ("scaled", "unscaled") for loss in counted) or None,
        "grad_norm": grad_norm,
        "grad_norm_source": grad_source,
        "grad_norm_after": cycle.grads_after,
        "grad_norms": cycle.grad_norms,
        "clips": cycle.clips[:SHOWN],
        "by_hand": cycle.by_hand,
        "signature": cycle.signature(),
        "groups": cycle.groups,
        "param_norm": cycle.param_norm,
        "update_norm": cycle.update_norm,
        "update_norms": cycle.update_norms,
        "norm_elements": cycle.norm_elements,
        "params_changed": cycle.changed,
        "samples": cycle.samples,
        "missing": cycle.why or None,
        "n": cycle.n,
        "optimizer": cycle.optimizer,
        "optimizer_id": cycle.known.index,
        "optimizer_n": optimizer_n,
        "dt": None if dt is None else round(dt, 6),
        "rss_mb": rss,
        "read_at": read_at and "%s:%d in %s" % read_at,
    }
    fields.update(backends.difference(counters, base))
    return fields


def _loss(cycle, counted, losses):
    """(loss of the step, where it is from); the reason for None goes into ``cycle.why``."""
    if cycle.closures > 1 or not counted:
        for item, source in ((cycle.returned, "step"), (cycle.closure, "closure")):
            found = _known(item)
            if found is not None:
                return found, source
            if item is not None:
                if item is _UNASKED:
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
        if any(loss.item is _UNASKED for loss in counted):
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
            thread.eval_train += blind
            for key, count in thread.blind.items():
                thread.modules[key].eval += count
            thread.blind = {}
    entries = [entry for thread in threads for entry in thread.modules.values()]
    trained = {entry.first for entry in entries if entry.calls}
    return {
        "steps": sum(thread.steps for thread in threads),
        "backwards": sum(thread.backwards for thread in threads),
        "skipped": sum(thread.skipped_all for thread in threads),
        "eval_samples": sum(entry.eval for entry in entries),
        # By another module than those that were trained: an average of their weights, a teacher.
        "eval_untrained": sum(e.eval for e in entries if e.first not in trained),
        # The last evaluation alone: a lost last batch shows here.
        "eval_last": sum(thread.eval_now or thread.eval_last for thread in threads),
        "eval_train_mode": sum(thread.eval_train for thread in threads),
        "iterators": data.count,
        "collectives": collectives.counts,
        "functional_dropout": dropout.counted(),
    }
