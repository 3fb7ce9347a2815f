"""A terminal for tests: the real command in a real pseudo-terminal, its screen kept by pyte."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pyte

LAUNCHER = Path(__file__).resolve().parents[2] / "pilotage.py"

#: Seconds after which waiting is given up; a wait ends as soon as the screen shows it.
PATIENCE_S = 60.0


class Terminal:
    """Runs ``pilotage ARGS`` with a pseudo-terminal as its controlling terminal.

    Leaving the ``with`` block closes the terminal, as a dropped line does, and ends the process.
    """

    def __init__(self, *args: str, columns: int = 120, rows: int = 40) -> None:
        self.screen = pyte.Screen(columns, rows)
        self.raw = bytearray()
        self._stream = pyte.ByteStream(self.screen)
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

        def own_terminal() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            [sys.executable, str(LAUNCHER), *args],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            close_fds=True,
            # Named, since readline (which pytest imports) puts LINES and COLUMNS into the
            # environment behind Python's back, and they would stand in for the size set above.
            env=dict(os.environ),
            preexec_fn=own_terminal,
        )
        os.close(slave)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.hang_up()
        if self.process.poll() is None:
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)

    @property
    def text(self) -> str:
        """What is on the screen."""
        return "\n".join(self.screen.display)

    def type(self, keys: str) -> None:
        """Send keys as a keyboard would."""
        os.write(self.master, keys.encode())

    def until(self, shown: str | Callable[[str], bool]) -> str:
        """Wait until the screen shows a text (or satisfies a condition) and return it."""
        good = shown if callable(shown) else lambda text: shown in text
        deadline = time.monotonic() + PATIENCE_S
        while not good(self.text):
            left = deadline - time.monotonic()
            if left <= 0 or not self._read(left):
                raise AssertionError(f"the screen never showed {shown!r}; it shows:\n{self.text}")
        return self.text

    def _read(self, seconds: float) -> bool:
        """Take in what the program writes next; false when it is gone or silent for so long."""
        ready, _, _ = select.select([self.master], [], [], seconds)
        if not ready:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:  # the other side is closed
            return False
        self.raw += data
        self._stream.feed(data)
        return bool(data)

    def drain(self) -> None:
        """Read to the end of what a program that ends writes."""
        while self._read(PATIENCE_S):
            pass

    def hang_up(self) -> None:
        """Close the terminal, as a line that drops does; the kernel sends SIGHUP."""
        if self.master >= 0:
            os.close(self.master)
            self.master = -1

    def kill(self, number: signal.Signals) -> None:
        """Send a signal to the console's process and wait for its end."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        self.process.wait(20)
