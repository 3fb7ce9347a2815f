"""Tensors on the host and in files: the safetensors format by hand, sketches, relative errors.

The probe may import nothing but the standard library, so the format (8 bytes of header length,
a JSON header, raw little-endian data without gaps) is written and read here. Nothing that was read
from a file is trusted: a file that does not add up raises ValueError, and no memory is mapped,
for a file that is cut off while it is mapped would end the host.
"""

import ctypes
import hashlib
import json
import math
import os
import struct
import sys

MAX_HEADER = 64 * 1024 * 1024  # bytes
CHUNK = 4 * 1024 * 1024  # bytes at a time on their way to a file or a hash
ELEMENTS = 4 * 1024 * 1024  # at a time in float64: 32 MiB
SKETCH = 4096  # elements of a sketch, at most
TINY = 1e-30

# dtype -> (name in the file, bytes). C128 is ours, the others are those of safetensors.
_DTYPES = {
    "float64": ("F64", 8),
    "float32": ("F32", 4),
    "float16": ("F16", 2),
    "bfloat16": ("BF16", 2),
    "float8_e4m3fn": ("F8_E4M3", 1),
    "float8_e5m2": ("F8_E5M2", 1),
    "int64": ("I64", 8),
    "int32": ("I32", 4),
    "int16": ("I16", 2),
    "int8": ("I8", 1),
    "uint8": ("U8", 1),
    "uint16": ("U16", 2),
    "uint32": ("U32", 4),
    "uint64": ("U64", 8),
    "bool": ("BOOL", 1),
    "complex64": ("C64", 8),
    "complex128": ("C128", 16),
}
_NAMES = {name: (dtype, size) for dtype, (name, size) in _DTYPES.items()}


def _torch():
    return sys.modules["torch"]


def dtype_name(tensor):
    """Such as ``float32``."""
    return str(tensor.dtype).replace("torch.", "")


def host(tensor):
    """The tensor as a detached, contiguous, dense one on the CPU, of its own dtype.

    It shares memory with a tensor that is such a one already. Raises ValueError for a tensor
    without values (device ``meta``), and for one that is split over processes (a DTensor).
    """
    tensor = tensor.detach()
    if tensor.device.type == "meta":
        raise ValueError("a tensor on the device meta has no values")
    if hasattr(tensor, "to_local"):
        raise ValueError("a tensor that is split over processes cannot be read by one")
    if getattr(tensor, "is_quantized", False):
        tensor = tensor.dequantize()
    if str(tensor.layout) != "torch.strided":
        tensor = tensor.to_dense()
    tensor = tensor.cpu()
    for resolve in ("resolve_conj", "resolve_neg"):
        if hasattr(tensor, resolve):
            tensor = getattr(tensor, resolve)()
    return tensor.contiguous()


def nbytes(tensor):
    """How many bytes its elements take."""
    return tensor.numel() * tensor.element_size()


def _pieces(tensor):
    """The bytes of a host tensor, piece by piece, as memoryviews of its own memory."""
    if sys.byteorder != "little":
        raise ValueError("this machine is big-endian, the files are little-endian")
    left, at = nbytes(tensor), tensor.data_ptr()
    while left:
        size = min(left, CHUNK)
        yield memoryview((ctypes.c_char * size).from_address(at)).cast("B")
        at, left = at + size, left - size


def sha256(tensor):
    """Of the elements' bytes in row-major order, as 64 hexadecimal digits."""
    tensor = host(tensor)
    digest = hashlib.sha256()
    for piece in _pieces(tensor):
        digest.update(piece)
    return digest.hexdigest()


# --- files -----------------------------------------------------------------------------------


class Writer:
    """Writes one file, tensor by tensor; it appears under its name when it is whole."""

    def __init__(self, path):
        self.path = str(path)
        self.entries = {}
        self.bytes = 0
        self._data = open(self.path + ".data", "wb")

    def add(self, key, tensor):
        """Append a tensor from any device. Raises ValueError for a dtype the format lacks."""
        if key in self.entries:
            raise ValueError("%s is in the file already" % key)
        tensor = host(tensor)
        known = _DTYPES.get(dtype_name(tensor))
        if known is None:
            raise ValueError("tensors of dtype %s cannot be written" % dtype_name(tensor))
        self._data.seek(self.bytes)  # after a tensor that failed half-way
        for piece in _pieces(tensor):
            self._data.write(piece)
        end = self.bytes + nbytes(tensor)
        self.entries[key] = {
            "dtype": known[0],
            "shape": list(tensor.shape),
            "data_offsets": [self.bytes, end],
        }
        self.bytes = end

    def finish(self):
        """Put the header before the data and the file under its name."""
        self._data.truncate(self.bytes)
        self._data.close()
        header = json.dumps(self.entries).encode("utf-8")
        header += b" " * (-len(header) % 8)
        with open(self.path + ".tmp", "wb") as out, open(self.path + ".data", "rb") as data:
            out.write(struct.pack("<Q", len(header)))
            out.write(header)
            for piece in iter(lambda: data.read(CHUNK), b""):
                out.write(piece)
        os.replace(self.path + ".tmp", self.path)
        os.remove(self.path + ".data")

    def discard(self):
        """Leave no file."""
        self._data.close()
        os.remove(self.path + ".data")


class Reader:
    """Reads tensors from one file. Raises OSError or ValueError where it is not a whole one."""

    def __init__(self, path):
        self.path = str(path)
        self._file = open(self.path, "rb", buffering=0)
        try:
            self._entries = self._header()
        except BaseException:
            self._file.close()
            raise

    def _header(self):
        size = os.fstat(self._file.fileno()).st_size
        start = self._file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else -1  # bytes of the header
        if not 2 <= length <= min(MAX_HEADER, size - 8):
            raise ValueError("%s is cut off or no file of tensors" % self.path)
        try:
            entries = json.loads(self._file.read(length).decode("utf-8"))
        except (ValueError, RecursionError):
            entries = None
        if not isinstance(entries, dict):
            raise ValueError("the header of %s cannot be read" % self.path)
        entries.pop("__metadata__", None)
        return {key: _entry(self.path, key, e, size, 8 + length) for key, e in entries.items()}

    def keys(self):
        """The keys in the order in which they were added."""
        return list(self._entries)

    def __contains__(self, key):
        return key in self._entries

    def shape(self, key):
        """The shape as a tuple, without reading the tensor."""
        return self._entries[key][1]

    def dtype(self, key):
        """Such as ``float32``, without reading the tensor."""
        return self._entries[key][0]

    def get(self, key):
        """The tensor, in memory of its own. KeyError, ValueError and OSError as they come."""
        torch = _torch()
        dtype, shape, at, size = self._entries[key]
        kind = getattr(torch, dtype, None)
        if kind is None:
            raise ValueError("this torch has no dtype %s" % dtype)
        if not size:
            return torch.empty(shape, dtype=kind)
        data, done = bytearray(size), 0
        self._file.seek(at)
        while done < size:  # one read gives 2 GiB at most
            got = self._file.readinto(memoryview(data)[done:])
            if not got:
                raise ValueError("%s is cut off" % self.path)
            done += got
        return torch.frombuffer(data, dtype=kind).reshape(shape)

    def close(self):
        """Nothing can be read any more."""
        self._file.close()


def _entry(path, key, entry, file_size, base):
    """(dtype, shape, position in the file, bytes) of one entry of a header, checked."""
    wrong = ValueError("the entry %.80r in the header of %s is not valid" % (key, path))
    if not isinstance(entry, dict) or not isinstance(entry.get("dtype"), str):
        raise wrong
    dtype, element = _NAMES.get(entry["dtype"], (None, 0))
    shape, offsets = entry.get("shape"), entry.get("data_offsets")
    for numbers in (shape, offsets):
        if not isinstance(numbers, list) or not all(type(n) is int and n >= 0 for n in numbers):
            raise wrong
    if dtype is None or len(offsets) != 2 or len(shape) > 64:
        raise wrong
    elements = 1
    for n in shape:
        elements *= n
    start, end = offsets
    if end - start != elements * element or base + end > file_size:
        raise wrong
    return dtype, tuple(shape), base + start, end - start


# --- numbers ---------------------------------------------------------------------------------


def _flat(tensor):
    tensor = host(tensor).reshape(-1)
    if tensor.is_complex():
        tensor = _torch().view_as_real(tensor).reshape(-1)
    return tensor


def _doubles(flat, start):
    return flat[start : start + ELEMENTS].to(_torch().float64)


def norm(tensor):
    """The 2-norm, in float64."""
    flat = _flat(tensor)
    return math.hypot(*[float(_doubles(flat, a).norm()) for a in range(0, flat.numel(), ELEMENTS)])


def relative_l2(mine, reference, floor=TINY):
    """``||mine - reference|| / max(||reference||, floor)`` over all elements, in float64.

    Infinite where one has a NaN or an infinity that the other does not have at that place.
    Raises ValueError where the numbers of elements differ.
    """
    torch = _torch()
    mine, reference = _flat(mine), _flat(reference)
    if mine.numel() != reference.numel():
        raise ValueError("%d elements against %d" % (mine.numel(), reference.numel()))
    apart, size = [], []
    for at in range(0, mine.numel(), ELEMENTS):
        a, b = _doubles(mine, at), _doubles(reference, at)
        wild = ~(torch.isfinite(a) & torch.isfinite(b))
        if bool(wild.any()):
            same = (a == b) | (torch.isnan(a) & torch.isnan(b))
            if bool((wild & ~same).any()):
                return math.inf
            a, b = a.masked_fill(wild, 0.0), b.masked_fill(wild, 0.0)
        apart.append(float((a - b).norm()))
        size.append(float(b.norm()))
    return math.hypot(*apart) / max(math.hypot(*size), floor)


def sketch(tensor):
    """(stride, sample): each ``stride``-th element of the flattened tensor, 4096 at most, float32.

    The sample of a complex tensor is of its real and imaginary parts in turn.
    """
    flat = _flat(tensor)
    stride = max(1, -(-flat.numel() // SKETCH))
    return stride, flat[::stride].to(_torch().float32).contiguous()


def sampled(tensor, stride):
    """The elements of another tensor that ``sketch`` would take with that stride."""
    return _flat(tensor)[::stride].to(_torch().float32).contiguous()
