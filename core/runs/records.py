"""The records that the probe writes inside a run, one frozen dataclass per kind.

They come from a stranger's process, so nothing in them is trusted: a field may be missing, of the
wrong type, huge or hostile. ``parse`` answers for every line with a record or with ``Malformed``;
a field that can't be used is None (or empty). Fields this version does not know are dropped, and
a kind it does not know becomes ``Unknown``. Times: ``t`` monotonic and ``wall`` UTC, in seconds.

``to_json`` and ``from_json`` are the form inside event payloads: like the probe's own line, with
null fields left out and non-finite numbers as the words ``nan``, ``inf`` and ``-inf``.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from core.body import JSON
from core.runs import record_fields as fields
from core.runs.record_fields import Record as Record
from core.runs.record_fields import build
from core.runs.records_data import DATA_KINDS
from core.runs.records_replay import NESTED, REPLAY_KINDS
from core.runs.records_world import WORLD_KINDS
from core.text import clean

MAX_LINE = 2 * 1024 * 1024  # bytes; the probe itself writes at most 1 MiB


# --- the records -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hello(Record):
    """A Python process of the run started with the probe in it.

    A second one of the same pid: the process has become another program (``exec``); what follows
    belongs to that one, and its steps count from 1 again. ``ppid`` is its parent.
    """

    K: ClassVar[str] = "hello"
    version: str = fields.entry(fields.string)
    python: str = fields.entry(fields.string)
    argv: tuple[str, ...] = fields.entry(fields.listed(fields.string))
    mode: str = fields.entry(fields.string)
    ppid: int | None = fields.entry(fields.count)


@dataclass(frozen=True, slots=True)
class RankRecord(Record):
    """The process (or, with torch_xla's threads, the thread) has learnt its ``rank``.

    ``source`` says from what: ``RANK`` (the environment), ``torch.distributed``, ``torch_xla``
    (the ordinal) or ``spawn`` (the index of ``torch.multiprocessing.spawn``). ``world`` is the
    number of ranks, ``local_rank`` the one within the machine, where stated.
    """

    K: ClassVar[str] = "rank"
    world: int | None = fields.entry(fields.count)
    local_rank: int | None = fields.entry(fields.count)
    source: str | None = fields.entry(fields.text)


@dataclass(frozen=True, slots=True)
class TorchRecord(Record):
    """``torch`` was imported. ``cuda_available``: built with CUDA, and a GPU driver is there."""

    K: ClassVar[str] = "torch"
    version: str = fields.entry(fields.string)
    cuda_available: bool | None = fields.entry(fields.flag)


@dataclass(frozen=True, slots=True)
class XlaRecord(Record):
    """``torch_xla`` was imported; once more with ``devices`` when a model is trained on one."""

    K: ClassVar[str] = "xla"
    version: str = fields.entry(fields.string)
    pjrt_device: str | None = fields.entry(fields.text)
    devices: tuple[str, ...] | None = fields.entry(fields.maybe_list(fields.string))


@dataclass(frozen=True, slots=True)
class TpuRecord(Record):
    """``torch_tpu`` was imported; once more with ``devices`` when a model is trained on one."""

    K: ClassVar[str] = "tpu"
    version: str = fields.entry(fields.string)
    devices: tuple[str, ...] | None = fields.entry(fields.maybe_list(fields.string))


@dataclass(frozen=True, slots=True)
class MovedRecord(Record):
    """A move of a module (``.to``, ``.cuda``) made new Parameters or lost ties.

    An optimizer that holds the old Parameters trains nothing from then on.
    """

    K: ClassVar[str] = "moved"
    root: str | None = fields.entry(fields.text)
    replaced: int | None = fields.entry(fields.count)
    ties_before: tuple[tuple[str, ...], ...] = fields.entry(
        fields.listed(fields.listed(fields.string))
    )
    ties_after: tuple[tuple[str, ...], ...] = fields.entry(
        fields.listed(fields.listed(fields.string))
    )
    devices_before: Mapping[str, int] = fields.entry(fields.counts)
    devices_after: Mapping[str, int] = fields.entry(fields.counts)


@dataclass(frozen=True, slots=True)
class ModelRecord(Record):
    """The trained model at the first step of an optimizer: the modules whose parameters it holds.

    ``parameters``, ``trainable``, ``dtypes`` and ``devices`` (of trained ones) count elements, a
    shared parameter once; ``tensors`` counts tensors. ``tied`` groups the names of one parameter.
    ``norms`` (parity mode): 2-norms before the step, in the order of ``names`` and ``shapes``.
    ``frozen`` names what does not require a gradient. ``dropouts`` counts the modules that drop
    out, by ``CLASS P``.
    """

    K: ClassVar[str] = "model"
    optimizer_id: int | None = fields.entry(fields.count)
    root: str | None = fields.entry(fields.text)
    roots: tuple[str, ...] = fields.entry(fields.listed(fields.string))
    parameters: int | None = fields.entry(fields.count)
    tensors: int | None = fields.entry(fields.count)
    trainable: int | None = fields.entry(fields.count)
    tied: tuple[tuple[str, ...], ...] = fields.entry(fields.listed(fields.listed(fields.string)))
    dtypes: Mapping[str, int] = fields.entry(fields.counts)
    devices: Mapping[str, int] = fields.entry(fields.counts)
    names: tuple[str, ...] = fields.entry(fields.listed(fields.string))
    shapes: tuple[tuple[int | None, ...], ...] = fields.entry(
        fields.listed(fields.listed(fields.count))
    )
    norms: tuple[float | None, ...] | None = fields.entry(fields.maybe_list(fields.number))
    dropout: str | None = fields.entry(fields.text)
    frozen: tuple[str, ...] | None = fields.entry(fields.maybe_list(fields.string))
    dropouts: Mapping[str, int] | None = fields.entry(fields.maybe_counts)


@dataclass(frozen=True, slots=True)
class OptimizerRecord(Record):
    """An optimizer at its first step; ``devices`` counts elements of what it would update.

    ``orphaned``: tensors it holds that belong to no trained module (None: no module was seen).
    It and the model are written again, under the same ``optimizer_id``, when a later step finds
    that they have changed: groups added, parameters replaced or frozen. ``state_tensors``: tensors
    with a dimension in its state before its first step (None later): momenta that it resumes with.
    """

    K: ClassVar[str] = "optimizer"
    optimizer_id: int | None = fields.entry(fields.count)
    cls: str | None = fields.entry(fields.text)
    groups: tuple[dict[str, Any], ...] = fields.entry(fields.listed(fields.group))
    devices: Mapping[str, int] = fields.entry(fields.counts)
    tensors: int | None = fields.entry(fields.count)
    orphaned: int | None = fields.entry(fields.count)
    state_tensors: int | None = fields.entry(fields.count)


@dataclass(frozen=True, slots=True)
class Clip:
    """One call of a clipping function; ``total_norm`` is what it returned (before clipping).

    ``tensors``: how many it was given. ``scaled``: they were still multiplied by a GradScaler.
    """

    fn: str = fields.entry(fields.string)
    max_norm: float | None = fields.entry(fields.number)
    norm_type: float | None = fields.entry(fields.number)
    total_norm: float | None = fields.entry(fields.number)
    tensors: int | None = fields.entry(fields.count)
    scaled: bool | None = fields.entry(fields.flag)


@dataclass(frozen=True, slots=True)
class StepRecord(Record):
    """One optimizer step; None is "not read" or, where ``missing`` says why, not known. Never zero.

    ``n`` counts the steps of all optimizers of one thread, from 1; ``optimizer_n`` those of one
    of them, which ``optimizer_id`` (1, 2, ... in the order of their first steps in the thread)
    tells apart. Of an optimizer that wraps another only the outer counts. A step that a
    GradScaler skipped is none: ``skipped`` is how many it skipped since the step before.
    ``scaler``: one multiplied the loss, whether that was read or not.

    ``signature`` is the order of backward ``B``, clip ``C(max)``, ``C(max,norm type)`` or
    ``CV(value)``, reduce ``R`` (several in a row once), change of the gradients by hand ``H``
    (parity mode only), step ``S``, sync ``M``, schedule ``L`` and zero_grad ``Z``. A closure is
    noted as its first evaluation.

    ``loss``, by ``loss_source``: ``backward``: the sum over the ``backwards`` passes whose
    gradients the step used (``losses`` are the single ones where there are several), followed by
    ``, unscaled`` if a GradScaler multiplied it (this is the loss before that) or ``, scaled`` if
    the loss before could not be told; ``autograd.grad``: what that was called on; ``step``: what
    ``optimizer.step`` returned, and ``closure``: the last value of its closure, where there was
    no backward pass or the closure ran more than once (``closures``). torch's LBFGS returns the
    loss at the point where its step began.

    Norms are 2-norms over what the optimizer trains: parameters of the modules seen that require
    a gradient, without those that only another optimizer holds. ``grad_norm`` is before clipping:
    ``computed``, or returned by a ``clip`` of just these tensors; ``clip, scaled`` is of gradients
    that a GradScaler had multiplied. ``grad_norm_after`` is what the optimizer got. ``by_hand``
    (parity mode): they differ without a clip. ``grad_norms`` (after clipping) and
    ``update_norms`` are per tensor, in parity mode only. On a lazy device (XLA, TorchTPU) light mode
    reads nothing by itself: a loss or a norm is there where the program read it, and
    ``params_changed`` says whether the optimizer wrote to any of them, were it the same value.

    ``samples``: forwarded in training through the largest of the optimizer's modules since the
    step before, of whatever optimizer; twice if it was called twice on them, once if a closure
    repeated them. ``dt`` is in seconds. Compiles, executions, transfers to the host (the probe's
    own excluded) and ``fallbacks`` by operator are counts of this step, None where the backend
    counts none. ``read_at``: the program's line that read a tensor of a lazy device last, by
    ``item``, ``tolist`` or ``cpu`` (light mode only).
    """

    K: ClassVar[str] = "step"
    n: int | None = fields.entry(fields.count)
    optimizer: str | None = fields.entry(fields.text)
    optimizer_id: int | None = fields.entry(fields.count)
    optimizer_n: int | None = fields.entry(fields.count)
    loss: float | None = fields.entry(fields.number)
    loss_source: str | None = fields.entry(fields.text)
    losses: tuple[float | None, ...] | None = fields.entry(fields.maybe_list(fields.number))
    backwards: int | None = fields.entry(fields.count)
    closures: int | None = fields.entry(fields.count)
    skipped: int | None = fields.entry(fields.count)
    scaler: bool | None = fields.entry(fields.flag)
    grad_norm: float | None = fields.entry(fields.number)
    grad_norm_source: str | None = fields.entry(fields.text)
    grad_norm_after: float | None = fields.entry(fields.number)
    grad_norms: tuple[float | None, ...] | None = fields.entry(fields.maybe_list(fields.number))
    clips: tuple[Clip, ...] = field(
        default=(), metadata={"read": fields.listed(lambda value: build(Clip, value))}
    )
    by_hand: bool | None = fields.entry(fields.flag)
    missing: Mapping[str, str] | None = fields.entry(fields.maybe_texts)
    signature: str | None = fields.entry(fields.text)
    groups: tuple[dict[str, Any], ...] = fields.entry(fields.listed(fields.group))
    param_norm: float | None = fields.entry(fields.number)
    update_norm: float | None = fields.entry(fields.number)
    update_norms: tuple[float | None, ...] | None = fields.entry(fields.maybe_list(fields.number))
    norm_elements: int | None = fields.entry(fields.count)
    params_changed: bool | None = fields.entry(fields.flag)
    dt: float | None = fields.entry(fields.number)
    samples: int | None = fields.entry(fields.count)
    rss_mb: float | None = fields.entry(fields.number)
    compiles: int | None = fields.entry(fields.count)
    compile_s: float | None = fields.entry(fields.number)
    executes: int | None = fields.entry(fields.count)
    transfers: int | None = fields.entry(fields.count)
    fallbacks: Mapping[str, int] | None = fields.entry(fields.maybe_counts)
    read_at: str | None = fields.entry(fields.text)


@dataclass(frozen=True, slots=True)
class BeatRecord(Record):
    """A sign of life of a process that trains and has recorded nothing for 5 s or more.

    ``steps``: optimizer steps done so far. ``since_step_s``: seconds since the last record of a
    step (None: none yet). ``doing``: ``compile``, ``sync``, ``data``, ``collective``,
    ``optimizer``, ``backward``, ``checkpoint``, or None where the stack does not tell; ``at``: the
    program's own line. ``compiles`` begun and ``compile_s`` of those that ended, of the whole
    process. ``device_mb``: memory of tensors on the device in MiB, where it costs nothing to ask.
    """

    K: ClassVar[str] = "beat"
    steps: int | None = fields.entry(fields.count)
    since_step_s: float | None = fields.entry(fields.number)
    doing: str | None = fields.entry(fields.text)
    at: str | None = fields.entry(fields.text)
    compiling: bool | None = fields.entry(fields.flag)
    compiles: int | None = fields.entry(fields.count)
    compile_s: float | None = fields.entry(fields.number)
    rss_mb: float | None = fields.entry(fields.number)
    device_mb: float | None = fields.entry(fields.number)


@dataclass(frozen=True, slots=True)
class FinishRecord(Record):
    """A process of the run ended in good order; the counts are its totals.

    ``reason`` is ``exit``, ``exception: NAME``, ``parity steps reached``, ``os._exit(CODE)`` or
    ``exec`` (it became another program). ``eval_last`` are the
    samples of the last evaluation alone. ``backwards`` counts backward passes (many without any
    ``steps`` are a loop whose updates are not an optimizer's), ``skipped`` steps that a
    GradScaler skipped. ``own_*``, ``errors`` and ``dropped`` are the probe's
    own cost, failures and unwritten records. ``eval_train_mode``: of the evaluated samples those
    that went through a module in training mode, ``eval_untrained`` those that went through one that
    was never called in training (an average of the weights, a teacher). ``iterators`` counts those of DataLoaders, the
    unrecorded ones too. ``collectives`` counts calls that combine values of several ranks, by
    name, during or right after an evaluation. ``functional_dropout`` (parity mode): dropout calls
    of the first training forward by ``KIND P``, None where compiled code hides them.
    """

    K: ClassVar[str] = "finish"
    reason: str = fields.entry(fields.string)
    steps: int | None = fields.entry(fields.count)
    backwards: int | None = fields.entry(fields.count)
    skipped: int | None = fields.entry(fields.count)
    eval_samples: int | None = fields.entry(fields.count)
    eval_last: int | None = fields.entry(fields.count)
    eval_train_mode: int | None = fields.entry(fields.count)
    eval_untrained: int | None = fields.entry(fields.count)
    iterators: int | None = fields.entry(fields.count)
    collectives: Mapping[str, int] | None = fields.entry(fields.maybe_counts)
    functional_dropout: Mapping[str, int] | None = fields.entry(fields.maybe_counts)
    compiles: int | None = fields.entry(fields.count)
    compile_s: float | None = fields.entry(fields.number)
    executes: int | None = fields.entry(fields.count)
    transfers: int | None = fields.entry(fields.count)
    fallbacks: Mapping[str, int] | None = fields.entry(fields.maybe_counts)
    rss_mb: float | None = fields.entry(fields.number)
    own_ms: float | None = fields.entry(fields.number)
    own_transfers: int | None = fields.entry(fields.count)
    own_compiles: int | None = fields.entry(fields.count)
    errors: int | None = fields.entry(fields.count)
    dropped: int | None = fields.entry(fields.count)


@dataclass(frozen=True, slots=True)
class ProbeErrorRecord(Record):
    """The probe failed at something and left the run alone."""

    K: ClassVar[str] = "probe_error"
    where: str = fields.entry(fields.string)
    error: str = fields.entry(fields.string)


@dataclass(frozen=True, slots=True)
class Unknown(Record):
    """A record of a kind that this version does not know."""

    kind: str = ""


@dataclass(frozen=True, slots=True)
class Malformed:
    """A line that is no record: why, and its beginning, cleaned."""

    reason: str
    text: str


KINDS: Mapping[str, type[Record]] = {
    cls.K: cls
    for cls in (
        Hello,
        RankRecord,
        TorchRecord,
        XlaRecord,
        TpuRecord,
        MovedRecord,
        ModelRecord,
        OptimizerRecord,
        StepRecord,
        BeatRecord,
        FinishRecord,
        ProbeErrorRecord,
    )
} | {**DATA_KINDS, **REPLAY_KINDS, **WORLD_KINDS}


# --- in and out ------------------------------------------------------------------------------


def parse(line: bytes) -> Record | Malformed:
    """One line of a probe's file, with or without its newline; never raises."""
    if len(line) > MAX_LINE:
        return _malformed(f"longer than {MAX_LINE} bytes", line)
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        return _malformed(f"no JSON: {type(error).__name__}", line)
    if not isinstance(value, dict) or not isinstance(value.get("k"), str):
        return _malformed("no JSON object with a kind `k`", line)
    return from_json(value)


def from_json(value: JSON) -> Record:
    """The record of a JSON object, as ``to_json`` or the probe made it; never raises."""
    kind = value.get("k")
    cls = KINDS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        return dataclasses.replace(build(Unknown, value), kind=fields.string(kind))
    record: Record = build(cls, value)
    return record


def to_json(record: Record) -> JSON:
    """The record as a JSON object with its kind as ``k``; see the module."""
    kind = record.kind if isinstance(record, Unknown) else record.K
    result: JSON = {"k": kind}
    for f in dataclasses.fields(record):
        value = _plain(getattr(record, f.name))
        if f.name != "kind" and value is not None:
            result[f.name] = value
    return result


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, (Clip, *NESTED)):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value


def _malformed(reason: str, line: bytes) -> Malformed:
    return Malformed(reason, clean(line[:200].decode("utf-8", "replace").rstrip("\n")))
