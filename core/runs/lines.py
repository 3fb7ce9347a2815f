"""Bytes of a run's output made into lines fit to store and to show.

A progress bar redraws its line with carriage returns: of the states of one line only the last
that is not blank is kept. A line longer than ``MAX_BYTES`` is cut and says how much is missing.
Invalid UTF-8 becomes U+FFFD, and every line passes ``core.text.clean``.
"""

from __future__ import annotations

from core.text import clean

MAX_BYTES = 16 * 1024


class LineSplitter:
    """Feed it chunks of one stream in order; it returns the lines they complete.

    Holds at most two states of one line, however long the line is.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max = max_bytes
        self._state = bytearray()  # the current state of the unfinished line
        self._over = 0  # bytes of that state that were not kept
        self._last = ""  # the last finished state that was not blank

    def feed(self, chunk: bytes) -> list[str]:
        """The lines that ``chunk`` completes, cleaned, without their line ends."""
        lines: list[str] = []
        *whole, rest = chunk.split(b"\n")
        for piece in whole:
            self._take(piece)
            lines.append(self._finish())
        self._take(rest)
        return lines

    def close(self) -> list[str]:
        """The last line, if the stream did not end in a newline."""
        line = self._finish()
        return [line] if line else []

    @property
    def progress(self) -> str:
        """What the unfinished line shows right now: a progress bar, a prompt, or nothing."""
        shown = self._shown()
        return shown if shown.strip() else self._last

    def _take(self, piece: bytes) -> None:
        first, *redrawn = piece.split(b"\r")
        self._extend(first)
        for state in redrawn:
            shown = self._shown()
            if shown.strip():
                self._last = shown
            self._state.clear()
            self._over = 0
            self._extend(state)

    def _extend(self, data: bytes) -> None:
        room = self._max - len(self._state)
        self._state += data[:room]
        self._over += max(0, len(data) - room)

    def _shown(self) -> str:
        if not self._state:
            return ""
        if not self._over:
            return clean(self._state.decode("utf-8", "replace"))
        kept = bytes(self._state)
        for back in range(1, 4):  # do not cut a character in two
            if kept[-back] >= 0xC0:
                kept = kept[:-back]
                break
            if kept[-back] < 0x80:
                break
        missing = self._over + len(self._state) - len(kept)
        return clean(kept.decode("utf-8", "replace")) + f" … [cut: {missing} more bytes]"

    def _finish(self) -> str:
        line = self._shown()
        if not line.strip():
            line = self._last or line
        self._state.clear()
        self._over = 0
        self._last = ""
        return line
