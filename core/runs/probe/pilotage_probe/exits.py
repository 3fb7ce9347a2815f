"""Ends that ``atexit`` does not see: ``os._exit`` and ``os.exec*``.

Both are wrapped once torch is there: before that there is nothing to lose. What is on a device is
left there: a program may end this way because the device hangs.
"""

import os

from . import guard, process


def install():
    """Write the last step and ``finish`` before the process ends or becomes another program."""
    _before(os, "_exit", lambda args, kwargs: "os._exit(%s)" % _code(args, kwargs), final=True)
    # os.execl, os.execvp and the others of the family end in one of these two.
    _before(os, "execv", lambda args, kwargs: "exec", final=False)
    _before(os, "execve", lambda args, kwargs: "exec", final=False)


def _code(args, kwargs):
    code = args[0] if args else kwargs.get("status")
    return code if isinstance(code, int) else "?"


def _before(owner, name, reason, final):
    original = getattr(owner, name)

    @guard.hook("end")
    def say(args, kwargs):
        if process.backend is not None:
            process.backend.frozen = True
        try:
            process.finish(reason(args, kwargs), final)
        finally:
            if process.backend is not None:
                process.backend.frozen = False

    def wrapper(*args, **kwargs):
        try:
            say(args, kwargs)
            return original(*args, **kwargs)
        except BaseException as error:
            guard.unframe(error)
            raise

    wrapper.__name__, wrapper.__qualname__ = name, name
    wrapper.__doc__, wrapper.__module__ = original.__doc__, original.__module__
    setattr(owner, name, wrapper)
