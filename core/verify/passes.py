"""Passes over the data of a run, rank by rank: the probe's ``data`` records, read without trust."""

from __future__ import annotations

from dataclasses import dataclass

from core import records_view as view
from core.body import JSON
from core.state_parts import Run

#: So many passes of one process are recorded (``pilotage_probe.data.MAX_RECORDED``).
MAX_RECORDED = 256


@dataclass(frozen=True, slots=True)
class Pass:
    """One iterator of a DataLoader, from its first batch on; see ``DataRecord`` for the fields."""

    loader: tuple[object, int]
    role: str
    batches: int
    samples: int | None
    complete: bool | None
    dataset_len: int | None
    batch_size: int | None
    drop_last: bool
    iterable: bool
    workers: int
    first: str
    first_ids: str
    in_order: bool | None


def passes(run: Run, role: str) -> dict[int, list[Pass]]:
    """By rank, the passes of one role in the order in which they began; a run without ranks has 0."""
    pids: dict[object, int] = {}
    found: dict[int, list[tuple[int, int, Pass]]] = {}
    for record in run.signals:
        if record.get("k") != "data" or record.get("role") != role:
            continue
        at = pids.setdefault(record.get("pid"), len(pids))
        rank = view.count(record.get("rank")) or 0
        one = _pass(record)
        found.setdefault(rank, []).append((at, view.count(record.get("iterator")) or 0, one))
    return {
        rank: [one for _, _, one in sorted(rows, key=lambda row: row[:2])]
        for rank, rows in sorted(found.items())
    }


def _pass(record: JSON) -> Pass:
    complete, in_order = record.get("complete"), record.get("in_order")
    return Pass(
        loader=(record.get("pid"), view.count(record.get("loader")) or 0),
        role=str(record.get("role")),
        batches=view.count(record.get("batches")) or 0,
        samples=view.count(record.get("samples")),
        complete=complete if isinstance(complete, bool) else None,
        dataset_len=view.count(record.get("dataset_len")),
        batch_size=view.count(record.get("batch_size")),
        drop_last=record.get("drop_last") is True,
        iterable=record.get("iterable") is True,
        workers=view.count(record.get("workers")) or 0,
        first=str(record.get("first") or ""),
        first_ids=str(record.get("first_ids") or ""),
        in_order=in_order if isinstance(in_order, bool) else None,
    )


def all_recorded(run: Run) -> bool:
    """Whether no process began more passes than are recorded."""
    counts = [view.count(r.get("iterators")) for r in run.signals if r.get("k") == "finish"]
    return all((n or 0) <= MAX_RECORDED for n in counts)


def total(run: Run, role: str) -> int | None:
    """Samples of all passes of all ranks, each to its end; None where that is not known."""
    found = [one for rows in passes(run, role).values() for one in rows]
    if not found or not all_recorded(run):
        return None
    if any(one.samples is None or not one.complete for one in found):
        return None
    return sum(one.samples or 0 for one in found)


def most_padding(run: Run, role: str) -> int:
    """Samples by which sharding over the ranks may change the total: a global batch in each pass.

    ``DistributedSampler`` repeats fewer samples than there are ranks, accelerate's
    ``even_batches`` fewer than a global batch.
    """
    by_rank = passes(run, role)
    return sum(
        max(sum(one.batch_size or 1 for one in at), len(at))
        for at in zip(*by_rank.values(), strict=False)
    )
