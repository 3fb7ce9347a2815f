"""Short hashes by which two batches, or two lists of keys, are told apart. No numpy, no pickle."""

import ctypes
import hashlib
from collections.abc import Mapping

MOST_BYTES = 65536  # of one batch
MOST_IDS = 4096
DEPTH = 6


def of_text(text):
    """Sixteen hex digits."""
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


def of_indices(items):
    """A hash of a sampler's item, or None where it holds something else than numbers or words."""
    items = items[:MOST_IDS]
    if not all(type(item) in (int, str, tuple) for item in items):
        return None
    return of_text(repr(items))


def in_order(items):
    """Whether indices rise in equal steps; None for fewer than four, or no numbers."""
    if len(items) < 4 or not all(type(item) is int for item in items):
        return None
    step = items[1] - items[0]
    return step > 0 and all(b - a == step for a, b in zip(items, items[1:]))


def of_batch(torch, batch):
    """(hash, length of the first tensor) of a batch on the host; each None where not known."""
    state = _Batch(torch)
    state.walk(batch, 0)
    known = state.tensors and not state.unknown
    return (state.hash.hexdigest() if known else None), state.rows


class _Batch:
    def __init__(self, torch):
        self.torch = torch
        self.hash = hashlib.blake2b(digest_size=8)
        self.left = MOST_BYTES
        self.tensors = 0
        self.rows = None
        self.unknown = False

    def walk(self, value, depth):
        if isinstance(value, self.torch.Tensor):
            self._tensor(value)
        elif isinstance(value, Mapping) and depth < DEPTH:
            for key in value:
                self.walk(value[key], depth + 1)
        elif isinstance(value, (list, tuple)) and depth < DEPTH:
            for item in value[:MOST_IDS]:
                self.walk(item, depth + 1)
        elif isinstance(value, (str, bytes, int, float)) and self.left > 0:
            text = repr(value)[:200].encode("utf-8", "replace")
            self.left -= len(text)
            self.hash.update(text)

    def _tensor(self, tensor):
        if self.rows is None and tensor.dim():
            self.rows = int(tensor.shape[0])
        plain = type(tensor) in (self.torch.Tensor, self.torch.nn.Parameter)
        if not plain or not tensor.is_cpu or tensor.layout is not self.torch.strided:
            self.unknown = True  # reading it may cost a transfer
            return
        self.tensors += 1
        if self.left <= 0 or not tensor.numel():
            return
        part = tensor.detach()
        while not part.is_contiguous():  # then a part of it, which is a small copy
            if part.numel() * part.element_size() <= MOST_BYTES:
                part = part.contiguous()
            else:
                part = part[0]
        size = min(part.numel() * part.element_size(), self.left)
        self.left -= size
        self.hash.update(ctypes.string_at(part.data_ptr(), size))
