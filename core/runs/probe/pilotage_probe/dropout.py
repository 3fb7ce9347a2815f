"""Dropout off, for parity runs: two random generators never agree, so nothing may be dropped."""

import functools
import sys
import weakref

from . import wrapping
from .threads import current
from .wrapping import unseen

FUNCTIONS = (
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "alpha_dropout",
    "feature_alpha_dropout",
)


counts = None  # "dropout P" and "attention P" -> calls in the first training forward
_rates = weakref.WeakKeyDictionary()  # recurrent layer -> the rate that it had


def off(torch):
    """Let every functional dropout pass its input through; count those of the first training."""
    global counts
    counts = {}
    functional = torch.nn.functional
    for name in FUNCTIONS:
        if hasattr(functional, name):
            _pass_through(functional, name)
    original = getattr(functional, "scaled_dot_product_attention", None)
    if original is not None:

        @functools.wraps(original)
        @unseen
        def attention(query, key, value, attn_mask=None, dropout_p=0.0, *args, **kwargs):
            if not wrapping.compiling():
                _count("attention", dropout_p, True)
            return original(query, key, value, attn_mask, 0.0, *args, **kwargs)

        functional.scaled_dot_product_attention = attention


def _pass_through(functional, name):
    original = getattr(functional, name)

    @functools.wraps(original)
    @unseen
    def dropout(input, *args, **kwargs):
        if not wrapping.compiling():
            _count(
                "dropout",
                args[0] if args else kwargs.get("p", 0.5),
                args[1] if len(args) > 1 else kwargs.get("training", "alpha" not in name),
            )
        return input

    setattr(functional, name, dropout)


def off_in(module):
    """The kernels of recurrent layers drop out by themselves, whatever the functions do."""
    for child in module.modules():
        if isinstance(getattr(child, "dropout", None), float) and hasattr(child, "all_weights"):
            _rates.setdefault(child, child.dropout)
            child.dropout = 0.0


@wrapping.hook("dropout")
def _count(kind, rate, training):
    """Of the first training forward alone, which ends where a backward pass begins."""
    thread = current()
    if thread.backwards or not training or not rate or not sys.modules["torch"].is_grad_enabled():
        return
    if any(entry.calls for entry in thread.modules.values()):
        key = "%s %g" % (kind, rate)
        counts[key] = counts.get(key, 0) + 1


def counted():
    """Calls by ``KIND P``; None in light mode, and where compiled code has hidden some."""
    compiled = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    if counts is None or (compiled and compiled["frames"]["total"]):
        return None
    return counts


def described(torch, roots):
    """``KIND P`` -> how many modules of these drop out so, by their own settings."""
    found, seen = {}, set()
    for root in roots:
        for module in root.modules():
            if id(module) in seen:
                continue
            seen.add(id(module))
            kind, rate = _setting(torch, module)
            if type(rate) in (int, float) and rate > 0:
                key = "%s %g" % (kind, rate)
                found[key] = found.get(key, 0) + 1
    return found


def _setting(torch, module):
    own = module.__dict__
    if isinstance(module, torch.nn.modules.dropout._DropoutNd):
        return "dropout", own.get("p")
    if hasattr(module, "all_weights"):
        return "recurrent", _rates.get(module, own.get("dropout"))
    if isinstance(module, torch.nn.MultiheadAttention):
        return "attention", own.get("dropout")
    if "drop" in type(module).__name__.lower():  # a class of the program's or of a library's
        return "dropout", own.get("p", own.get("drop_prob"))
    return "", None
