"""One row of the ``event`` table: how a body becomes its columns, and how it comes back.

``payload`` is JSON text. Where it is large and of a kind made of bulk text, it is stored as a
zstandard frame instead: ``typeof(payload) = 'blob'`` says so, and ``zstd -d`` (or
:func:`unpack`) gives the same JSON text. Interventions, decisions, checks and levels are never
compressed, so that people can query them with SQLite's own JSON functions.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from core.errors import SessionError
from core.events import JSON, Body, Event, Unknown, decode_body

COLUMNS = (
    "seq",
    "event_id",
    "ts_us",
    "mono_us",
    "boot_id",
    "source",
    "kind",
    "run_id",
    "tree",
    "v",
    "payload",
    "prev_hash",
    "hash",
)
SELECT = f"SELECT {', '.join(COLUMNS)} FROM event"

BULK_KINDS = frozenset({"run.output", "run.stepped", "run.signalled", "tree.snapshotted"})
COMPRESS_FROM = 4096
"""Characters of JSON from which a bulk payload is compressed; smaller ones gain little."""

MAX_PAYLOAD = 256 * 1024 * 1024
"""Bytes a compressed payload may claim to expand to: a stranger's file must not eat the memory."""

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def kind_of(body: Body) -> tuple[str, int]:
    """Kind and version of a body, those of an :class:`Unknown` being the ones it was read with."""
    if isinstance(body, Unknown):
        return body.kind, body.v
    return body.KIND, body.VERSION


def pack(kind: str, text: str) -> str | bytes:
    """What is stored for a payload of JSON ``text``: the text, or a zstandard frame of it."""
    if kind not in BULK_KINDS or len(text) < COMPRESS_FROM:
        return text
    import zstandard

    frame: bytes = zstandard.ZstdCompressor(level=3).compress(text.encode("utf-8"))
    return frame


def unpack(stored: str | bytes) -> str:
    """The JSON text of a stored payload.

    Raises :class:`SessionError` where a frame is damaged or claims more than ``MAX_PAYLOAD``.
    """
    if isinstance(stored, str):
        return stored
    import zstandard

    if not isinstance(stored, bytes) or not stored.startswith(_ZSTD_MAGIC):
        raise SessionError("A payload is neither text nor a zstandard frame.")
    try:
        size = zstandard.frame_content_size(stored)
        if not 0 <= size <= MAX_PAYLOAD:
            raise SessionError("A compressed payload states no size, or one beyond reason.")
        return zstandard.ZstdDecompressor().decompress(stored).decode("utf-8")
    except (zstandard.ZstdError, UnicodeDecodeError) as err:
        raise SessionError(f"A compressed payload can't be read: {err}.") from err


def unpacked_size(stored: object) -> int:
    """Bytes that a stored payload takes when it is unpacked, as far as it says so itself."""
    if isinstance(stored, str):
        return len(stored)
    if not isinstance(stored, bytes):
        return 0
    import zstandard

    try:
        return max(len(stored), int(zstandard.frame_content_size(stored)))
    except zstandard.ZstdError:
        return len(stored)


def parse(text: str) -> Any:
    """The JSON value of a payload; text that is no JSON comes back as a string."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def to_event(row: Sequence[Any]) -> Event:
    """The event of one row (columns in the order of ``COLUMNS``).

    A damaged payload becomes :class:`Unknown`, and the chain (``pilotage check``) is what says
    that it was damaged. Raises :class:`SessionError` for a row that can't be an event at all.
    """
    seq, event_id, ts_us, mono_us, boot_id, source, kind, run_id, tree, v, stored, prev, this = row
    try:
        value = parse(unpack(stored))
    except SessionError as err:
        value = {"unreadable": str(err)}
    try:
        return build(
            seq, event_id, ts_us, mono_us, boot_id, source, kind, run_id, tree, v, value, prev, this
        )
    except TypeError as err:  # a damaged page can hold types that STRICT forbids
        raise SessionError(f"Event {seq} has a column of a type that no event has.") from err


def build(
    seq: int,
    event_id: str,
    ts_us: int,
    mono_us: int,
    boot_id: str,
    source: str,
    kind: str,
    run_id: str,
    tree: str,
    v: int,
    value: JSON,
    prev_hash: str,
    this_hash: str,
) -> Event:
    """The event of its columns, with the payload already parsed."""
    body, extra = decode_body(kind, v, value)
    return Event(
        seq=seq,
        event_id=event_id,
        ts_us=ts_us,
        mono_us=mono_us,
        boot_id=boot_id,
        source=source,
        body=body,
        run_id=run_id,
        tree=tree,
        prev_hash=prev_hash,
        hash=this_hash,
        extra=extra,
    )
