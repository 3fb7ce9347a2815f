"""Sessions whose full runs differ by the records of what they read, save and load."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core.body import JSON
from core.events import CheckEvaluated
from core.verify.evaluate import evaluate
from tests.core.scene import Scene, signal, signal_records, step_records

K = 4
STEPS = 8
Change = Callable[[list[JSON], list[JSON]], None]


def passed(n: int, **fields: Any) -> JSON:
    """The record of one training pass over 70 samples in batches of 16, shuffled."""
    return {
        "k": "data",
        "pid": 7,
        "tid": 7,
        "loader": 1,
        "iterator": n,
        "role": "train",
        "batches": 5,
        "samples": 70,
        "complete": True,
        "dataset_len": 70,
        "batch_size": 16,
        "drop_last": False,
        "sampler": "RandomSampler",
        "workers": 0,
        "iterable": False,
        "rows": 16,
        "first": f"batch{n}",
        "first_ids": f"ids{n}",
        "in_order": False,
        **fields,
    }


def results(
    ours: list[JSON],
    theirs: list[JSON],
    *,
    worlds: tuple[int, int] = (1, 1),
    change: Change = lambda steps, signals: None,
    before: Change = lambda steps, signals: None,
    both: Change = lambda steps, signals: None,
    exit_code: int = 0,
) -> dict[str, CheckEvaluated]:
    """All checks of a session by id.

    ``ours`` and ``theirs`` are further records of the reference's and the attempt's full run, which
    have ``worlds`` ranks. ``change`` alters all records of the attempt and of its parity run,
    ``before`` those of the reference, ``both`` those of either. ``exit_code``: of the attempt.
    """
    scene = Scene()
    for xla, extra, world, own in (
        (False, ours, worlds[0], before),
        (True, theirs, worlds[1], change),
    ):
        if xla:
            scene.snapshot("t1")
        for parity in (False, True):
            steps = step_records(K if parity else STEPS, xla=xla, parity=parity)
            signals = signal_records(len(steps), xla=xla, parity=parity)
            if not parity:
                signals += [dict(record) for record in extra]
                if world > 1:
                    steps = [{**s, "rank": r, "pid": 7 + r} for s in steps for r in range(world)]
                    finish = signal(signals, "finish")
                    signals += [{**finish, "rank": r, "pid": 7 + r} for r in range(1, world)]
            both(steps, signals)
            own(steps, signals)
            purpose = "parity" if parity else "attempt" if xla else "reference"
            of = ("target" if xla else "reference") if parity else ""
            code = exit_code if purpose == "attempt" else 0
            scene.run(purpose, of, steps=steps, signals=signals, exit_code=code)
    return {r.check: r for r in evaluate(scene.state, "t1")}


def ranked(record: JSON, rank: int, **fields: Any) -> JSON:
    """A record as another rank's process wrote it."""
    return {**record, "pid": 7 + rank, "tid": 7 + rank, "rank": rank, **fields}
