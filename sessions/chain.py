"""The hash chain: what makes an edited log tell itself from a true one.

The hash of an event is SHA-256 over one JSON array, written without spaces and with every
character beyond ASCII escaped (``json.dumps(..., separators=(",", ":"))``)::

    [prev_hash, seq, event_id, ts_us, mono_us, boot_id, source, kind, run_id, tree, v, payload]

``payload`` is the JSON text of the payload as a string, before any compression. The first event
has 64 zeros for ``prev_hash``. Anybody can so recompute a chain without this program.

A chain shows that something in the middle was changed, put in or taken out. Whoever can write
the whole file can also recompute the whole chain: against that only a head hash kept elsewhere
helps, which is why every export states it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from core.errors import SessionError
from sessions.rows import unpack

GENESIS = "0" * 64

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True).encode


def link(prev_hash: str, columns: Sequence[Any]) -> str:
    """Hash of an event, from ``columns`` = seq, event_id, ... v, payload text (hex, 64 characters)."""
    return hashlib.sha256(_encode([prev_hash, *columns]).encode("ascii")).hexdigest()


@dataclass(frozen=True, slots=True)
class Break:
    """A place where the chain does not hold: the event and a sentence about it."""

    seq: int
    text: str


def breaks(rows: Iterable[Sequence[Any]]) -> Iterator[Break]:
    """Every break in rows of the event table, in order of ``seq`` (columns as in ``rows.COLUMNS``).

    After a break the walk goes on from what the row states, so that one edit is one break and
    not a thousand.
    """
    prev = GENESIS
    expected_seq = 1
    for row in rows:
        *columns, stored, prev_hash, this_hash = row
        seq = row[0]
        if seq != expected_seq:
            missing = (
                f"event {expected_seq} is"
                if seq == expected_seq + 1
                else f"events {expected_seq} to {seq - 1} are"
            )
            yield Break(seq, f"Before event {seq}, {missing} missing.")
        if prev_hash != prev:
            yield Break(seq, f"Event {seq} does not continue the chain of the event before it.")
        try:
            if link(prev_hash, [*columns, unpack(stored)]) != this_hash:
                yield Break(seq, f"Event {seq} was changed after it was written: its hash differs.")
        except SessionError as err:
            yield Break(seq, f"Event {seq} has a damaged payload: {err}")
        except (TypeError, ValueError):
            yield Break(seq, f"Event {seq} has a column of a type that no event has.")
        prev, expected_seq = this_hash, seq + 1
