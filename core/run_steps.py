"""The step records of a run in memory: all of them, the older ones packed.

A record takes about 3.5 kB as a Python object and 60 bytes packed among its neighbours, so a run
of a million steps would take 3.5 GB otherwise. The first and the last records, which are what is
looked at again and again, stay as they are.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import overload

from core.body import JSON

HEAD = 2_000
TAIL = 5_000
CHUNK = 500


class RunSteps(Sequence[JSON]):
    """The records in their order; to be read like a list. A record must not be changed."""

    def __init__(self, records: Iterable[JSON] = ()) -> None:
        self._head: list[JSON] = []
        self._packed: list[bytes] = []
        self._tail: list[JSON] = []
        self._unpacked: tuple[int, list[JSON]] = (-1, [])  # the chunk looked at last
        self.extend(records)

    def append(self, record: JSON) -> None:
        """Add one record."""
        self.extend((record,))

    def extend(self, records: Iterable[JSON]) -> None:
        """Add records at the end."""
        some = list(records)
        room = HEAD - len(self._head)
        if room > 0:
            self._head += some[:room]
            some = some[room:]
        self._tail += some
        while len(self._tail) >= TAIL + CHUNK:
            text = json.dumps(self._tail[:CHUNK], separators=(",", ":"))
            self._packed.append(zlib.compress(text.encode(), 3))
            del self._tail[:CHUNK]

    def __len__(self) -> int:
        return len(self._head) + CHUNK * len(self._packed) + len(self._tail)

    @overload
    def __getitem__(self, index: int) -> JSON: ...
    @overload
    def __getitem__(self, index: slice) -> list[JSON]: ...
    def __getitem__(self, index: int | slice) -> JSON | list[JSON]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                return [self[i] for i in range(start, stop, step)]
            return self._part(start, max(start, stop))
        place = index + len(self) if index < 0 else index
        found = self._part(place, place + 1) if 0 <= place < len(self) else []
        if not found:
            raise IndexError(f"there is no record {index} of {len(self)}")
        return found[0]

    def __iter__(self) -> Iterator[JSON]:
        middle = (record for n in range(len(self._packed)) for record in self._chunk(n))
        return chain(self._head, middle, self._tail)

    def __reversed__(self) -> Iterator[JSON]:
        chunks = reversed(range(len(self._packed)))
        middle = (record for n in chunks for record in reversed(self._chunk(n)))
        return chain(reversed(self._tail), middle, reversed(self._head))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, RunSteps):
            mine = (self._head, self._packed, self._tail)
            return mine == (other._head, other._packed, other._tail)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<RunSteps {len(self)}: {self._head[:2]!r} …>"

    def _part(self, start: int, stop: int) -> list[JSON]:
        head, packed = len(self._head), CHUNK * len(self._packed)
        found = self._head[start:stop]
        first, last = max(0, start - head), min(packed, stop - head)
        for n in range(first // CHUNK, -(-last // CHUNK) if last > first else 0):
            begin = n * CHUNK
            found += self._chunk(n)[max(0, first - begin) : last - begin]
        found += self._tail[max(0, start - head - packed) : max(0, stop - head - packed)]
        return found

    def _chunk(self, n: int) -> list[JSON]:
        if self._unpacked[0] != n:
            self._unpacked = (n, json.loads(zlib.decompress(self._packed[n])))
        return self._unpacked[1]
