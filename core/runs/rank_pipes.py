"""Pipes of their own for the ranks of a run, handed over by the probe in each of them.

The processes of ``torchrun`` and of ``spawn`` share the run's two pipes, and what comes out of
them can't be told apart any more. So the probe in such a process makes a pipe, hands us the end
to read from (``SCM_RIGHTS`` over a Unix socket), and puts the other end in the place of its
standard output and error. It does so only once we have said that we have it: whatever goes wrong,
the process stays on the shared pipe and nothing is lost.

One message a process: ``{"pid", "rank", "streams": [...]}`` with one descriptor for each stream,
answered with one byte.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import stat
import struct
from collections.abc import Callable
from pathlib import Path

MAX_PIPES = 512
MAX_HEADER = 4096
NAME = "ranks.sock"
STREAMS = ("stdout", "stderr")

Attach = Callable[[int, str, int, str], None]
"""``attach(fd, stream, pid, rank)`` takes over a pipe; ``rank`` is ``""`` where it is not known."""


class RankPipes:
    """The socket of one run, in the run's own directory, for this user only."""

    def __init__(self, directory: Path, attach: Attach) -> None:
        self._directory = directory
        self._attach = attach
        self._socket: socket.socket | None = None
        self._waiting: dict[socket.socket, asyncio.TimerHandle] = {}
        self._count = 0

    @property
    def path(self) -> Path:
        """Where the socket is."""
        return self._directory / NAME

    def open(self) -> bool:
        """Listen; False where that can't be done (a file system without sockets, say)."""
        with contextlib.suppress(OSError):
            self.path.unlink()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            at = os.open(self._directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                # An address has at most 108 bytes, a session's directory may have more.
                listener.bind(f"/proc/self/fd/{at}/{NAME}")
            finally:
                os.close(at)
            self.path.chmod(0o600)
            listener.listen(128)
        except OSError:
            listener.close()
            return False
        self._socket = listener
        asyncio.get_running_loop().add_reader(listener, self.take_waiting)
        return True

    def close(self) -> None:
        """Take nobody in any more; the pipes that were taken over go on."""
        loop = asyncio.get_running_loop()
        if self._socket is not None:
            loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None
            with contextlib.suppress(OSError):
                self.path.unlink()
        for connection in list(self._waiting):
            self._drop(connection)

    def take_waiting(self) -> None:
        """Take in every process that has knocked."""
        while self._socket is not None:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            connection.setblocking(False)
            if not _is_ours(connection) or len(self._waiting) >= MAX_PIPES:
                connection.close()
                continue
            loop = asyncio.get_running_loop()
            self._waiting[connection] = loop.call_later(30.0, self._drop, connection)
            loop.add_reader(connection, self._receive, connection)

    def _drop(self, connection: socket.socket) -> None:
        timer = self._waiting.pop(connection, None)
        if timer is not None:
            timer.cancel()
            asyncio.get_running_loop().remove_reader(connection)
        connection.close()

    def _receive(self, connection: socket.socket) -> None:
        fds: list[int] = []
        try:
            flags = socket.MSG_CMSG_CLOEXEC
            text, fds, how, _ = socket.recv_fds(connection, MAX_HEADER, len(STREAMS), flags)
            if how & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
                raise ValueError("too much in one message")
            pid, rank, streams = _header(text, fds)
            if self._count + len(fds) > MAX_PIPES:
                raise ValueError("too many pipes")
            # The answer comes first: a process that has given up must not be taken in.
            connection.send(b"+")
        except BlockingIOError:
            return
        except (OSError, ValueError, RecursionError):
            for fd in fds:
                os.close(fd)
        else:
            self._count += len(fds)
            for fd, stream in zip(fds, streams, strict=True):
                self._attach(fd, stream, pid, rank)
        self._drop(connection)


def _is_ours(connection: socket.socket) -> bool:
    """Whether the process at the other end is of our user (its directory lets in no other)."""
    about = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", about)[1] == os.getuid())


def _header(text: bytes, fds: list[int]) -> tuple[int, str, list[str]]:
    """Process, rank and streams of a message; raises ValueError for one that is not the probe's."""
    said = json.loads(text)
    if not isinstance(said, dict):
        raise ValueError("no object")
    pid, rank, streams = said.get("pid"), said.get("rank"), said.get("streams")
    if not isinstance(pid, int) or not isinstance(streams, list):
        raise ValueError("not a message of the probe")
    fits = (
        all(s in STREAMS for s in streams)
        and len(streams) == len(set(streams)) == len(fds)
        and all(stat.S_ISFIFO(os.fstat(fd).st_mode) for fd in fds)
    )
    if not fits:
        raise ValueError("not a message of the probe")
    known = isinstance(rank, int) and 0 <= rank < 10**6
    return pid, str(rank) if known else "", streams
