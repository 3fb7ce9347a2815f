"""Who called a function that the probe has put a wrapper around."""

import os
import sys

from . import beat, guard, wrapping

MAX_FRAMES = 200
# Code that decides on the user's behalf, as opposed to torch's own modules.
FRAMEWORKS = ("transformers.", "accelerate.", "lightning.", "pytorch_lightning.", "diffusers.")

_WRAPPERS = (guard.UNTRACED, wrapping.FILE)


def direct():
    """(path, line, module name) of the code that called the wrapped function.

    None where that is not known, or is the probe's own.
    """
    frame, left, wrapped = sys._getframe(1), MAX_FRAMES, False
    while frame is not None and left:
        path = frame.f_code.co_filename
        if path == wrapping.FILE:
            wrapped = True
        elif wrapped and path not in _WRAPPERS:
            if path.startswith(guard.HERE):
                return None
            name = dict.get(frame.f_globals, "__name__")
            return path, frame.f_lineno, name if isinstance(name, str) else ""
        frame, left = frame.f_back, left - 1
    return None


def by_user():
    """Whether the user's own code made the call."""
    found = direct()
    return found is not None and beat.is_users(found[0])


def by_user_or_framework():
    """Whether the user's own code made the call, or a framework for training on its behalf."""
    found = direct()
    return found is not None and (beat.is_users(found[0]) or found[2].startswith(FRAMEWORKS))


def line():
    """Such as ``train.py:40``: the innermost line of the user's own code, None where none is."""
    frame, left = sys._getframe(1), MAX_FRAMES
    while frame is not None and left:
        path = frame.f_code.co_filename
        if beat.is_users(path):
            return "%s:%d" % (_short(path), frame.f_lineno or 0)
        frame, left = frame.f_back, left - 1
    return None


def _short(path):
    try:
        found = os.path.relpath(path)
    except (OSError, ValueError):  # the working directory is gone, or on another drive
        found = path
    return path[-200:] if found.startswith("..") else found[-200:]
