"""Reading a bundle of a stranger's: nothing is used before it is checked, nothing is executed.

Members are JSON and safetensors, never pickle. Their names are of a fixed form, so that none can
leave its directory; their number, sizes and places are bounded; the whole file and each member
has the hash that was written with it; headers of tensor files and events add up.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from core.body import Body
from core.events import RunEnded, RunStarted, Unknown, decode_body
from core.reference.bundle import (
    CHUNK,
    DIGEST,
    KINDS,
    MAX_ALL_RECORDS,
    MAX_RECORDS,
    SEAL,
    digest_of,
)
from core.reference.manifest import (
    MANIFEST,
    MEMBER,
    BundleError,
    RunFacts,
    read_manifest,
)
from core.reference.safetensors import Tensor, TensorError, read_header
from core.text import clean

MAX_MEMBERS = 20_000
MAX_JSON = {"manifest.json": 32 << 20, "index.json": 64 << 20}  # bytes
MAX_LINE = 64 << 20  # bytes of one event
MAX_TENSORS = 1 << 40  # bytes of all files of tensors
_UNREADABLE = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError, NotImplementedError, RuntimeError,
    OverflowError,
)  # fmt: skip
"""What reading a zip may raise, besides OSError, where the file is not as it should be."""


class Bundle:
    """An open bundle, checked as a whole; a context manager.

    ``sha256`` is the file's, ``size`` its bytes. Raises :class:`BundleError` for what is no
    bundle, cut off, changed, or of a newer version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = clean(str(path))
        try:
            self._file: BinaryIO = open(path, "rb", opener=_never_waiting)  # noqa: SIM115  # closed by __exit__
        except FileNotFoundError:
            raise BundleError(f"There is no bundle {self.name}.") from None
        except (OSError, ValueError) as err:
            raise BundleError(f"The bundle {self.name} can't be read: {_why(err)}.") from err
        try:
            if not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
                raise BundleError(
                    f"{self.name} is no bundle: it is a pipe or a device, and a bundle is a file."
                )
            self._open()
        except OSError as err:
            self._file.close()
            raise BundleError(f"The bundle {self.name} can't be read: {_why(err)}.") from err
        except BaseException:
            self._file.close()
            raise

    def _open(self) -> None:
        self.size = self._file.seek(0, os.SEEK_END)
        self._file.seek(0)
        begin = self._file.read(4)
        if not self.size:
            raise BundleError(f"{self.name} is empty. Copy the bundle again.")
        try:
            self._zip = zipfile.ZipFile(self._file)
            self._infos = self._places()
            self.manifest = read_manifest(self._small(MANIFEST), self.name)
        except _UNREADABLE as err:
            if begin == b"PK\x03\x04":
                why = _why(err).replace("File is not a zip file", "its end is missing")
                raise BundleError(
                    f"{self.name} is cut off or damaged ({why}). Copy the bundle again, and compare "
                    "the sizes."
                ) from err
            raise BundleError(
                f"{self.name} is no reference bundle: it is not a zip file. Give a file made by "
                "`pilotage reference record`."
            ) from err
        self._seal()
        self._agree()

    def __enter__(self) -> Bundle:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()
        self._file.close()

    # --- the file as a whole -----------------------------------------------------------------

    def _places(self) -> dict[str, zipfile.ZipInfo]:
        """The members by name, once their names, kinds, sizes and places are in order."""
        infos = self._zip.infolist()
        if len(infos) > MAX_MEMBERS:
            raise BundleError(
                f"{self.name} has {len(infos)} members; a bundle has {MAX_MEMBERS} at most."
            )
        found: dict[str, zipfile.ZipInfo] = {}
        for info in infos:
            shown = clean(info.filename)[:80]
            if info.filename != info.orig_filename or not MEMBER.fullmatch(info.filename):
                raise BundleError(f"{self.name} has a member {shown!r}, which no bundle has.")
            if info.filename in found:
                raise BundleError(f"{self.name} has the member {shown!r} twice.")
            kind = info.external_attr >> 16 & 0o170000
            stored = info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
            if kind not in (0, 0o100000) or info.flag_bits & 1 or not stored:
                raise BundleError(f"{self.name}: the member {shown!r} is no plain file.")
            if info.file_size > _limit(info.filename):
                raise BundleError(
                    f"{self.name}: the member {shown!r} is {info.file_size:,} bytes, which is more "
                    "than it may be."
                )
            if info.filename.endswith(".safetensors") and info.compress_size != info.file_size:
                raise BundleError(f"{self.name}: the member {shown!r} is compressed.")
            found[info.filename] = info
        # Members that share bytes of the file are how a small zip unpacks to petabytes.
        at = 0
        for info in sorted(infos, key=lambda i: i.header_offset):
            if info.header_offset < at:
                raise BundleError(f"{self.name}: two of its members overlap.")
            at = info.header_offset + info.compress_size
        if at > self.size or sum(i.file_size for i in infos) > MAX_TENSORS:
            raise BundleError(f"{self.name}: its members are larger than the file can hold.")
        if sum(i.file_size for i in infos if i.filename.endswith(".jsonl")) > MAX_ALL_RECORDS:
            raise BundleError(
                f"{self.name} has more than {MAX_ALL_RECORDS >> 20} MB of records of runs, which no "
                "bundle has."
            )
        if MANIFEST not in found:
            raise BundleError(
                f"{self.name} is no reference bundle: it has no {MANIFEST}. Give a file made by "
                "`pilotage reference record`."
            )
        return found

    def _seal(self) -> None:
        """The file is what was written, to the byte."""
        self._file.seek(max(0, self.size - DIGEST - len(SEAL)))
        end = self._file.read()
        digest = digest_of(self._file, max(0, self.size - DIGEST))
        seal = digest.hexdigest().encode()
        digest.update(end[-DIGEST:])
        self.sha256 = digest.hexdigest()
        if end == SEAL + seal:
            return
        comment = self._zip.comment
        if (
            comment
            and len(comment) < len(SEAL) + DIGEST
            and comment[:20] == SEAL[: len(comment)][:20]
        ):
            raise BundleError(
                f"{self.name} is cut off: its last bytes are missing. Copy the bundle again."
            )
        self._agree()
        for name in self.manifest.members:
            for _ in self._checked(name):
                pass
        raise BundleError(
            f"{self.name} was changed after it was made: its seal does not fit what is in it. "
            "Copy the bundle again, or record it again."
        )

    def _changed(self, name: str) -> BundleError:
        return BundleError(
            f"{self.name}: {name} is not what was recorded: its hash is another than the manifest "
            "says. It was damaged or changed; copy the bundle again, or record it again."
        )

    def _agree(self) -> None:
        """The manifest and the zip name the same members."""
        manifest = self.manifest
        there = set(self._infos) - {MANIFEST}
        named = set(manifest.members)
        wanted = {f"runs/{run.n}.jsonl" for run in manifest.runs} | {
            f"capture/{run.n}/rank{rank}/index.json" for run in manifest.runs for rank in run.ranks
        }
        for name in sorted((named | wanted) - (there & named)):
            raise BundleError(
                f"{self.name} has no {name}, which its manifest speaks of. It was cut off or "
                "changed; copy the bundle again, or record it again."
            )
        for name in sorted(there - named):
            raise BundleError(f"{self.name} has {name}, of which its manifest knows nothing.")
        for name, member in manifest.members.items():
            if self._infos[name].file_size != member.bytes:
                raise self._changed(name)

    # --- members -----------------------------------------------------------------------------

    def _read(self, name: str) -> Iterator[bytes]:
        """The content of a member, piece by piece, never more than the zip says of its size."""
        left = self._infos[name].file_size
        try:
            with self._zip.open(self._infos[name]) as stream:
                while piece := stream.read(CHUNK):
                    left -= len(piece)
                    if left < 0:
                        raise BundleError(f"{self.name}: {name} is larger than it says.")
                    yield piece
        except _UNREADABLE as err:
            raise BundleError(
                f"{self.name}: {name} can't be read ({_why(err)}). The bundle is damaged; copy it "
                "again."
            ) from err
        except OSError as err:
            raise BundleError(f"The bundle {self.name} can't be read: {_why(err)}.") from err
        if left:
            raise BundleError(f"{self.name}: {name} is cut off. Copy the bundle again.")

    def _small(self, name: str) -> bytes:
        return b"".join(self._read(name))

    def _checked(self, name: str) -> Iterator[bytes]:
        """As ``_read``; raises behind the last piece where the hash is another."""
        digest = hashlib.sha256()
        for piece in self._read(name):
            digest.update(piece)
            yield piece
        if digest.hexdigest() != self.manifest.members[name].sha256:
            raise self._changed(name)

    def events(self, run: RunFacts) -> list[tuple[int, Body, dict[str, object]]]:
        """The events of a run: microseconds since its start, body, fields not known here.

        Kinds that this release does not know are passed over. Raises :class:`BundleError` where
        they are not those of one run of the reference, from its start to its end.
        """
        name = f"runs/{run.n}.jsonl"
        found = []
        rest = b""
        for piece in self._checked(name):
            lines = (rest + piece).split(b"\n")
            rest = lines.pop()
            if len(rest) > MAX_LINE:
                raise BundleError(f"{self.name}: {name} has a line that is too long.")
            found += [e for line in lines if line and (e := self._event(name, line))]
        if rest:
            raise BundleError(f"{self.name}: the last line of {name} is cut off.")
        bodies = [body for _, body, _ in found]
        first = bodies[0] if bodies else None
        whole = (
            isinstance(first, RunStarted) and sum(isinstance(b, RunStarted) for b in bodies) == 1
        )
        if not whole or sum(isinstance(b, RunEnded) for b in bodies) != 1:
            raise BundleError(f"{self.name}: {name} is not the record of one run, start to end.")
        assert isinstance(first, RunStarted)
        said = (first.purpose, first.of, first.seed)
        if said != (run.purpose, run.of, run.seed) or not is_reference(first.purpose, first.of):
            raise BundleError(f"{self.name}: {name} is of another run than its manifest says.")
        return found

    def _event(self, name: str, line: bytes) -> tuple[int, Body, dict[str, object]] | None:
        wrong = BundleError(f"{self.name}: {name} has a line that is no event.")
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as err:
            raise wrong from err
        if not isinstance(row, dict):
            raise wrong
        kind, v, at, payload = (row.get(k) for k in ("kind", "v", "at_us", "payload"))
        if not isinstance(kind, str) or type(v) is not int or type(at) is not int:
            raise wrong
        if kind not in KINDS:
            return None
        if not 0 <= at < 2**52 or not isinstance(payload, dict):
            raise wrong
        body, extra = decode_body(kind, v, payload)
        if isinstance(body, Unknown):
            raise BundleError(f"{self.name}: {name} has a {kind} that can't be read.")
        return at, body, extra

    def index(self, run: RunFacts, rank: int) -> dict[str, object]:
        """``index.json`` of a capture. Raises :class:`BundleError` where it is none."""
        name = f"capture/{run.n}/rank{rank}/index.json"
        raw = b"".join(self._checked(name))
        try:
            data = json.loads(raw)
        except (ValueError, RecursionError) as err:
            raise BundleError(f"{self.name}: {name} is not JSON.") from err
        if not isinstance(data, dict) or data.get("format") != 1:
            raise BundleError(f"{self.name}: {name} is of a form that this version can't read.")
        return data

    def extract(self, run: RunFacts, directory: Path) -> None:
        """Write the tensors of a run to ``directory/rank<r>/...``; a header that does not add up
        raises :class:`BundleError`, and whatever goes wrong leaves nothing there."""
        begin = f"capture/{run.n}/"
        names = sorted(n for n in self.manifest.members if n.startswith(begin))
        names.sort(key=lambda n: n.endswith("index.json"))  # last, as the probe writes it
        try:
            for name in names:
                target = directory / PurePosixPath(name.removeprefix(begin))
                target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                with open(target, "xb") as out:
                    for piece in self._checked(name):
                        out.write(piece)
                if name.endswith(".safetensors"):
                    with open(target, "rb") as file:
                        read_header(file, target.stat().st_size)
                else:
                    self.index(run, int(target.parent.name.removeprefix("rank")))
        except BaseException as err:
            shutil.rmtree(directory, ignore_errors=True)
            if isinstance(err, TensorError):
                raise BundleError(
                    f"{self.name}: {name} is no file of tensors: {err}. It was not written by "
                    "`pilotage reference record`."
                ) from err
            if isinstance(err, OSError):
                raise BundleError(
                    f"The tensors of {self.name} can't be written to {directory} ({_why(err)}). "
                    "Check the free space."
                ) from err
            raise

    def check(self) -> None:
        """Look at all of it that has not been looked at: events, indexes, headers of tensors."""
        for run in self.manifest.runs:
            self.events(run)
            for rank in run.ranks:
                self.index(run, rank)
        for name in self.manifest.members:
            if name.endswith(".safetensors"):
                for _ in self._checked(name):
                    pass
                self.tensors(name)

    def tensors(self, name: str) -> dict[str, Tensor]:
        """The tensors of a member, by its header; raises :class:`BundleError`."""
        try:
            with self._zip.open(self._infos[name]) as stream:
                return read_header(stream, self._infos[name].file_size)  # type: ignore[arg-type]
        except TensorError as err:
            raise BundleError(f"{self.name}: {name} is no file of tensors: {err}.") from err
        except _UNREADABLE as err:
            raise BundleError(f"{self.name}: {name} can't be read ({_why(err)}).") from err


def _never_waiting(path: str, flags: int) -> int:
    """Opens as ``open`` does, and a pipe that nobody writes to without waiting for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def is_reference(purpose: str, of: str) -> bool:
    """Whether a run with these words in its start is one of the reference's."""
    return (purpose == "reference" and not of) or (
        purpose == "parity" and of.split(" ")[0] == "reference"
    )


def _limit(name: str) -> int:
    if name.endswith(".jsonl"):
        return MAX_RECORDS
    if name.endswith(".json"):
        return MAX_JSON[name.rpartition("/")[2]]
    return MAX_TENSORS


def _why(err: BaseException) -> str:
    if isinstance(err, OSError) and err.strerror:
        return clean(err.strerror)
    return clean(str(err) or type(err).__name__)[:200].rstrip(".")
