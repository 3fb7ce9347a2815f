"""Records of a parity run that is held, tensor by tensor, against a reference's.

They are written where the probe was given a directory of the reference's tensors
(``PILOTAGE_PROBE_REFERENCE``), ``copies`` also where it writes one, ``precision`` in every parity run. Errors are relative L2:
``||a - b|| / ||b||`` over the elements of a tensor, ``b`` being the reference's, infinite where only
one side is finite. A name that is one of several roots' begins with the root's number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from core.runs import record_fields as fields
from core.runs.record_fields import MAX_ITEMS, Record, build

MAX_MODULES = 4000


def _errors(value: Any) -> dict[str, float]:
    if not isinstance(value, dict):
        return {}
    pairs = ((fields.string(k), fields.number(v)) for k, v in list(value.items())[:MAX_MODULES])
    return {name: error for name, error in pairs if error is not None}


@dataclass(frozen=True, slots=True)
class StartRecord(Record):
    """The weights and buffers before the first training forward pass, beside the reference's.

    Written anew with each root (module called from outside), in the order of their first passes,
    for all of the ``roots`` so far.
    ``matched``: names found on both sides, ``renamed`` of them by another name; ``missing`` are in
    the reference only, ``extra`` here only (buffers that no checkpoint holds are in neither).
    ``natural_error``: the largest error of the program's own weights, in ``worst``; 0 where they
    are the same. ``loaded``: the reference's took their place; ``why``: what prevented it, and
    what to do.
    """

    K: ClassVar[str] = "start"
    roots: int | None = fields.entry(fields.count)
    matched: int | None = fields.entry(fields.count)
    missing: tuple[str, ...] = fields.entry(fields.listed(fields.string))
    extra: tuple[str, ...] = fields.entry(fields.listed(fields.string))
    renamed: int | None = fields.entry(fields.count)
    unlike_shape: tuple[str, ...] = fields.entry(fields.listed(fields.string))
    dtype_unlike: tuple[str, ...] = fields.entry(fields.listed(fields.string))
    natural_error: float | None = fields.entry(fields.number)
    worst: str | None = fields.entry(fields.text)
    loaded: bool | None = fields.entry(fields.flag)
    why: str | None = fields.entry(fields.text)


@dataclass(frozen=True, slots=True)
class BatchRecord(Record):
    """The ``n``-th batch (from 0) of the training beside the reference's.

    ``source``: ``loader`` (as the DataLoader yielded it) or ``root`` (what the model was given).
    ``state``: ``same``, ``padded`` (the reference's, and more), ``reordered`` (its rows, or the same
    data set, in another order), ``unlike`` or ``missing`` (it was not drawn here). ``leaf`` is the path of the first tensor
    that differs, ``error`` its error; ``fed``: the program went on with the reference's.
    """

    K: ClassVar[str] = "batch"
    n: int | None = fields.entry(fields.count)
    source: str | None = fields.entry(fields.text)
    state: str | None = fields.entry(fields.text)
    leaf: str | None = fields.entry(fields.text)
    detail: str | None = fields.entry(fields.text)
    error: float | None = fields.entry(fields.number)
    fed: bool | None = fields.entry(fields.flag)


@dataclass(frozen=True, slots=True)
class ModuleError:
    """One call of a module, in the order in which calls end: what is inside comes first.

    ``error`` is of its output as it came about here, ``isolated`` of what it computes from the
    reference's own inputs (None: not known; a module that holds others is tried only where it
    differs in place). ``sketched``: estimated on a sample. ``shape_unlike``: compared where both
    have elements.
    """

    i: int | None = fields.entry(fields.count)
    name: str = fields.entry(fields.string)
    type: str = fields.entry(fields.string)
    leaf: bool | None = fields.entry(fields.flag)
    error: float | None = fields.entry(fields.number)
    isolated: float | None = fields.entry(fields.number)
    sketched: bool | None = fields.entry(fields.flag)
    shape_unlike: bool | None = fields.entry(fields.flag)
    dtype: str | None = fields.entry(fields.text)


def _modules(value: Any) -> tuple[ModuleError, ...]:
    if not isinstance(value, list):
        return ()
    return tuple(build(ModuleError, item) for item in value[:MAX_MODULES])


@dataclass(frozen=True, slots=True)
class ForwardRecord(Record):
    """The first training forward pass, module by module, of the ``roots`` so far.

    ``missing``: modules that were called in the reference only, ``extra``: here only.
    ``uncompared`` calls have a counterpart that could not be read, or none of them did.
    """

    K: ClassVar[str] = "forward"
    roots: int | None = fields.entry(fields.count)
    modules: tuple[ModuleError, ...] = fields.entry(_modules)
    compared: int | None = fields.entry(fields.count)
    uncompared: int | None = fields.entry(fields.count)
    missing: tuple[str, ...] = fields.entry(fields.listed(fields.string))
    extra: tuple[str, ...] = fields.entry(fields.listed(fields.string))
    why: str | None = fields.entry(fields.text)


@dataclass(frozen=True, slots=True)
class GradientsRecord(Record):
    """Gradients of an optimizer's first step (step ``n`` of the thread) before any clip.

    An error is relative to the reference's norm, but to at least a hundredth of the root mean
    square of all its gradients: what cancels out but for rounding (a bias before a batch norm) has
    no direction to agree on. ``missing``: parameters with a gradient in the reference only,
    ``extra``: here only. ``uncompared``: how many have no counterpart by name.
    """

    K: ClassVar[str] = "gradients"
    n: int | None = fields.entry(fields.count)
    errors: Mapping[str, float] = fields.entry(_errors)
    worst: str | None = fields.entry(fields.text)
    error: float | None = fields.entry(fields.number)
    missing: tuple[str, ...] = fields.entry(fields.listed(fields.string))
    extra: tuple[str, ...] = fields.entry(fields.listed(fields.string))
    uncompared: int | None = fields.entry(fields.count)
    why: str | None = fields.entry(fields.text)


@dataclass(frozen=True, slots=True)
class PrecisionRequest:
    """What the program asked of half precision, how often, and on which line of its own."""

    what: str = fields.entry(fields.string)
    count: int | None = fields.entry(fields.count)
    at: str | None = fields.entry(fields.text)


def _requests(value: Any) -> tuple[PrecisionRequest, ...]:
    if not isinstance(value, list):
        return ()
    return tuple(build(PrecisionRequest, item) for item in value[:MAX_ITEMS])


def _texts(value: Any) -> dict[str, str]:
    return fields.maybe_texts(value) or {}


@dataclass(frozen=True, slots=True)
class PrecisionRecord(Record):
    """What was asked of half precision; done if ``asked`` is ``own``, not done if it is ``fp32``.

    ``env``: variables that ask for it. ``compute``: dtype -> outputs of modules without children in
    the first training forward pass.
    """

    K: ClassVar[str] = "precision"
    asked: str | None = fields.entry(fields.text)
    requests: tuple[PrecisionRequest, ...] = fields.entry(_requests)
    env: Mapping[str, str] = fields.entry(_texts)
    compute: Mapping[str, int] = fields.entry(fields.counts)


@dataclass(frozen=True, slots=True)
class WeightCopy:
    """One copy of a root's trained weights: what holds it, and its relative L2 to them."""

    root: int | None = fields.entry(fields.count)
    name: str = fields.entry(fields.string)
    distance: float | None = fields.entry(fields.number)


def _copies(value: Any) -> tuple[WeightCopy, ...]:
    if not isinstance(value, list):
        return ()
    return tuple(build(WeightCopy, item) for item in value[:MAX_ITEMS])


@dataclass(frozen=True, slots=True)
class CopiesRecord(Record):
    """Copies of the trained weights after ``n`` steps that are not equal to them.

    An average of the weights, a momentum encoder, a target network. On both sides, without a
    comparison.
    """

    K: ClassVar[str] = "copies"
    n: int | None = fields.entry(fields.count)
    copies: tuple[WeightCopy, ...] = fields.entry(_copies)


REPLAY_KINDS: Mapping[str, type[Record]] = {
    cls.K: cls
    for cls in (
        StartRecord,
        BatchRecord,
        ForwardRecord,
        GradientsRecord,
        CopiesRecord,
        PrecisionRecord,
    )
}
NESTED = (ModuleError, PrecisionRequest, WeightCopy)
"""Classes inside these records that are written as tables of their fields."""
