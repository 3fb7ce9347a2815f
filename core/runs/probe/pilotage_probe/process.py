"""What belongs to the whole process: settings, the file of records, hello and finish."""

import atexit
import os
import sys
from _thread import get_ident, get_native_id
from os import O_RDONLY, getpid
from os import close as _close
from os import open as _open
from os import read as _read
from time import monotonic, time

from . import VERSION, batch, guard
from .writer import Writer

mode = "light"
parity_steps = 0
reads = False  # whether values on a lazy device may be read by ourselves
writer = None
backend = None  # a backends.Backend once torch is there
argv = []
training = {}  # ident -> of threads that run modules: where a beat looks for what they do
last_write = 0.0  # monotonic time of the last record of any kind
last_step = None  # and of the last one of a step
beating = False  # whether a beat need not be started
_exit = os._exit
_finished = False
_greeted = False
at_end = []  # functions that write records right before ``finish``
after_step = []  # functions of (number of the step), called after each one in parity mode
before_step = []  # functions of (thread, cycle, optimizer), right before each update there
before_clip = []  # functions of (thread, cycle), before the first clip of each step there
_held = []  # records of a helper (a DataLoader worker), which says nothing until it trains
ASK_RANK_EVERY = 20  # records of steps; a program is ranked before its first one
# Kinds that say nothing of their own: alone they are no reason for a helper to speak.
_KEPT = ("torch", "xla", "tpu", "data", "saved", "loaded")  # until it has something to say
_BACKGROUND = ("hello", "rank", "beat", "finish") + _KEPT


def begin():
    """Read the settings from the environment and greet; called once, at interpreter start."""
    global mode, parity_steps, reads, writer, argv
    mode = "parity" if os.environ.get("PILOTAGE_PROBE_MODE") == "parity" else "light"
    reads = mode == "parity" or os.environ.get("PILOTAGE_PROBE_READS") == "sparse"
    try:
        parity_steps = max(1, int(os.environ.get("PILOTAGE_PROBE_STEPS", "10")))
    except ValueError:
        parity_steps = 10
    writer = Writer(os.environ["PILOTAGE_PROBE_OUT"])
    guard.report = report_error
    argv = _argv()
    # What multiprocessing starts: workers, and helpers that never train.
    quiet = any(
        word == "--multiprocessing-fork" or word.startswith("from multiprocessing.")
        for word in argv
    )
    atexit.register(finish, "exit")
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
    if quiet:
        _hold(_record("hello", None, _about()))
    else:
        hello()
    if os.environ.get("PILOTAGE_PROBE_SOCKET"):
        with guard.reporting("streams"):
            from . import streams

            streams.begin(argv)


def hello():
    """Say that this process is watched."""
    global _greeted
    _greeted = True
    for record in _held:
        writer.write(record)
    if not any(record["k"] == "hello" for record in _held):
        write("hello", **_about())
    del _held[:]


def _about():
    return {
        "version": VERSION,
        "python": sys.version.split()[0],
        "argv": argv,
        "mode": mode,
        "ppid": os.getppid(),
    }


def _argv():
    words = getattr(sys, "orig_argv", None)  # sys.argv is not complete this early
    if words is None:
        try:
            words = [
                word.decode("utf-8", "replace")
                for word in _file("/proc/self/cmdline").rstrip(b"\0").split(b"\0")
            ]
        except OSError:
            words = [str(word) for word in getattr(sys, "argv", [])]
    return [word[:500] for word in words[:100]]


def _file(path):
    fd = _open(path, O_RDONLY)
    try:
        return _read(fd, 65536)
    finally:
        _close(fd)


# --- records ---------------------------------------------------------------------------------


def write(kind, **fields):
    """Write one record, with the fields that every record has, after the steps before it."""
    global last_write
    tid = fields.pop("tid", None)
    if not _greeted:  # a forked child, or a helper
        if kind in _BACKGROUND:
            if kind in _KEPT:
                _hold(_record(kind, tid, fields))
            return
        hello()
    record = _record(kind, tid, fields)
    last_write = record["t"]
    batch.flush(writer)
    writer.write(record)


def write_step(n, tid, make, *arguments):
    """Write the record of the thread's ``n``-th step now or soon; see ``batch``.

    ``make(*arguments)`` returns its fields, and is called when it is written.
    """
    global last_write, last_step
    if not _greeted:
        hello()
    rank = _rank("step", tid, get_native_id())
    last_write = last_step = now = monotonic()
    at_once = n <= batch.AT_ONCE or mode == "parity"
    batch.add(writer, at_once, now, _step, tid, rank, now, time(), make, arguments)


def _step(tid, rank, now, wall, make, arguments):
    fields = make(*arguments)
    record = {
        "k": "step",
        "pid": getpid(),
        "tid": tid,
        "rank": rank,
        "t": round(now, 6),
        "wall": round(wall, 6),
    }
    for name, value in fields.items():
        if value is not None:
            record[name] = value
    return record


def _record(kind, tid, fields):
    own = get_native_id()
    tid = own if tid is None else tid
    record = {
        "k": kind,
        "pid": getpid(),
        "tid": tid,
        "rank": _rank(kind, tid, own),
        "t": round(monotonic(), 6),
        "wall": round(time(), 6),
    }
    for name, value in fields.items():
        if value is not None:  # readers take what is missing as None
            record[name] = value
    return record


def _hold(record):
    if len(_held) < 50:
        _held.append(record)


_ranks = {}  # tid -> (records left until it is asked again, rank)


def _rank(kind, tid, own):
    if kind == "step":  # to ask takes a third of the time that a record takes
        left, known = _ranks.get(tid, (0, None))
        if left:
            _ranks[tid] = left - 1, known
            return known
        found = _find_rank(kind, tid, own)
        _ranks[tid] = ASK_RANK_EVERY, found
        return found
    return _find_rank(kind, tid, own)


def _find_rank(kind, tid, own):
    from . import ranks

    try:
        found = ranks.find(tid, tid == own)
        if _greeted and kind not in ("hello", "rank") and ranks.news(tid, found):
            rank, world, source = found
            write("rank", tid=tid, world=world, local_rank=ranks.local(), source=source)
        return found[0]
    except Exception as error:  # then the record is worth more than its rank
        guard.count("rank", error)
        return None


def report_error(where, error):
    """Write down an error of the probe's own."""
    write("probe_error", where=where, error=("%s: %s" % (type(error).__name__, error))[:500])


_rss = (0.0, None)  # (when, MiB)


def rss_mb():
    """Resident memory of this process in MiB, half a second old at most; None without /proc."""
    global _rss
    now = monotonic()
    if now - _rss[0] > 0.5:
        _rss = (now, _read_rss())
    return _rss[1]


def _read_rss():
    try:
        pages = int(_file("/proc/self/statm").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1048576, 1)


# --- training, forks and the end -------------------------------------------------------------


def trains():
    """A thread runs its first module, or its first one since a fork: give beats from now on."""
    global beating
    beating = True
    training[get_ident()] = get_native_id()
    with guard.reporting("beat"):
        from . import beat

        beat.ensure()


def finish(reason, final=True):
    """Write the last step and the totals, once, whoever comes first.

    ``final`` False: the process may go on after all, and then finishes again.
    """
    global _finished
    if _finished or writer is None:
        return
    _finished = final
    with guard.reporting("finish"):
        _stop_beat()
        totals = {"steps": 0, "eval_samples": 0, "eval_last": 0}
        if backend is not None and (_greeted or training):
            from . import data, steps

            data.finish()
            totals = steps.close_all()
            totals.update(backend.totals())
        if not _greeted:
            if not totals["steps"] and (not totals["eval_samples"] or _in_worker()):
                return  # a helper that had nothing to say
            hello()
        for last in at_end:
            with guard.reporting("end"):
                last()
        write(
            "finish",
            reason=_reason(reason),
            own_ms=round(guard.own_s * 1000, 3),
            errors=guard.errors + _missed(),
            dropped=writer.dropped,
            rss_mb=rss_mb(),
            **totals,
        )


def _reason(reason):
    # sys.last_type is set when the interpreter printed a traceback; a prompt sets it and goes on.
    error = getattr(sys, "last_type", None)
    if reason == "exit" and error is not None and not hasattr(sys, "ps1"):
        return "exception: %s" % error.__name__
    return reason


def _missed():
    from . import finder

    missed = finder.missed()
    for name in missed:
        report_error(
            "finder",
            ImportError("%s was imported unseen: sys.meta_path was changed before" % name),
        )
    return len(missed)


def _in_worker():
    from . import beat

    return beat.in_worker()


def _stop_beat():
    global beating
    beat = sys.modules.get(__package__ + ".beat")
    if beat is not None:
        beat.stop()
        beating = False


def end_now():
    """End the process at once with exit code 0: the parity steps are done.

    No clean-up of the host's runs, so nothing is saved or overwritten after the last step.
    Ranks of one run end together.
    """
    with guard.reporting("end together"):
        from . import together

        together.wait()
    finish("parity steps reached")
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    _exit(0)


def _before_fork():
    with guard.reporting("fork"):
        _stop_beat()  # no thread of ours is there to be lost, and Python has none to warn of
        if writer is not None:
            batch.flush(writer)


def _after_fork():
    global _greeted, _finished, beating, last_step
    _greeted = _finished = beating = False
    last_step = None
    del _held[:]
    _ranks.clear()
    training.clear()
    guard.reset_after_fork()
    batch.reset_after_fork()
    writer.reset()
    for name in ("steps", "ranks", "beat", "data", "saving", "collectives", "recording"):
        module = sys.modules.get("%s.%s" % (__package__, name))
        if module is not None:
            module.reset_after_fork()
