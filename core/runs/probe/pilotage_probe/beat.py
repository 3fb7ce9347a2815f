"""A sign of life while nothing else is written: a long compile, a slow step, a hang.

A thread of the lowest level, which ``threading`` knows nothing of, so that a host that counts or
lists its threads does not meet it. It sleeps until nothing has been recorded for ``EVERY_S``
seconds. It ends before each fork, is started again by the next module that runs, and does not
keep the process alive.
"""

import os
import sys
from _thread import allocate_lock, start_new_thread
from time import monotonic

from . import guard, process

EVERY_S = 5.0
END_S = 1.0  # for the thread to end when asked to
MAX_FRAMES = 200

# Where a frame of the host's stack says what the host is doing, by the start of its module's
# name; the innermost one decides.
DOING = (
    ("torch._dynamo", "compile"),
    ("torch._inductor", "compile"),
    ("torch._functorch", "compile"),
    ("torch.utils.data", "data"),
    ("torch.distributed.distributed_c10d", "collective"),
    ("torch.serialization", "checkpoint"),
    ("torch.distributed.checkpoint", "checkpoint"),
    ("torch.optim", "optimizer"),
    ("torch.autograd", "backward"),
    ("torch_xla.core.xla_model", "sync"),
    ("torch_xla.torch_xla", "sync"),
)

_stop = None  # a lock: released, it ends the thread
_ended = None  # a lock: the thread releases it as it ends


def ensure():
    """Start the thread, unless it runs or this process is no place for it."""
    global _stop, _ended
    if _stop is not None or in_worker():
        return
    stop_lock, ended = allocate_lock(), allocate_lock()
    stop_lock.acquire()
    ended.acquire()
    start_new_thread(_run, (stop_lock, ended))
    _stop, _ended = stop_lock, ended


def stop():
    """End the thread and wait for it; harmless where there is none."""
    global _stop, _ended
    stop_lock, ended, _stop, _ended = _stop, _ended, None, None
    if stop_lock is not None:
        stop_lock.release()
        ended.acquire(True, END_S)


def reset_after_fork():
    """The thread has not survived the fork."""
    global _stop, _ended
    _stop = _ended = None


def in_worker():
    """Whether this process is a DataLoader worker."""
    module = sys.modules.get("torch.utils.data._utils.worker")
    return getattr(module, "_worker_info", None) is not None


def _run(stop_lock, ended):
    try:
        wait = EVERY_S
        while not stop_lock.acquire(True, wait):
            wait = process.last_write + EVERY_S - monotonic()
            if wait <= 0:
                with guard.reporting("beat"):
                    _beat()
                wait = EVERY_S
    finally:
        ended.release()


def _beat():
    threads = sys.modules.get(__package__ + ".threads")
    steps = sum(thread.steps for thread in threads.everyone()) if threads is not None else 0
    fields = {"compiling": None, "compiles": None, "compile_s": None, "device_mb": None}
    if process.backend is not None:
        fields.update(process.backend.progress())
    tid, doing, at = _look()
    if doing == "compile":
        fields["compiling"] = True
    elif doing is None and fields["compiling"]:
        doing = "compile"
    since = process.last_step
    process.write(
        "beat",
        tid=tid,
        steps=steps,
        since_step_s=None if since is None else round(monotonic() - since, 3),
        doing=doing,
        at=at,
        rss_mb=process.rss_mb(),
        **fields,
    )


def _look():
    """(tid, what it does, the host's line) of the first thread that trains and still runs.

    Frames are let go before anything else is done: they hold the host's tensors.
    """
    frames = sys._current_frames()
    try:
        for ident, tid in list(process.training.items()):
            if ident in frames:
                return (tid,) + _read(frames[ident])
        return None, None, None
    finally:
        frames.clear()


def _read(frame):
    doing = at = None
    left = MAX_FRAMES
    while frame is not None and left and at is None:
        path = frame.f_code.co_filename
        if doing is None:
            name = dict.get(frame.f_globals, "__name__")
            if isinstance(name, str):
                doing = next((word for start, word in DOING if name.startswith(start)), None)
        if is_users(path):
            at = "%s:%d in %s" % (path[-300:], frame.f_lineno or 0, frame.f_code.co_name)
        frame, left = frame.f_back, left - 1
    return doing, at


_OURS_AND_LIBRARIES = (
    "<",  # frozen modules, and wrappers
    guard.HERE,
    os.path.dirname(os.__file__) + os.sep,
    os.path.dirname(os.path.realpath(os.__file__)) + os.sep,
)


def is_users(path):
    if path.startswith(_OURS_AND_LIBRARIES):
        return False
    return "site-packages" not in path and "dist-packages" not in path
