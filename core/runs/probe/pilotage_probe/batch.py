"""Records of steps on their way to the file: in light mode several of them are written together.

Between two steps of 20 ms a host's kernels drive the probe's code out of the caches, and it runs
several times slower than a second time right after. So what a record is made of is kept at the
end of a step, and the records are made and written when ``MOST`` wait, or when ``EVERY_S`` have
passed since the last were written: a step slower than that is written at once. The first
``AT_ONCE`` steps are, too. What waits is written before any other record (a beat is one, so a
program that hangs shows its last step), at each end that Python takes part in, and before a fork.

After kill -9, or a crash of the interpreter, the records of steps of the last ``EVERY_S`` may be
missing; everything else is as if each had been written at the end of its step. What waits holds
numbers, no tensors.
"""

from _thread import RLock
from collections import deque
from time import monotonic

from . import guard

MOST = 16  # records
EVERY_S = 0.2
AT_ONCE = 10  # steps: what ends so early is short, or about to fail
LOCK_S = 1.0  # a thread that was stopped while it writes must not stop the others

_waiting = deque()  # of (make, arguments of it), in the order of the ends of steps
_lock = RLock()  # held while records are taken and written, which keeps their order
_written = 0.0  # monotonic time


def add(writer, at_once, now, make, *arguments):
    """Keep one record: ``make(*arguments)`` returns it later; ``now`` is monotonic time."""
    _waiting.append((make, arguments))
    if at_once or len(_waiting) >= MOST or now - _written >= EVERY_S:
        flush(writer)


def flush(writer):
    """Write what waits, in one piece; from any thread."""
    global _written
    if not _waiting:
        return
    held = _lock.acquire(True, LOCK_S)
    try:
        records = []
        try:
            while _waiting:
                try:
                    make, arguments = _waiting.popleft()
                except IndexError:  # another thread has not waited for us
                    break
                with guard.reporting("step record"):
                    records.append(make(*arguments))
        finally:  # after a KeyboardInterrupt, too
            _written = monotonic()
            if records:
                writer.write(*records)
    finally:
        if held:
            _lock.release()


def reset_after_fork():
    """What waits in the parent is the parent's, and so is the thread that holds the lock."""
    global _lock
    _waiting.clear()
    _lock = RLock()
