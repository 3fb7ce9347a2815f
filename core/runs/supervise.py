"""A small process between the recorder and a run, so that a run never outlives its recorder.

Started as ``python -I -S supervise.py STATUS_FD``. Standard input is the recorder's hold on it:
first one JSON line ``{"argv", "cwd", "env", "mark": [variable, value]}``, later perhaps
``stop GRACE_SECONDS``. When it ends, the recorder is gone (kill -9 included), and the run is
ended. Standard output and error are handed to the run. On ``STATUS_FD`` it writes JSON lines:
``started``, ``usage`` (each second), ``exit``, ``swept``, ``failed``.

As a child subreaper it adopts whatever the run leaves behind, daemons included, and ends it too.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __name__ != "__main__":
    from core.runs import oom, processes
else:
    # Run as a script with -I, which leaves the script's own directory out of the path.
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    import oom
    import processes

    sys.path.pop(0)  # nothing beside us may stand for a module of the standard library

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
SAMPLE_S = 1.0
MAX_SEEN = 100_000  # process ids that are remembered
MAX_PIDS = 256  # that are told with a sample
AFTER_EXIT_GRACE_S = 0.5  # for what the run left running when it ended by itself
ORPHAN_GRACE_S = 1.0  # when the recorder is gone: enough for a handler, too short to linger


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):  # not Linux: descent alone must do
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


class Supervisor:
    """One run; ``serve`` returns when nothing of it is left."""

    def __init__(self, status_fd: int) -> None:
        os.set_inheritable(status_fd, False)
        self.status_fd = status_fd
        self.buffer = b""
        self.child = 0
        self.exit: tuple[int | None, int | None] | None = None  # (code, signal)
        self.max_rss = 0
        self.deadline: float | None = None  # when a stop turns into SIGKILL
        self.forced = False  # whether it did
        self.seen: set[int] = set()  # ids of the run's processes
        self.connected = True
        self.mark = ("", "")
        self.wake, wake_w = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(wake_w, False)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only to wake the loop
        signal.signal(signal.SIGTERM, lambda *_: self.stop(ORPHAN_GRACE_S))
        for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
            signal.signal(ignored, signal.SIG_IGN)

    def say(self, **fields: Any) -> None:
        """One status line; the recorder may be gone."""
        with contextlib.suppress(OSError):
            os.write(self.status_fd, json.dumps(fields).encode() + b"\n")

    def start(self) -> bool:
        """Read the order and start the run; False if that failed."""
        while b"\n" not in self.buffer:
            data = os.read(0, 65536)
            if not data:
                return False
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        order = json.loads(line)
        self.mark = tuple(order["mark"])
        self.kernel_log = oom.KernelLog()
        self.oom_before = oom.kills()
        try:
            child = subprocess.Popen(
                order["argv"],
                cwd=order["cwd"],
                env=order["env"],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=_in_child,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self.say(failed=str(error))
            return False
        self.child = child.pid
        child.returncode = 0  # we reap it ourselves
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        os.close(null)
        self.say(started=self.child)
        return True

    def reap(self) -> None:
        """Collect the dead, adopted ones too, and notice the run's own end."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.max_rss = max(self.max_rss, usage.ru_maxrss * 1024)
            self.seen.add(pid)
            if pid == self.child:
                killed = os.WIFSIGNALED(status)
                code = None if killed else os.WEXITSTATUS(status)
                self.exit = (code, os.WTERMSIG(status) if killed else None)

    def stop(self, grace_s: float) -> None:
        """Ask all of the run to end; what is there after ``grace_s`` seconds is killed."""
        if self.deadline is None:
            processes.signal_all(self.members(), signal.SIGTERM)
            self.deadline = time.monotonic() + grace_s
        else:
            self.deadline = min(self.deadline, time.monotonic() + grace_s)

    def members(self) -> list[int]:
        """All living processes of the run."""
        found = processes.descendants(os.getpid())
        return found + [p for p in processes.marked(*self.mark) if p not in found]

    def listen(self) -> None:
        """Obey the recorder; its end is an order to end the run."""
        try:
            data = os.read(0, 65536)
        except OSError:
            data = b""
        if not data:
            self.connected = False
            self.stop(ORPHAN_GRACE_S)
            return
        self.buffer += data
        while b"\n" in self.buffer:
            line, _, self.buffer = self.buffer.partition(b"\n")
            words = line.split()
            if words and words[0] == b"stop":
                self.stop(float(words[1]) if len(words) > 1 else ORPHAN_GRACE_S)

    def watch(self) -> None:
        """Until the run's own process has ended."""
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        poll.register(0, select.POLLIN)
        sample_at = time.monotonic() + 0.2
        while self.exit is None:
            now = time.monotonic()
            if now >= sample_at:
                self.sample()
                sample_at = now + SAMPLE_S
            due = sample_at
            if self.deadline is not None:
                if now >= self.deadline:
                    self.forced = True
                    processes.signal_all(self.members(), signal.SIGKILL)
                    self.deadline = now + 0.1  # again, for what was forked meanwhile
                due = min(due, self.deadline)
            for fd, _ in poll.poll(max(0.0, due - now) * 1000):
                if fd == self.wake:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self.wake, 4096)
                elif fd == 0:
                    self.listen()
                    if not self.connected:
                        poll.unregister(0)
            self.reap()

    def sample(self) -> None:
        """Measure the memory of the process tree."""
        alive = processes.descendants(os.getpid())
        used, swapped = processes.memory(alive)
        self.max_rss = max(self.max_rss, used)
        if len(self.seen) < MAX_SEEN:
            self.seen.update(alive)
        self.say(usage=used, swap=swapped, processes=len(alive), pids=alive[:MAX_PIDS])

    def out_of_memory(self) -> dict[str, Any]:
        """What the kernel says of processes that it killed for want of memory during the run."""
        found: dict[str, Any] = {"limit": oom.limit_bytes()}
        after = oom.kills()
        if self.oom_before is not None and after is not None and after[1] == self.oom_before[1]:
            found["oom_kills"] = max(0, after[0] - self.oom_before[0])
            found["oom_where"] = after[1]
        found["oom_pids"] = self.kernel_log.killed(self.seen | {self.child})
        return found

    def serve(self) -> None:
        """Start, watch, report, leave nothing behind."""
        if not self.start():
            return
        self.watch()
        code, number = self.exit or (None, None)
        # Said before the sweep: how the run ended must not wait for what it left behind.
        kernel = self.out_of_memory()
        self.say(exit=code, signal=number, max_rss=self.max_rss, forced=self.forced, **kernel)
        grace = AFTER_EXIT_GRACE_S
        if self.deadline is not None:
            grace = max(0.0, self.deadline - time.monotonic())
        self.say(swept=processes.end_all(self.members, grace, self.reap))
        self.reap()


def _in_child() -> None:
    # What we ignore the run must not: a Python started with SIGINT ignored knows no Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # should the supervisor itself be killed


def main() -> None:
    """Entry point of the process."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    Supervisor(int(sys.argv[1])).serve()


if __name__ == "__main__":
    main()
