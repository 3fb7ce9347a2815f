"""Put a wrapper around a function of the host's that is not noticed from outside.

Each wrapper calls the original exactly once, with the arguments it was given, and lets the
original's exceptions through. Where torch.compile is tracing, the wrappers are transparent.
Signature, name and doc string stay the original's (``functools.wraps``).
"""

import functools
import types

from . import guard
from .guard import hook
from .threads import local

MARK = "_pilotage_probe"

# ``warnings.warn(stacklevel=...)`` passes over frames whose file name holds both of these words
# (CPython's warnings._is_internal_frame), so a warning still points at the host's own line.
FILE = "<pilotage probe, passed over like importlib._bootstrap>"


def _never():
    return False


_wrappers = {}  # (original, kind) -> wrapper
compiling = _never
tracing = _never  # anything but None, False or 0 while torch.jit.trace is at work in this thread


def find_compiling(torch):
    """Remember how this torch says that it is tracing, and how to keep torch.compile off us."""
    global compiling, tracing
    tracing = getattr(torch._C, "_get_tracing_state", _never)
    compiling = getattr(getattr(torch, "compiler", None), "is_compiling", _never)
    frames = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    guard.set_eval_frame = getattr(frames, "set_eval_frame", None)


def unseen(function):
    """Decorator: warnings pass over this function's frame when they look for their caller."""
    function.__code__ = function.__code__.replace(co_filename=FILE)
    return function


def untraced(function):
    """Decorator: ``unseen``, and torch.compile leaves this function's frame alone."""
    function.__code__ = function.__code__.replace(co_filename=guard.UNTRACED)
    return function


def marked(function):
    """Whether a function is a wrapper of ours already."""
    return MARK in getattr(function, "__dict__", ())


def wrap(owner, name, kind, before=None, after=None):
    """Replace ``owner.name``; of nested calls of one ``kind`` only the outermost is observed.

    ``before(args, kwargs)`` may return other ``(args, kwargs)``; ``after(args, kwargs, result)``
    runs only when the original returned. Errors in either are the probe's own and stop there.
    """
    original = getattr(owner, name, None)
    if original is None or marked(original):
        return
    if (original, kind) in _wrappers:  # one function under two names stays one
        setattr(owner, name, _wrappers[original, kind])
        return
    before = before and hook(kind + " before")(before)
    after = after and hook(kind + " after")(after)

    @functools.wraps(original)
    @unseen
    def wrapper(*args, **kwargs):
        if compiling():
            return original(*args, **kwargs)
        try:
            if guard.local.busy or local.nest.get(kind):
                return original(*args, **kwargs)
            local.nest[kind] = True
            try:
                if before is not None:
                    args, kwargs = before(args, kwargs) or (args, kwargs)
                result = original(*args, **kwargs)
                if after is not None:
                    after(args, kwargs, result)
                return result
            finally:
                local.nest[kind] = False
        except BaseException as error:
            guard.unframe(error)
            raise

    setattr(wrapper, MARK, original)
    _wrappers[original, kind] = wrapper
    setattr(owner, name, wrapper)


def is_function(value):
    """Whether a value is a plain function, method or partial, which a wrapper can stand in for."""
    return isinstance(value, (types.FunctionType, types.MethodType, functools.partial))
