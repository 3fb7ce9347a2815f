"""Reading probe records: they were written inside a stranger's process, so nothing is trusted.

A field may be missing, null, of the wrong type, or the words ``nan``, ``inf`` and ``-inf`` that
stand for numbers JSON does not have. Every reader here answers ``None`` for what it can't use.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from core.body import JSON
from core.state_parts import Run

_WORDS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def number(value: Any) -> float | None:
    """A stored number, ``nan`` and infinities included; ``None`` for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:  # JSON integers have no bound
            return math.inf if value > 0 else -math.inf
    return _WORDS.get(value) if isinstance(value, str) else None


def count(value: Any) -> int | None:
    """A stored count: a finite number >= 0."""
    found = number(value)
    return int(found) if found is not None and math.isfinite(found) and found >= 0 else None


def rows(value: Any) -> list[JSON]:
    """The JSON objects of a stored list; an empty list for anything else."""
    return [x for x in value if isinstance(x, dict)] if isinstance(value, list) else []


def table(value: Any) -> JSON:
    """A stored JSON object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def trainer(run: Run) -> tuple[Any, Any] | None:
    """Process and thread whose steps stand for the run: rank 0, or the first that stepped."""
    for record in islice(run.steps, 200):
        if record.get("rank") in (None, 0):
            return record.get("pid"), record.get("tid")
    return None


def steps(run: Run, first: int | None = None, last: int | None = None) -> list[JSON]:
    """The run's step records of one trainer, in order; ``first`` or ``last`` many at most.

    The two bounds exist so that a detector can be asked during a run without rereading it all.
    """
    who = trainer(run)
    records: Iterable[JSON] = run.steps
    if first is not None:
        records = islice(run.steps, first)
    elif last is not None:
        records = run.steps[-last:]
    return [r for r in records if (r.get("pid"), r.get("tid")) == who]


def steps_done(run: Run) -> int | None:
    """Optimizer steps the trainer took: the probe's total, else the last step's number."""
    finish = record(run, "finish")
    total = count(finish.get("steps")) if finish else None
    tail = steps(run, last=50)
    seen = count(tail[-1].get("n")) if tail else None
    if total is None or seen is None:
        return total if seen is None else seen
    return max(total, seen)


def record(run: Run, k: str) -> JSON | None:
    """The last record of kind ``k`` from the trainer's process, else the last one of any.

    Of ``finish`` records the one with most steps: a helper process finishes too.
    """
    found = [s for s in run.signals if s.get("k") == k]
    if not found:
        return None
    if k == "finish":
        return max(found, key=lambda r: count(r.get("steps")) or 0)
    who = trainer(run)
    own = [r for r in found if who and r.get("pid") == who[0]]
    return (own or found)[-1]


def records(run: Run, k: str) -> list[JSON]:
    """All records of kind ``k`` from the trainer's process, else all."""
    found = [s for s in run.signals if s.get("k") == k]
    who = trainer(run)
    return [r for r in found if who and r.get("pid") == who[0]] or found


def norms(model: Mapping[str, Any] | None) -> dict[str, float]:
    """Initial norm by parameter name from a ``model`` record; empty where none were taken."""
    if not model:
        return {}
    values, names = model.get("norms"), model.get("names")
    if isinstance(values, dict):
        pairs = list(values.items())
    elif isinstance(values, list) and isinstance(names, list):
        pairs = list(zip(names, values, strict=False))
    else:
        return {}
    return {str(k): v for k, x in pairs if (v := number(x)) is not None}


def ties(model: Mapping[str, Any] | None) -> set[tuple[str, ...]]:
    """Groups of parameter names that are one tensor."""
    groups = model.get("tied") if model else None
    if not isinstance(groups, list):
        return set()
    return {tuple(sorted(map(str, g))) for g in groups if isinstance(g, list) and len(g) > 1}


def latest(run: Run, k: str) -> list[JSON]:
    """The last ``model`` or ``optimizer`` record of each optimizer: a change writes them again."""
    found: dict[Any, JSON] = {}
    for i, made in enumerate(records(run, k)):
        number = count(made.get("optimizer_id"))
        found[("once", i) if number is None else number] = made
    return list(found.values())


def stale_optimizers(run: Run, reference: Run | None = None) -> list[JSON]:
    """``optimizer`` records that hold tensors of a model that is no longer used.

    Tensors that belong to no module are not stale by that alone: a program may train a temperature
    or an image beside its model. They are where they lie on another device than the model (a move
    made new ones), or where nothing of a trained model is in the optimizer; and not where the
    ``reference`` run has as many in its optimizer of the same place.
    """
    models = {count(m.get("optimizer_id")): m for m in records(run, "model")}
    before = latest(reference, "optimizer") if reference else []
    found = []
    for i, made in enumerate(latest(run, "optimizer")):
        orphaned, total = count(made.get("orphaned")), count(made.get("tensors"))
        if not orphaned:
            continue
        model = models.get(count(made.get("optimizer_id"))) or record(run, "model") or {}
        here = set(table(model.get("devices")))
        elsewhere = bool(here) and not set(table(made.get("devices"))) <= here
        nothing = orphaned == total and bool(count(model.get("trainable")))
        same = i < len(before) and count(before[i].get("orphaned")) == orphaned
        if elsewhere or (nothing and not same):
            found.append(made)
    return found


def half_requests(record: Mapping[str, Any] | None) -> list[JSON]:
    """What a ``precision`` record has of requests for half precision.

    Settings of the precision of products of matrices are in it too, and only ``medium`` is one:
    the others keep float32's inputs or are for GPUs.
    """
    requests = rows(record.get("requests")) if record else []
    return [
        r
        for r in requests
        if (what := str(r.get("what") or "")) and (not what.startswith(_MATMUL) or "medium" in what)
    ]


_MATMUL = "matmul precision("


def full_matmul(record: Mapping[str, Any] | None) -> bool:
    """Whether a program asked for products of matrices in full float32 on its device."""
    requests = rows(record.get("requests")) if record else []
    return any(str(r.get("what")) == f"{_MATMUL}highest)" for r in requests)


def per_step(records: Iterable[JSON], field: str) -> tuple[float, int]:
    """Sum of a count over step records, and over how many of them it was known."""
    values = [v for r in records if (v := number(r.get(field))) is not None]
    return sum(values), len(values)


def fallbacks(records: Iterable[JSON]) -> dict[str, int]:
    """Operators that ran on the host, with counts.

    ``aten::_local_scalar_dense`` is a read of a scalar, not a missing lowering, and no evidence
    (PyTorch/XLA's troubleshooting guide excludes it too).
    """
    total: dict[str, int] = {}
    for r in records:
        for op, n in table(r.get("fallbacks")).items():
            times = count(n)
            if times and op != "aten::_local_scalar_dense":
                total[op] = total.get(op, 0) + times
    return total


def is_device(name: str, kind: str) -> bool:
    """Whether a device string such as ``xla:0`` is of a kind such as ``xla``."""
    return name == kind or name.startswith(kind + ":")


def is_target_device(name: str, target_kind: str) -> bool:
    """Whether a device string is of the target: ``xla`` (torch_xla), or TorchTPU's ``tpu``."""
    return is_device(name, "xla") or (target_kind.startswith("tpu") and is_device(name, "tpu"))
