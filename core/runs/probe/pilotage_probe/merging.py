"""A reference of another number of ranks: its batches and activations put together, or divided.

A process that trains on the whole batch (SPMD, or one device) is held against all ranks of the
reference in a row; of several ranks each is held against its part of the one rank's batch, every
N-th row, as DistributedSampler would deal them out. Weights, and gradients after the reduce, are the
same on all ranks, and are the first one's.
"""

import os
import sys
from _thread import get_native_id

from . import ranks, replay, tensors


def opened(directory, rank):
    """The reference in ``directory`` as this rank is to see it. ValueError, OSError as they come."""
    there = sorted(
        int(name[4:])
        for name in os.listdir(directory)
        if name.startswith("rank") and name[4:].isdigit()
    )
    world = ranks.find(get_native_id(), True)[1] or 1
    if world == 1 and len(there) > 1:
        return Together(directory, there)
    if world > 1 and there == [0]:
        return Divided(directory, rank, world)
    return replay.Reference(directory, rank)


class Together(replay.Reference):
    """All ranks of the reference, for a process that trains on their whole batch."""

    def __init__(self, directory, there):
        replay.Reference.__init__(self, directory, there[0])
        others = [replay.Reference(directory, rank) for rank in there[1:]]
        parts = [self] + others
        rows = [_rows(part.index) for part in parts]
        given = [_indices(part.index["batches"]) for part in parts]

        def indices(n):
            every = [ids.get(n) for ids in given]
            return None if None in every else [one for ids in every for one in ids]

        self.index["batches"], self.batches, self.forward = _seen(
            self.index["batches"],
            Joined([part.batches for part in parts], None),
            Joined([part.forward for part in parts], rows),
            indices,
        )


class Divided(replay.Reference):
    """A reference of one rank, for one of several."""

    def __init__(self, directory, rank, world):
        replay.Reference.__init__(self, directory, 0)
        rows = _rows(self.index)
        given = _indices(self.index["batches"])

        def indices(n):
            return given[n][rank::world] if n in given else None

        self.index["batches"], self.batches, self.forward = _seen(
            self.index["batches"],
            Part(self.batches, None, rank, world),
            Part(self.forward, rows, rank, world),
            indices,
        )


def _indices(entries):
    """By number of the batch, the indices that the sampler gave, where they are known."""
    return {
        entry.get("n"): entry["ids"]
        for entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("ids"), list)
    }


def _rows(index):
    """Rows of the first batch: the first dimension of its tensors, or of a module's inputs; or 0."""
    for name, parts in (("batches", "leaves"), ("modules", "inputs")):
        for entry in index[name][:1]:
            leaves = entry.get(parts) if isinstance(entry, dict) else None
            for leaf in leaves if isinstance(leaves, list) else ():
                shape = leaf.get("shape") if isinstance(leaf, dict) else None
                if isinstance(shape, list) and shape and type(shape[0]) is int:
                    return shape[0]
    return 0


def _seen(entries, batches, forward, indices):
    """The index's batches as the readers give them: other shapes, hashes and indices."""
    batches = batches if batches.there() else None
    found = []
    for entry in entries if batches is not None else ():
        if not isinstance(entry, dict) or not isinstance(entry.get("leaves"), list):
            continue
        leaves = []
        for leaf in entry["leaves"]:
            key = "%s.%s" % (entry.get("n"), leaf.get("path"))
            if key in batches:
                tensor = batches.get(key)
                leaf = dict(leaf, shape=list(tensor.shape), sha256=tensors.sha256(tensor))
            leaves.append(leaf)
        found.append(dict(entry, leaves=leaves, ids=indices(entry.get("n"))))
    return found, batches, forward if forward.there() else None


class Joined:
    """Reads from several files at once; ``rows`` of a batch in each, None: all is batches."""

    def __init__(self, readers, rows):
        self.readers, self.rows = readers, rows

    def there(self):
        """Whether there are files to read from."""
        return all(reader is not None for reader in self.readers)

    def keys(self):
        """The keys that can be put together."""
        return [key for key in self.readers[0].keys() if key in self]

    def __contains__(self, key):
        if key.startswith("sketch.") or not all(key in reader for reader in self.readers):
            return False
        shapes = [reader.shape(key) for reader in self.readers]
        return self.rows is not None or not shapes[0] or self._axis(shapes) is not None

    def dtype(self, key):
        """Such as ``float32``, without reading the tensor."""
        return self.readers[0].dtype(key)

    def shape(self, key):
        """The shape as a tuple."""
        return tuple(self.get(key).shape)

    def get(self, key):
        """The tensor of all ranks; KeyError where it cannot be put together."""
        if key not in self:
            raise KeyError(key)
        torch = sys.modules["torch"]
        found = [reader.get(key) for reader in self.readers]
        first = found[0]
        if not first.dim() and self.rows is not None and first.is_floating_point():
            return torch.stack(found).mean(0)  # a loss that the model returns
        same = all(t.shape == first.shape and torch.equal(t, first) for t in found[1:])
        if self.rows is not None and same:
            return first  # positions, masks: nothing of the batch
        axis = self._axis([t.shape for t in found])
        if axis is None:
            if same:
                return first
            raise KeyError(key)
        return torch.cat(found, axis)

    def _axis(self, shapes):
        if self.rows is None:
            alike = all(shape[1:] == shapes[0][1:] for shape in shapes)
            return 0 if shapes[0] and alike else None
        for axis in range(len(shapes[0])):
            many = [shape[axis] for shape in shapes if len(shape) > axis]
            exact = axis > 0
            if len(many) == len(shapes) and all(
                rows and (n == rows if exact else n and n % rows == 0)
                for n, rows in zip(many, self.rows)
            ):
                return axis
        return None

    def close(self):
        """Nothing can be read any more."""
        for reader in self.readers:
            reader.close()


class Part:
    """Every ``world``-th row of what a file holds, from row ``rank`` on."""

    def __init__(self, reader, rows, rank, world):
        self.reader, self.rows, self.rank, self.world = reader, rows, rank, world

    def there(self):
        """Whether there is a file to read from."""
        return self.reader is not None

    def keys(self):
        """The keys in the order in which they were added."""
        return [key for key in self.reader.keys() if key in self]

    def __contains__(self, key):
        return not key.startswith("sketch.") and key in self.reader

    def dtype(self, key):
        """Such as ``float32``, without reading the tensor."""
        return self.reader.dtype(key)

    def shape(self, key):
        """The shape as a tuple."""
        return tuple(self.get(key).shape)

    def get(self, key):
        """This rank's rows; the whole of what has no rows of the batch. KeyError for a sample."""
        if key not in self:
            raise KeyError(key)
        tensor = self.reader.get(key)
        if not tensor.dim():
            if self.rows is not None and tensor.is_floating_point():
                raise KeyError(key)  # a loss over the whole batch
            return tensor
        rows = tensor.shape[0] if self.rows is None else self.rows
        if not rows or not tensor.numel():
            return tensor
        if tensor.shape[0] % rows:  # the rows may lie in another dimension
            axes = [axis for axis, size in enumerate(tensor.shape) if size == rows]
            if not axes:
                return tensor
            mine = sys.modules["torch"].arange(self.rank, rows, self.world)
            return tensor.index_select(axes[0], mine)
        rest = tuple(tensor.shape[1:])
        dealt = tensor.reshape((rows, tensor.shape[0] // rows) + rest)[self.rank :: self.world]
        return dealt.reshape((-1,) + rest).contiguous()

    def close(self):
        """Nothing can be read any more."""
        self.reader.close()
