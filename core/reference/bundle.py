"""Writing a bundle: a zip whose members are hashed one by one, sealed with a hash of the whole.

Members: ``manifest.json``, ``runs/<n>.jsonl`` (the events of each run, deflated) and
``capture/<n>/rank<r>/...`` (what the probe wrote of a parity run, stored as it is). The zip's
comment is :data:`SEAL` and the SHA-256 of every byte of the file before that hash, so that a
change anywhere, and any cut, is found before something is used.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from core.body import JSON
from core.events import Event, encode_payload
from core.reference.manifest import MANIFEST, MEMBER, BundleError, Manifest, Member
from core.state_parts import Run

SUFFIX = ".pilotage"
SEAL = b"pilotage reference bundle, sha256 of what is before: "
DIGEST = 64  # hexadecimal digits at the end of the file
CHUNK = 1 << 20

MAX_RECORDS = 512 << 20
"""Bytes of events of one run, at most: 16 MB of output and a million steps of 500 bytes each."""

MAX_ALL_RECORDS = 2 << 30
"""Bytes of events of all runs of a bundle: an import holds them in memory, at some four times this."""

KINDS = (
    "run.started", "run.output", "run.elided", "run.stalled", "run.resumed", "run.sampled",
    "host.sampled", "run.stepped", "run.signalled", "run.ended", "run.result",
)  # fmt: skip
"""The kinds of event that a bundle holds."""

_EPOCH = (1980, 1, 1, 0, 0, 0)  # of every member: the time of making is in the manifest


def write_bundle(
    path: Path,
    manifest: Manifest,
    runs: Iterable[Run],
    events: Callable[[Run], Iterable[Event]],
    captures: Callable[[Run], Path],
) -> tuple[Manifest, int]:
    """Write a bundle to ``path``, which appears, or is replaced, only when it is whole.

    ``runs`` in the order of ``manifest.runs``, whose ``ranks`` say which directories ``rank<r>`` of
    ``captures(run)`` go in. Returns the manifest with its members, and the file's size in bytes.
    Raises :class:`BundleError`.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        members: dict[str, Member] = {}
        with zipfile.ZipFile(part, "w") as archive:
            for facts, run in zip(manifest.runs, runs, strict=True):
                name = f"runs/{facts.n}.jsonl"
                members[name] = _add(archive, name, _lines(events(run), run), deflate=True)
                records = sum(m.bytes for n, m in members.items() if n.endswith(".jsonl"))
                if records > MAX_ALL_RECORDS:
                    raise BundleError(
                        f"The runs left more than {MAX_ALL_RECORDS >> 20} MB of records, which a "
                        "bundle does not hold. Record it with fewer seeds, or a shorter training."
                    )
                for rank in facts.ranks:
                    members |= _capture(archive, facts.n, rank, captures(run) / f"rank{rank}")
            manifest = replace(manifest, members=members)
            _add(archive, MANIFEST, [manifest.text()], deflate=True)
            archive.comment = SEAL + b"0" * DIGEST
        size = _seal(part)
        part.replace(path)
    except OSError as err:
        raise BundleError(
            f"The bundle {path} could not be written ({err.strerror or err}). Check the free space "
            "and the rights of its directory."
        ) from err
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
    return manifest, size


def _add(
    archive: zipfile.ZipFile, name: str, pieces: Iterable[bytes], *, deflate: bool = False
) -> Member:
    if not MEMBER.fullmatch(name):
        raise AssertionError(f"a member that no reader takes: {name}")
    info = zipfile.ZipInfo(name, _EPOCH)
    info.compress_type = zipfile.ZIP_DEFLATED if deflate else zipfile.ZIP_STORED
    info.external_attr = 0o100600 << 16
    digest, size = hashlib.sha256(), 0
    with archive.open(info, "w", force_zip64=True) as out:
        for piece in pieces:
            digest.update(piece)
            size += len(piece)
            out.write(piece)
    return Member(digest.hexdigest(), size)


def _capture(archive: zipfile.ZipFile, n: int, rank: int, directory: Path) -> dict[str, Member]:
    found = {}
    for file in sorted(directory.iterdir()):
        name = f"capture/{n}/rank{rank}/{file.name}"
        if MEMBER.fullmatch(name) and file.is_file():
            with open(file, "rb") as stream:
                found[name] = _add(archive, name, _pieces(stream), deflate=file.suffix == ".json")
    return found


def _pieces(stream: BinaryIO) -> Iterator[bytes]:
    while piece := stream.read(CHUNK):
        yield piece


def _lines(events: Iterable[Event], run: Run) -> Iterator[bytes]:
    """The events of a run as JSON lines: kind, version, microseconds since its start, payload."""
    size = 0
    for event in events:
        if event.kind not in KINDS:
            continue
        head: JSON = {"kind": event.kind, "v": event.v, "at_us": max(0, event.ts_us - run.ts_us)}
        payload = encode_payload(event.body, event.extra)
        line = f'{json.dumps(head)[:-1]}, "payload": {payload}}}\n'.encode()
        size += len(line)
        if size > MAX_RECORDS:
            raise BundleError(
                f"Run #{run.number} of the reference left more than {MAX_RECORDS >> 20} MB of "
                "records, which a bundle does not hold. Record it with a shorter training."
            )
        yield line


def _seal(path: Path) -> int:
    """Put the hash of all that is before it into the last bytes of a file; returns its size."""
    with open(path, "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        digest = digest_of(file, size - DIGEST)
        file.seek(size - DIGEST)
        file.write(digest.hexdigest().encode())
        file.flush()
        os.fsync(file.fileno())
    return size


def digest_of(file: BinaryIO, size: int) -> hashlib._Hash:
    """SHA-256 of the first ``size`` bytes of a file; the file then stands behind them."""
    digest = hashlib.sha256()
    file.seek(0)
    while size > 0 and (piece := file.read(min(CHUNK, size))):
        digest.update(piece)
        size -= len(piece)
    return digest
