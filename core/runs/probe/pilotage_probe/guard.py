"""The wall between the probe and its host: errors of the probe stop here, and its time is counted.

A hook that runs while the probe itself is at work (it calls functions that it has wrapped) does
nothing, so that the probe never observes itself.

What stops here is what the probe did wrong. What belongs to the host passes, wherever it strikes:
a KeyboardInterrupt, and whatever a signal handler of the host's raises (a time limit, a
SystemExit on SIGTERM).
"""

import os
import sys
from _thread import _local as _LocalBase
from _thread import allocate_lock
from time import perf_counter


class _Local(_LocalBase):
    busy = False  # whether this thread is inside the probe right now


local = _Local()
_lock = allocate_lock()
own_s = 0.0
errors = 0
MAX_REPORTED = 20
HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep

# Replaced by process.begin(); receives (where, error).
report = None

# Set once torch is there: what torch._dynamo.disable rests on.
set_eval_frame = None

# A file name that torch._dynamo.trace_rules skips (SKIP_DIRS), for what must run as it is.
UNTRACED = "<frozen importlib._bootstrap, or rather the pilotage probe>"


class reporting:
    """Context: count time as the probe's own; swallow, count and report what the probe did wrong."""

    __slots__ = ("nested", "since", "where")

    def __init__(self, where):
        self.where = where

    def __enter__(self):
        self.nested = local.busy
        self.since = perf_counter()
        local.busy = True
        return self

    def __exit__(self, kind, error, traceback):
        global own_s
        try:
            return error is not None and _stop(self.where, error)
        except (MemoryError, RecursionError):  # no room to ask
            return isinstance(error, Exception)
        finally:
            local.busy = self.nested
            if not self.nested:
                with _lock:
                    own_s += perf_counter() - self.since


def hook(where):
    """Make a function safe to call from host code: None on an error, nothing when busy.

    What ``reporting`` does is written out here, in the one frame that is put between the host and
    the function: in a training loop each frame costs several times what it costs in a loop that
    does nothing else. torch.compile leaves this frame alone, and does not look inside: where its
    tracing stopped in a function around ours, it goes on in each function called from there, ours
    included, and would compile the probe and say so on stderr.
    """

    def decorate(function):
        def guarded(*args, **kwargs):
            global own_s
            if local.busy:
                return None
            since = callback = apart = None
            try:
                local.busy = True
                since = perf_counter()
                apart = set_eval_frame
                if apart is not None:
                    callback = apart(None)
                return function(*args, **kwargs)
            except BaseException as error:
                try:
                    ours = _stop(where, error)
                except (MemoryError, RecursionError):  # the host's stack is full: no room to ask
                    ours = isinstance(error, Exception)
                if not ours and not isinstance(error, (MemoryError, RecursionError)):
                    unframe(error)  # the host's own; it has not come from this frame
                    raise
            finally:
                if apart is not None:
                    apart(callback)
                local.busy = False
                if since is not None:
                    with _lock:
                        own_s += perf_counter() - since
            return None

        guarded.__code__ = guarded.__code__.replace(co_filename=UNTRACED)
        return guarded

    return decorate


def _stop(where, error):
    """Count and report an error if it is ours; whether it is. Never raises."""
    try:
        if not _is_ours(error, error.__traceback__):
            return False
        count(where, error)
        return True
    except (MemoryError, RecursionError):  # no room to judge it, or to write it down
        return isinstance(error, Exception)


def count(where, error):
    """Count an error of the probe's own, and report the first ones."""
    global errors
    with _lock:
        errors += 1
        number = errors
    if number <= MAX_REPORTED and report is not None:
        try:
            report(where, error)
        except Exception:  # nowhere left to say it; the count in `finish` still does
            pass


# --- whose error is it? ------------------------------------------------------------------------


def _is_ours(error, traceback):
    """Whether the probe is to blame, given that the error came up while it was at work.

    Any Exception is, unless a signal handler raised it. Of the others (KeyboardInterrupt,
    SystemExit) only one that a ``raise`` statement of ours made: an interrupt has none.
    """
    if isinstance(error, Exception):
        return not _from_signal_handler(traceback)
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    code = traceback.tb_frame.f_code
    if not code.co_filename.startswith(HERE):
        return False
    from opcode import opmap

    return code.co_code[traceback.tb_lasti] == opmap["RAISE_VARARGS"]


def _from_signal_handler(traceback):
    """A handler is known by what Python hands to it: the frame that it interrupted."""
    above = None
    while traceback is not None:
        frame = traceback.tb_frame
        if above is not None:
            code = frame.f_code
            count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4)  # *args
            for name in code.co_varnames[:count]:
                value = frame.f_locals.get(name)
                if value is above or (type(value) is tuple and any(v is above for v in value)):
                    return True
        above, traceback = frame, traceback.tb_next
    return False


def unframe(error):
    """Take the caller's frame out of the traceback of the error that it is handling.

    To be followed by a bare ``raise``: the host then reads the traceback it would have read
    without us. Never raises.
    """
    try:
        rest = error.__traceback__.tb_next
        error.__traceback__ = rest
        if sys.version_info < (3, 11):
            _set_handled(error, rest)
    except Exception:  # then one line of the traceback shows the probe
        pass


def _set_handled(error, traceback):
    # Up to 3.10 the interpreter keeps the traceback of the handled error apart from the error,
    # and only this documented call of the C API reaches it. It takes over three references.
    import ctypes

    api, given = ctypes.PyDLL(None), ctypes.py_object
    items = [given(type(error)), given(error), given(traceback)]
    for item in items:
        api.Py_IncRef(item)
    api.PyErr_SetExcInfo(*items)


def reset_after_fork():
    """Start counting anew in a forked child, with a lock that no vanished thread holds."""
    global own_s, errors, _lock
    _lock = allocate_lock()
    own_s, errors = 0.0, 0
