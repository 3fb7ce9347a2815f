"""The wall between the probe and its host: errors of the probe stop here, and its time is counted.

A hook that runs while the probe itself is at work (it calls functions that it has wrapped) does
nothing, so that the probe never observes itself.
"""

import functools
import threading
import time


class _Local(threading.local):
    busy = False


_local = _Local()
_lock = threading.Lock()
own_s = 0.0
errors = 0
MAX_REPORTED = 20

# Replaced by process.begin(); receives (where, error).
report = None


def busy():
    """Whether this thread is inside the probe right now."""
    return _local.busy


class reporting:
    """Context: count time as the probe's own; swallow, count and report any Exception.

    KeyboardInterrupt and SystemExit pass: they belong to the host, wherever they strike.
    """

    def __init__(self, where):
        self.where = where

    def __enter__(self):
        self.nested = _local.busy
        _local.busy = True
        self.since = time.perf_counter()
        return self

    def __exit__(self, kind, error, traceback):
        global own_s, errors
        _local.busy = self.nested
        with _lock:
            if not self.nested:
                own_s += time.perf_counter() - self.since
            if error is None or not isinstance(error, Exception):
                return False
            errors += 1
            count = errors
        if count <= MAX_REPORTED and report is not None:
            try:
                report(self.where, error)
            except Exception:  # nowhere left to say it; the count in `finish` still does
                pass
        return True


def hook(where):
    """Make a function safe to call from host code: None on an error, nothing when busy."""

    def decorate(function):
        @functools.wraps(function)
        def guarded(*args, **kwargs):
            if _local.busy:
                return None
            with reporting(where):
                return function(*args, **kwargs)
            return None

        return guarded

    return decorate


def reset_after_fork():
    """Start counting anew in a forked child, with a lock that no vanished thread holds."""
    global own_s, errors, _lock
    _lock = threading.Lock()
    own_s, errors = 0.0, 0
