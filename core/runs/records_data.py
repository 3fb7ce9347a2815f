"""Records of what a run reads and writes: its data loaders, what it saves and what it loads.

All of them are written in both modes of the probe, at the end of a pass over the data, at a save
or at a load: never in each step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from core.runs import record_fields as fields
from core.runs.record_fields import MAX_ITEMS, Record


def _maybe_numbers(value: Any) -> dict[str, float | None]:
    if not isinstance(value, dict):
        return {}
    read: Callable[[Any], float | None] = fields.number
    return {fields.string(k): read(v) for k, v in list(value.items())[:MAX_ITEMS]}


@dataclass(frozen=True, slots=True)
class DataRecord(Record):
    """One pass over a ``DataLoader``, written when its iterator was used up, dropped or replaced.

    ``loader`` and ``iterator`` count from 1 in the order of first use in the process. ``role`` is
    what followed on its first batch: forward passes in training (``train``) or in evaluation
    (``eval``). ``batches`` were handed out; ``samples`` are the indices that the sampler gave for
    them, so what a batch is padded with does not count (None: not known). ``complete``: the sampler
    was used up. ``rows``: length of the first batch's first tensor. ``first`` is a hash of the
    first batch (tensors on the host), ``first_ids`` of its indices, and ``in_order`` whether these
    rise in equal steps, as they do without shuffling.
    """

    K: ClassVar[str] = "data"
    loader: int | None = fields.entry(fields.count)
    iterator: int | None = fields.entry(fields.count)
    role: str | None = fields.entry(fields.text)
    batches: int | None = fields.entry(fields.count)
    samples: int | None = fields.entry(fields.count)
    complete: bool | None = fields.entry(fields.flag)
    dataset_len: int | None = fields.entry(fields.count)
    batch_size: int | None = fields.entry(fields.count)
    drop_last: bool | None = fields.entry(fields.flag)
    sampler: str | None = fields.entry(fields.text)
    workers: int | None = fields.entry(fields.count)
    iterable: bool | None = fields.entry(fields.flag)
    rows: int | None = fields.entry(fields.count)
    first: str | None = fields.entry(fields.text)
    first_ids: str | None = fields.entry(fields.text)
    in_order: bool | None = fields.entry(fields.flag)


@dataclass(frozen=True, slots=True)
class SavedRecord(Record):
    """A file of tensors was written; ``format`` is ``torch.save`` or ``safetensors``.

    ``path`` is the file's name alone (None: into an open file). ``tensors`` and ``elements`` count
    what holds real numbers and has a dimension, so that random states and counters, which differ
    by device, are no part of it; ``keys_hash`` is of their sorted names. ``norms``: 2-norms of at
    most 100 of them, spread evenly, None where a tensor is on a lazy device or past the budget.
    ``n``: optimizer steps done by then.
    """

    K: ClassVar[str] = "saved"
    path: str | None = fields.entry(fields.text)
    format: str | None = fields.entry(fields.text)
    tensors: int | None = fields.entry(fields.count)
    elements: int | None = fields.entry(fields.count)
    norms: Mapping[str, float | None] = fields.entry(_maybe_numbers)
    keys_hash: str | None = fields.entry(fields.text)
    n: int | None = fields.entry(fields.count)


@dataclass(frozen=True, slots=True)
class LoadedRecord(Record):
    """``load_state_dict`` of a ``module``, an ``optimizer`` or a ``scheduler`` (``what``).

    ``keys`` were given to it; ``missing`` and ``unexpected`` count keys of a module that the two
    sides do not share. ``state_tensors``: of an optimizer after loading, as in its own record.
    ``n``: optimizer steps done by then.
    """

    K: ClassVar[str] = "loaded"
    what: str | None = fields.entry(fields.text)
    cls: str | None = fields.entry(fields.text)
    keys: int | None = fields.entry(fields.count)
    missing: int | None = fields.entry(fields.count)
    unexpected: int | None = fields.entry(fields.count)
    state_tensors: int | None = fields.entry(fields.count)
    n: int | None = fields.entry(fields.count)


#: The kinds of this module, by ``k``.
DATA_KINDS: Mapping[str, type[Record]] = {
    cls.K: cls for cls in (DataRecord, SavedRecord, LoadedRecord)
}
