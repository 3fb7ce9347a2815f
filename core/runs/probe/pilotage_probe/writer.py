"""Append JSON lines to this process's own file, one write call for what is ready together.

A line that was written is in the kernel's hands: kill -9 cannot take it back. The host may close
or reuse our descriptor (daemons close them all), so each write first checks that the descriptor
still is our file; otherwise the line would end in a file of the host's.

What the host may replace later (``os.write``, ``json.dumps``) is taken at import, before it runs.
"""

import os
import sys
from _thread import allocate_lock
from os import O_APPEND, O_CREAT, O_WRONLY, close, fstat, getpid
from os import open as open_file
from os import write as write_bytes

MAX_LINE = 1 << 20  # bytes; a longer record is replaced by one that says so
MAX_FAILURES = 5  # in a row; then give up: a full disk must not cost the host a syscall each step
ASK_EVERY = 16  # lines: how often the limit of a file's size is asked for, which may be lowered
LOCK_S = 1.0  # a thread that was stopped in mid-write must not stop the others
FLAGS = O_WRONLY | O_APPEND | O_CREAT | getattr(os, "O_CLOEXEC", 0)


class Writer:
    """One per process; ``write`` never raises."""

    def __init__(self, directory):
        self.directory = directory
        self.reset()

    def reset(self):
        """Forget the file: after a fork the child writes to one of its own."""
        self.fd = -1
        self.identity = None
        self.size = 0
        self.limit, self.asked = 0, 0  # bytes, and the lines until it is asked for again
        self.torn = False  # the last line was cut off by a full disk
        self.failures = 0
        self.dropped = 0
        self.lock = allocate_lock()

    def _ready(self):
        if self.fd >= 0:
            try:
                now = fstat(self.fd)
                if (now.st_dev, now.st_ino) == self.identity:
                    if now.st_nlink:
                        self.size = now.st_size
                        return
                    close(self.fd)  # deleted: nobody will read it
            except OSError:
                pass
            self.fd = -1  # closed or reused by the host: not ours to close
        path = os.path.join(self.directory, "%d.jsonl" % getpid())
        fd = open_file(path, FLAGS, 0o600)
        if fd <= 2:  # the host runs without standard streams; stay clear of their numbers
            import fcntl

            low, fd = fd, fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64)
            close(low)
        status = fstat(fd)
        self.fd, self.identity = fd, (status.st_dev, status.st_ino)
        self.size = status.st_size

    def write(self, *records):
        """Append records (dicts) as lines; count those that this fails for as dropped."""
        if self.failures >= MAX_FAILURES:
            self.dropped += len(records)
            return
        lines = records
        try:
            lines = [_line(record) for record in records]
            if not self.lock.acquire(True, LOCK_S):
                raise OSError("the file is being written to")
            try:
                self._append(lines)
            finally:
                self.lock.release()
            self.failures = 0
        except Exception:  # unwritable, full, closed: the host must not notice
            self.failures += 1
            self.dropped += len(lines)

    def _append(self, lines):
        """In one call; line by line where the limit of the file is near.

        Takes from ``lines`` what is in the file.
        """
        self._ready()
        self.asked -= len(lines)
        if self.asked < 0:
            self.limit, self.asked = _file_limit(), ASK_EVERY
        text = b"".join(lines)
        for part in list(lines) if self.size + len(text) >= self.limit else (text,):
            if self.size + len(part) + self.torn > self.limit:
                raise OSError("the file may not grow")  # a write would raise SIGXFSZ
            if self.torn:
                part = b"\n" + part
            written = write_bytes(self.fd, part)
            self.size += written
            whole = written - self.torn
            while lines and whole >= len(lines[0]):
                whole -= len(lines.pop(0))
            self.torn = written < len(part)
            if self.torn:
                raise OSError("the disk is full")


def _file_limit():
    try:
        from resource import RLIM_INFINITY, RLIMIT_FSIZE, getrlimit
    except ImportError:
        return float("inf")
    soft = getrlimit(RLIMIT_FSIZE)[0]
    return float("inf") if soft == RLIM_INFINITY else soft


def _line(record):
    line = encode(record)
    if len(line) > MAX_LINE:
        short = {key: record.get(key) for key in ("k", "pid", "tid", "rank", "t", "wall")}
        short["cut"] = len(line)
        line = encode(short)
    return line + b"\n"


# --- JSON --------------------------------------------------------------------------------------

_encoder = None


def encode(record):
    """A record as JSON; what is no JSON value becomes text."""
    global _encoder
    if _encoder is None:
        if "json" not in sys.modules:  # a process without torch is not made to load it
            return _plain(record).encode()
        from json import JSONEncoder

        _encoder = JSONEncoder(separators=(",", ":"), default=str).encode
    return _encoder(record).encode()


def _plain(value):
    if isinstance(value, dict):
        return "{%s}" % ",".join("%s:%s" % (_text(k), _plain(v)) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return "[%s]" % ",".join(_plain(item) for item in value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)) and value - value == 0:  # finite
        return repr(value)
    return _text(str(value))


def _text(text):
    from _json import encode_basestring_ascii

    return encode_basestring_ascii(text)
