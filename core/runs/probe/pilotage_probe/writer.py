"""Append JSON lines to this process's own file, one write call a line.

A line that was written is in the kernel's hands: kill -9 cannot take it back. The host may close
or reuse our descriptor (daemons close them all), so each write first checks that the descriptor
still is our file; otherwise the line would end in a file of the host's.
"""

import json
import os
import threading

MAX_LINE = 1 << 20  # bytes; a longer record is replaced by one that says so
MAX_FAILURES = 5  # then give up: a full disk must not cost the host a syscall each step


class Writer:
    """One per process; ``write`` never raises."""

    def __init__(self, directory):
        self.directory = directory
        self.reset()

    def reset(self):
        """Forget the file: after a fork the child writes to one of its own."""
        self.fd = -1
        self.identity = None
        self.failures = 0
        self.dropped = 0
        self.lock = threading.Lock()

    def _ready(self):
        if self.fd >= 0:
            try:
                now = os.fstat(self.fd)
                if (now.st_dev, now.st_ino) == self.identity:
                    return
            except OSError:
                pass
            self.fd = -1  # closed or reused by the host: not ours to close
        path = os.path.join(self.directory, "%d.jsonl" % os.getpid())
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
        fd = os.open(path, flags, 0o600)
        if fd <= 2:  # the host runs without standard streams; stay clear of their numbers
            import fcntl

            low, fd = fd, fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64)
            os.close(low)
        status = os.fstat(fd)
        self.fd, self.identity = fd, (status.st_dev, status.st_ino)

    def write(self, record):
        """Append one record (a dict) as a line; count it as dropped if that fails."""
        if self.failures >= MAX_FAILURES:
            self.dropped += 1
            return
        try:
            line = json.dumps(record, separators=(",", ":"), default=str).encode()
            if len(line) > MAX_LINE:
                short = {key: record.get(key) for key in ("k", "pid", "tid", "rank", "t", "wall")}
                short["cut"] = len(line)
                line = json.dumps(short).encode()
            with self.lock:
                self._ready()
                os.write(self.fd, line + b"\n")
        except Exception:  # unwritable, full, closed: the host must not notice
            self.failures += 1
            self.dropped += 1
