"""Files of tensors in the safetensors format, looked at without torch and without trust.

8 bytes (little-endian) of header length, a JSON header ``{key: {dtype, shape, data_offsets}}``,
then the raw little-endian elements. https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import math
import struct
import sys
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

MAX_HEADER = 64 << 20  # bytes, as the probe's reader

SIZES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "I64": 8, "I32": 4, "I16": 2,
    "I8": 1, "U8": 1, "U16": 2, "U32": 4, "U64": 8, "BOOL": 1, "C64": 8, "C128": 16,
}  # fmt: skip
"""Bytes of one element, by dtype. C128 is ours, the others are the format's."""

_CODES = {
    "F64": "d", "F32": "f", "I64": "q", "I32": "i", "I16": "h", "I8": "b", "U8": "B", "BOOL": "B",
    "U16": "H", "U32": "I", "U64": "Q", "C64": "f", "C128": "d",
}  # fmt: skip

MAX_ELEMENTS = 65_536
"""Of one tensor that are compared; of a larger one each n-th is taken, and that is said."""


class TensorError(ValueError):
    """A file is no whole file of tensors; the message is a clause that begins with *its*."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """Where one tensor is: ``start`` and ``end`` in bytes from the beginning of the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def elements(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)


def read_header(file: BinaryIO, size: int) -> dict[str, Tensor]:
    """The tensors of an open file of ``size`` bytes, in the order of their places.

    Raises :class:`TensorError` where an entry lies outside of the file, overlaps another one, has
    a dtype that is not known or does not add up.
    """
    start = file.read(8)
    length = struct.unpack("<Q", start)[0] if len(start) == 8 else -1
    if not 2 <= length <= min(MAX_HEADER, size - 8):
        raise TensorError("its header is cut off")
    raw = file.read(length)
    try:
        entries = json.loads(raw)
    except (ValueError, RecursionError) as err:
        raise TensorError("its header is not JSON") from err
    if not isinstance(entries, dict):
        raise TensorError("its header is no object")
    entries.pop("__metadata__", None)
    found = {key: _entry(key, row, 8 + length, size) for key, row in entries.items()}
    placed = sorted(found.items(), key=lambda item: (item[1].start, item[1].end))
    at = 8 + length
    for key, tensor in placed:
        if tensor.start < at:
            raise TensorError(f"its tensor {key[:80]!r} overlaps another one")
        at = tensor.end
    return dict(placed)


def _entry(key: str, row: object, base: int, size: int) -> Tensor:
    wrong = TensorError(f"its tensor {key[:80]!r} is not described as one")
    if not isinstance(row, dict):
        raise wrong
    dtype, shape, offsets = row.get("dtype"), row.get("shape"), row.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in SIZES:
        raise TensorError(f"its tensor {key[:80]!r} has a dtype that is not known")
    for numbers in (shape, offsets):
        if not isinstance(numbers, list) or not all(type(n) is int and n >= 0 for n in numbers):
            raise wrong
    assert isinstance(shape, list) and isinstance(offsets, list)
    if len(offsets) != 2 or len(shape) > 64:
        raise wrong
    start, end = offsets
    if end - start != math.prod(shape) * SIZES[dtype] or base + end > size:
        raise TensorError(f"its tensor {key[:80]!r} lies outside of the file")
    return Tensor(dtype, tuple(shape), base + start, base + end)


class TensorFile:
    """An open file; a context manager. Raises OSError and :class:`TensorError`."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "rb")  # noqa: SIM115  # closed by __exit__
        try:
            self.tensors = read_header(self._file, path.stat().st_size)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> TensorFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def raw(self, key: str) -> bytes:
        """The bytes of a tensor."""
        tensor = self.tensors[key]
        self._file.seek(tensor.start)
        return self._file.read(tensor.end - tensor.start)

    def values(self, key: str) -> tuple[array[float], bool] | None:
        """Its elements (each n-th of a large one) and whether some were left out.

        Complex elements are two each. None for a dtype that has no numbers here (float8).
        """
        tensor = self.tensors[key]
        if tensor.dtype not in _CODES and tensor.dtype not in ("F16", "BF16"):
            return None
        raw, stride = self.raw(key), -(-tensor.elements // MAX_ELEMENTS) or 1
        size = SIZES[tensor.dtype]
        if stride > 1:
            kept = range(0, len(raw), size * stride)
            raw = b"".join(raw[at : at + size] for at in kept)
        return _numbers(raw, tensor.dtype), stride > 1


def _numbers(raw: bytes, dtype: str) -> array[float]:
    if dtype == "F16":
        return array("d", struct.unpack(f"<{len(raw) // 2}e", raw))
    if dtype == "BF16":  # the upper half of a float32
        wide = bytearray(2 * len(raw))
        wide[2::4], wide[3::4] = raw[0::2], raw[1::2]
        raw, dtype = bytes(wide), "F32"
    values = array(_CODES[dtype])
    values.frombytes(raw)
    if sys.byteorder == "big":
        values.byteswap()
    return array("d", values)


def relative_l2(mine: array[float], reference: array[float]) -> float:
    """``||mine - reference|| / ||reference||``; infinite where only one has a NaN or an infinity.

    Both have as many elements. A difference from all zeros is infinite too.
    """
    apart = size = 0.0
    for a, b in zip(mine, reference, strict=True):
        if a == b:
            size += 0.0 if math.isinf(b) else b * b
            continue
        if not (math.isfinite(a) and math.isfinite(b)):
            if math.isnan(a) and math.isnan(b):
                continue
            return math.inf
        apart += (a - b) * (a - b)
        size += b * b
    if not apart:
        return 0.0
    return math.sqrt(apart) / math.sqrt(size) if size else math.inf


def error_between(
    mine: TensorFile, reference: TensorFile, key: str, other: str = ""
) -> tuple[float, bool] | None:
    """Relative L2 of a tensor in two files (``other``: its key in the second, where that is
    another) and whether it is of a sample.

    None where they can't be compared: another shape, a dtype without numbers here.
    """
    other = other or key
    a, b = mine.tensors[key], reference.tensors[other]
    if a.shape != b.shape:
        return None
    left, right = mine.values(key), reference.values(other)
    if left is None or right is None or len(left[0]) != len(right[0]):
        return None
    return relative_l2(left[0], right[0]), left[1]
