"""Gradient clipping: by torch's functions, by torch_xla's, or by a method of a module."""

import sys
import types

from . import guard, model, process, reading, scaling
from .cycle import open_cycle
from .threads import current
from .wrapping import wrap


def install(torch):
    """Wrap torch's functions; again after torch_xla, which replaces ``clip_grad_norm_``."""
    for module in (sys.modules.get("torch.nn.utils.clip_grad"), torch.nn.utils):
        if module is None:
            continue
        wrap(module, "clip_grad_norm_", "C", before_clip, after_norm)
        wrap(module, "clip_grad_value_", "C", before_clip, after_value)
    # The two halves of clip_grad_norm_ under their public names; it calls the private ones.
    wrap(torch.nn.utils, "get_total_norm", "N", None, after_total_norm)
    wrap(torch.nn.utils, "clip_grads_with_norm_", "C", before_clip, after_given)


def watch_methods(module):
    """Wrap ``clip_grad_norm_`` of a module's class (FSDP and its like have one)."""
    with guard.reporting("hook clip method"):
        for cls in type(module).__mro__:
            if isinstance(cls.__dict__.get("clip_grad_norm_"), types.FunctionType):
                wrap(cls, "clip_grad_norm_", "CM", before_method, after_method)
                return


# --- before ----------------------------------------------------------------------------------


def before_clip(args, kwargs):
    """Notes which parameters are clipped; in parity mode, their gradients before the first clip."""
    thread = current()
    _look(thread)
    parameters = args[0] if args else kwargs.get("parameters")
    if isinstance(parameters, types.GeneratorType):
        thread.clipped = items = []
        passed = _recorded(parameters, items)
        if args:
            return (passed,) + tuple(args[1:]), kwargs
        return args, dict(kwargs, parameters=passed)
    if isinstance(parameters, (list, tuple)):
        thread.clipped = list(parameters)
    else:
        thread.clipped = [parameters] if hasattr(parameters, "grad") else None
    return None


def _recorded(parameters, items):
    """The host's own generator, item by item as it is asked for them."""
    try:
        for parameter in parameters:
            items.append(parameter)
            yield parameter
    except BaseException as error:
        guard.unframe(error)
        raise


def before_method(args, kwargs):
    """A module's own clipping, which may use torch's function inside."""
    thread = current()
    _look(thread)
    cycle = thread.pending or open_cycle(thread)
    thread.clips_at = (cycle, len(cycle.clips))


def _look(thread):
    cycle = thread.open
    if reading.parity() and cycle is not None and not cycle.clips:
        for call in process.before_clip:
            with guard.reporting("before clip"):
                call(thread, cycle)
        before = cycle.grads
        scaling.read_gradients(thread, cycle)
        compare_by_hand(cycle, before, cycle.grads)


def compare_by_hand(cycle, before, after):
    """Whether a hand changed the gradients between two readings with no clip between them."""
    if cycle.clips or not before or not after:
        if before and cycle.by_hand is None:
            cycle.by_hand = False
        return
    if reading.changed(before, after):
        cycle.by_hand = True
        cycle.note("H")
    elif cycle.by_hand is None:
        cycle.by_hand = False


# --- after -----------------------------------------------------------------------------------


def after_norm(args, kwargs, result):
    """``clip_grad_norm_`` has run and returned the norm before it."""
    limit = args[1] if len(args) > 1 else kwargs.get("max_norm")
    kind = args[2] if len(args) > 2 else kwargs.get("norm_type", 2.0)
    _add("clip_grad_norm_", "C", limit, float(kind), result, current().clipped)


def after_value(args, kwargs, result):
    """``clip_grad_value_`` has run."""
    limit = args[1] if len(args) > 1 else kwargs.get("clip_value")
    _add("clip_grad_value_", "CV", limit, None, None, current().clipped)


def after_total_norm(args, kwargs, result):
    """``get_total_norm``, the first half of clipping."""
    kind = args[1] if len(args) > 1 else kwargs.get("norm_type", 2.0)
    current().norm = (result, float(kind))


def after_given(args, kwargs, result):
    """``clip_grads_with_norm_``, the second half: the norm was handed in."""
    thread = current()
    limit = args[1] if len(args) > 1 else kwargs.get("max_norm")
    total = args[2] if len(args) > 2 else kwargs.get("total_norm")
    kind = thread.norm[1] if thread.norm is not None and thread.norm[0] is total else None
    thread.norm = None
    _add("clip_grads_with_norm_", "C", limit, kind, total, thread.clipped)


def after_method(args, kwargs, result):
    """A module's own ``clip_grad_norm_(max_norm, norm_type)``, unless torch's was seen inside."""
    thread = current()
    cycle, count = thread.clips_at or (None, 0)
    thread.clips_at = None
    if cycle is None or len(cycle.clips) != count:
        return
    limit = args[1] if len(args) > 1 else kwargs.get("max_norm")
    kind = args[2] if len(args) > 2 else kwargs.get("norm_type", 2.0)
    name = "%s.clip_grad_norm_" % type(args[0]).__name__
    _add(name, "C", limit, float(kind), result, list(args[0].parameters()))


_tokens = {}  # (token, limit, norm type) -> what the signature says, for the limits of a loop


def _add(name, token, limit, kind, total, items):
    thread = current()
    thread.clipped = None
    if type(limit) is not float:
        limit = model.number(limit)
    cycle = thread.pending or open_cycle(thread)
    if len(cycle.clips) < 50:
        cycle.clips.append(
            {
                "fn": name,
                "max_norm": limit,
                "norm_type": kind,
                "total_norm": reading.hold(total),
                "tensors": None if items is None else len(items),
                "scaled": True if cycle.scaled and not cycle.unscaled else None,
                "items": items,
            }
        )
    text = _tokens.get((token, limit, kind)) if type(limit) is float else None
    if text is None:
        of = "" if kind in (None, 2.0) else ",%g" % kind
        size = "%.6g" % limit if isinstance(limit, (int, float)) else "?"
        text = "%s(%s%s)" % (token, size, of)
        if type(limit) is float and len(_tokens) < 100:
            _tokens[token, limit, kind] = text
    cycle.note(text)
    if thread.stack and cycle.wanted is not None:  # the optimizer clips inside its step
        cycle.wanted()


# --- what the clips say of the gradient norm -------------------------------------------------


def cover(cycle, known):
    """Whether each clip, or all together, clipped just what the optimizer trains.

    Sets ``covers`` of each clip, and forgets the parameters themselves.
    """
    rest, whole = [], True
    for clip in cycle.clips:
        items = clip.pop("items", None)
        if "covers" in clip:
            continue
        clip["covers"] = None
        if not items or known.ids is None:
            whole = whole and bool(known.ids is not None)
            continue
        key = (len(items), id(items[0]), id(items[-1]))
        if known.cover.get(key) is True:
            clip["covers"] = True
            continue
        ids = {id(p) for p in items if p.requires_grad}
        clip["covers"] = ids == known.ids
        if clip["covers"]:
            known.cover[key] = True
        elif clip["norm_type"] == 2.0:
            rest.append(ids)
    together = sum(len(ids) for ids in rest)
    if rest and together == len(known.ids) and set().union(*rest) == known.ids:
        cycle.combined = True


def gradient_norm(cycle, clips):
    """(2-norm of the gradients before clipping, source) from what the calls returned."""
    of = [clip for clip in clips if clip["norm_type"] == 2.0 and clip["total_norm"] is not None]
    whole = [clip for clip in of if clip["covers"] is not False]
    if whole and clips and clips[0] is whole[0]:
        return whole[0]["total_norm"], "clip, scaled" if whole[0]["scaled"] else "clip"
    parts = [clip for clip in of if clip["covers"] is False]
    if cycle.combined and parts:
        total = sum(clip["total_norm"] ** 2 for clip in parts) ** 0.5
        return total, "clip, scaled" if parts[0]["scaled"] else "clip"
    if parts:
        cycle.why["grad_norm"] = "only other tensors than the trained ones, or some, were clipped"
    elif clips and clips[0]["norm_type"] != 2.0:
        cycle.why["grad_norm"] = "the clip does not return a 2-norm"
    return None, None
