"""Reading a saved log of any size: what tells something of it, at bounded memory.

Of a large file the first and the last lines are kept, every line between them that holds a word
a detector looks for, and of the lines with a loss or a metric an even sample. Everything else is
only counted, so that line numbers stay true.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import sys
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path

from core.detectors.output_look import Line
from core.errors import PilotageError
from core.text import clean

#: Lines kept of the beginning and of the end.
FIRST_LINES, LAST_LINES = 3_000, 5_000
#: Lines between them: those with a telling word, of each word; and those of an even sample.
PER_WORD, SAMPLED = 300, 2_000
#: Places of a block that are sampled; states kept of a line that was redrawn.
PER_BLOCK, MAX_STATES = 16, 400
#: Bytes of one line that are read; of a block; of a file, unpacked.
MAX_LINE, BLOCK, MAX_BYTES = 2_000, 1 << 20, 64 << 30
#: A file is binary if so many of its first bytes are NUL.
_NULS = 0.01
#: And if so many are control characters other than those that logs hold (\b \t \n \v \f \r ESC).
_ODD = bytes(set(range(32)) - {8, 9, 10, 11, 12, 13, 27}) + b"\x7f"
_ODDITIES = 0.03

#: Words of which a line between beginning and end is kept, in lower case. Cheap to find.
_WORDS: tuple[bytes, ...] = (
    b"pt-xla-profiler", b"metric: ", b"counter: ", b"totalsamples", b"accumulator", b"percentiles",
    b"  value: ", b"compilation analysis", b"execution analysis", b"metricsdata", b"aten::",
    b"traceback (most", b"error", b"exception", b"fatal", b"resource_exhausted", b"exhausted",
    b"check failed", b"out of memory", b"pjrt_device", b"falling back", b"fall back", b"libtpu",
    b"already in use", b"compil", b"killed", b"sigkill", b"segmentation", b"aborted", b"nan",
    b"missing", b"were not used", b"unexpected key", b"identical to", b"same as", b" bytes",
    b"safetensors", b"checkpoint", b"params", b"resum", b"restor", b"mismatch", b"diverge", b"differ",
    b"no further", b"no output", b"stuck", b"hang", b"stall", b"duty", b"dataset", b"evaluat",
    b"limit reached", b"tied", b"rss", b"memory", b"hash", b"checksum",
)  # fmt: skip
_SERIES = re.compile(rb"(?i:loss|acc|norm|step|epoch|it/s|s/it|eval|val_)")


@dataclass(slots=True)
class LogText:
    """What was kept of a log. ``lines`` are in order, with their numbers in the file from 1.

    ``total`` counts all lines, ``notes`` says in sentences what was not read.
    """

    name: str
    lines: list[Line] = field(default_factory=list)
    total: int = 0
    size: int = 0
    notes: list[str] = field(default_factory=list)


def read_log(name: str) -> LogText:
    """Read the log at a path, or standard input for ``-``.

    Raises :class:`PilotageError` with a sentence where there is no text to read: no such file, a
    folder, an empty or a binary file, one that may not be read.
    """
    log = LogText(name)
    try:
        if name == "-":
            stdin = sys.stdin.buffer
            peeks = hasattr(stdin, "peek")
            _read(_unpacked(stdin if peeks else BufferedReader(stdin)), log)  # type: ignore
        else:
            if not name:
                raise PilotageError("An empty name is no log file.")
            path = Path(name)
            if path.is_dir():
                raise PilotageError(f"{name} is a folder. Name the log files in it.")
            with path.open("rb") as file:
                _read(_unpacked(file), log)
    except FileNotFoundError as error:
        raise PilotageError(f"There is no file {name}. Check the path.") from error
    except PermissionError as error:
        raise PilotageError(f"{name} may not be read by you. Change its permissions.") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise PilotageError(f"{name} can't be read: {reason}.") from error
    if not log.size:
        what = "Standard input" if name == "-" else name
        raise PilotageError(f"{what} is empty, so there is nothing to diagnose.")
    return log


def _unpacked(file: BufferedReader) -> Iterator[bytes]:
    """The file's bytes in blocks; gzip, bzip2, xz and UTF-16 are known by their first bytes."""
    head = file.peek(6)[:6]
    if head.startswith(b"\x1f\x8b"):
        return _packed(gzip.GzipFile(fileobj=file))
    if head.startswith(b"BZh"):
        return _packed(bz2.BZ2File(file))
    if head.startswith(b"\xfd7zXZ\x00"):
        return _packed(lzma.LZMAFile(file))
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return _wide(file, "utf-16-le" if head.startswith(b"\xff\xfe") else "utf-16-be")
    if head.startswith(b"\xef\xbb\xbf"):
        file.read(3)
    return iter(lambda: file.read(BLOCK), b"")


class _Damaged(Exception):
    """The packed file ends too early or is damaged; what came before it counts."""


def _packed(file: gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile) -> Iterator[bytes]:
    while True:
        try:
            block = file.read(BLOCK)
        except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            raise _Damaged(str(error)) from error
        if not block:
            return
        yield block


def _wide(file: BufferedReader, code: str) -> Iterator[bytes]:
    rest = b""
    while block := file.read(BLOCK):
        block = rest + block
        cut = len(block) // 2 * 2
        rest = block[cut:]
        yield block[:cut].decode(code, "replace").encode("utf-8", "replace")


def _read(blocks: Iterator[bytes], log: LogText) -> None:
    keeper = _Keeper()
    rest = b""
    try:
        for block in blocks:
            if not log.size and _binary(block):
                raise PilotageError(f"{log.name} is a binary file, not a log of text.")
            log.size += len(block)
            block = rest + block
            cut = block.rfind(b"\n") + 1
            if not cut and len(block) > 8 * BLOCK:  # one endless line: its beginning and its end
                block = block[: 4 * BLOCK] + block[-BLOCK:]
            keeper.take(block[:cut])
            rest = block[cut:]
            if log.size > MAX_BYTES:
                log.notes.append(f"Only the first {MAX_BYTES >> 30} GiB were read.")
                break
    except _Damaged as error:
        if not log.size:
            raise PilotageError(f"{log.name} is packed and damaged: {error}.") from error
        log.notes.append(f"The packed file is damaged or cut; what could be read was ({error}).")
    keeper.take(rest)
    log.lines, log.total = keeper.lines(), keeper.count
    missing = log.total - len({line.no for line in log.lines})
    if missing:
        log.notes.append(
            f"Of {log.total:,} lines {missing:,} between the first {FIRST_LINES:,} and the last "
            f"{LAST_LINES:,} hold no telling word and were only counted."
        )


def _binary(block: bytes) -> bool:
    head = block[:65536]
    if head.count(0) > _NULS * len(head):
        return True
    # Control characters that no log and no terminal program writes; text in Latin-1 has none.
    odd = len(head) - len(head.translate(None, _ODD))
    return odd > _ODDITIES * len(head)


class _Keeper:
    """Keeps what is worth it of a stream of whole lines; see the module."""

    def __init__(self) -> None:
        self.count = 0
        self._first: list[Line] = []
        self._middle: dict[int, bytes] = {}
        self._sample: list[tuple[int, bytes]] = []
        self._stride = 1  # one in so many places of the sample is kept
        self._place = 0
        self._left = dict.fromkeys(_WORDS, PER_WORD)
        self._tail: deque[tuple[int, bytes, int]] = deque()
        self._tail_lines = 0

    def take(self, data: bytes) -> None:
        """Take the next lines; all but the last end in a newline."""
        if not data:
            return
        room = FIRST_LINES - self.count
        if room > 0:
            parts = data.split(b"\n", room)
            if len(parts) > room:
                data = parts.pop()
            else:
                data = b""
                if not parts[-1]:
                    parts.pop()  # what follows the last newline is no line
            for raw in parts:
                self.count += 1
                self._first += _lines(self.count, raw)
        if not data:
            return
        lines = data.count(b"\n") + (not data.endswith(b"\n"))
        self._tail.append((self.count + 1, data, lines))
        self.count += lines
        self._tail_lines += lines
        while self._tail and self._tail_lines - self._tail[0][2] >= LAST_LINES:
            start, old, n = self._tail.popleft()
            self._tail_lines -= n
            self._scan(start, old)

    def _scan(self, start: int, data: bytes) -> None:
        """Keep of lines that are neither first nor last those with a telling word, and a sample."""
        low = data.lower()
        spots: set[int] = set()
        for word, left in self._left.items():
            at = low.find(word) if left > 0 else -1
            while at >= 0 and left > 0:
                spots.add(low.rfind(b"\n", 0, at) + 1)
                left -= 1
                end = low.find(b"\n", at)
                at = low.find(word, end) if end >= 0 else -1
            self._left[word] = left
        even: set[int] = set()
        for i in range(PER_BLOCK):
            self._place += 1
            if self._place % self._stride == 0:
                even.add(data.rfind(b"\n", 0, len(data) * i // PER_BLOCK) + 1)
        no, before = start, 0
        for spot in sorted(spots | even):
            no += data.count(b"\n", before, spot)
            before = spot
            end = data.find(b"\n", spot)
            raw = data[spot : end if end >= 0 else len(data)][: MAX_LINE * 8]
            if spot in spots:
                self._middle[no] = raw
            elif _SERIES.search(raw):
                self._sample.append((no, raw))
        if len(self._sample) > 2 * SAMPLED:
            self._sample = self._sample[::2]
            self._stride *= 2

    def lines(self) -> list[Line]:
        """The lines kept, in order. Asked once, at the end."""
        over = self._tail_lines - LAST_LINES
        if over > 0 and self._tail:  # the first block of the end holds more than is needed
            start, data, n = self._tail.popleft()
            parts = data.split(b"\n", over)
            self._scan(start, b"\n".join(parts[:over]) + b"\n")
            self._tail.appendleft((start + over, parts[-1], n - over))
        found = list(self._first)
        middle = dict(self._sample) | self._middle
        for no in sorted(middle):
            found += _lines(no, middle[no])
        for start, data, _ in self._tail:
            for i, raw in enumerate(data.removesuffix(b"\n").split(b"\n")):
                found += _lines(start + i, raw)
        return found


def _lines(no: int, raw: bytes) -> list[Line]:
    """The states of one line: a progress bar redraws its line with carriage returns.

    They all have the line's number. Of many, the first and the last ones.
    """
    raw = raw.removesuffix(b"\r")
    if b"\r" not in raw:
        return [Line(no, _text(raw))]
    states = [s for s in raw.split(b"\r") if s.strip()]
    if len(states) > MAX_STATES:
        step = len(states) // (MAX_STATES // 2)
        states = states[: -MAX_STATES // 2 : step] + states[-MAX_STATES // 2 :]
    return [Line(no, _text(state)) for state in states] or [Line(no, "")]


def _text(raw: bytes) -> str:
    return clean(raw[:MAX_LINE].decode("utf-8", "replace"))
