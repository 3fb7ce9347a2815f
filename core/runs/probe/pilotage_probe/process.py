"""What belongs to the whole process: settings, the file of records, hello and finish."""

import atexit
import os
import platform
import sys
import threading
import time

from . import VERSION, guard, streams
from .writer import Writer

mode = "light"
parity_steps = 0
writer = None
backend = None  # a backends.Backend once torch is there
_finished = False
_greeted = False


def begin():
    """Read the settings from the environment and greet; called once, at interpreter start."""
    global mode, parity_steps, writer
    mode = "parity" if os.environ.get("PILOTAGE_PROBE_MODE") == "parity" else "light"
    try:
        parity_steps = max(1, int(os.environ.get("PILOTAGE_PROBE_STEPS", "10")))
    except ValueError:
        parity_steps = 10
    writer = Writer(os.environ["PILOTAGE_PROBE_OUT"])
    guard.report = report_error
    atexit.register(finish, "exit")
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_fork)
    hello()
    with guard.reporting("streams"):
        streams.begin(_argv())


def hello():
    """Say that this process is watched."""
    global _greeted
    _greeted = True
    write("hello", version=VERSION, python=platform.python_version(), argv=_argv(), mode=mode)


def _argv():
    try:  # sys.argv is not complete this early
        with open("/proc/self/cmdline", "rb") as file:
            raw = file.read(65536)
        words = [word.decode("utf-8", "replace") for word in raw.rstrip(b"\0").split(b"\0")]
    except OSError:
        words = [str(word) for word in getattr(sys, "argv", [])]
    return [word[:500] for word in words[:100]]


def rank():
    """The rank torchrun and accelerate gave this process, or None."""
    text = os.environ.get("RANK", "")
    return int(text) if text.isdigit() else None


def write(kind, **fields):
    """Write one record, with the fields that every record has."""
    if not _greeted:  # a forked child that turns out to have something to say
        hello()
    record = {
        "k": kind,
        "pid": os.getpid(),
        "tid": threading.get_native_id(),
        "rank": rank(),
        "t": round(time.monotonic(), 6),
        "wall": round(time.time(), 6),
    }
    record.update(fields)
    writer.write(record)


def report_error(where, error):
    """Write down an error of the probe's own."""
    write("probe_error", where=where, error=("%s: %s" % (type(error).__name__, error))[:500])


_rss = (0.0, None)  # (when, MiB)


def rss_mb():
    """Resident memory of this process in MiB, half a second old at most; None without /proc."""
    global _rss
    now = time.monotonic()
    if now - _rss[0] > 0.5:
        _rss = (now, _read_rss())
    return _rss[1]


def _read_rss():
    try:
        with open("/proc/self/statm", "rb") as file:
            pages = int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1048576, 1)


def finish(reason):
    """Write the last step and the totals, once, whoever comes first."""
    global _finished
    if _finished or writer is None:
        return
    _finished = True
    with guard.reporting("finish"):
        totals = {"steps": 0, "eval_samples": 0, "eval_last": 0}
        if backend is not None:
            from . import steps

            totals = steps.close_all()
            totals.update(backend.totals())
        error = getattr(sys, "last_type", None)  # set when the interpreter printed a traceback
        if reason == "exit" and error is not None:
            reason = "exception: %s" % error.__name__
        write(
            "finish",
            reason=reason,
            own_ms=round(guard.own_s * 1000, 3),
            errors=guard.errors,
            dropped=writer.dropped,
            rss_mb=rss_mb(),
            **totals,
        )


def end_now():
    """End the process at once with exit code 0: the parity steps are done.

    No clean-up of the host's runs, so nothing is saved or overwritten after the last step.
    """
    finish("parity steps reached")
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    os._exit(0)


def _after_fork():
    global _greeted, _finished
    _greeted = _finished = False
    guard.reset_after_fork()
    writer.reset()
    steps = sys.modules.get(__package__ + ".steps")
    if steps is not None:
        steps.reset_after_fork()
