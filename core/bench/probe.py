"""What the probe costs a training run: the same steps with it and without it, in turns.

**Time** is compared inside one process: it trains a model, a block of steps at a time, with all of
the probe's hooks in place or with all of them taken out. Two processes would not do: by the luck
of where their memory lies the same steps differ by up to 15 % between them.

**Counts** are compared between two processes that make the same steps, one with the probe and one
that never had it: XLA's own counters of the two must be equal.

Not in the comparison of time: the start of the probe, and its thread that looks at memory now and
then, which runs in both kinds of block.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from core.bench.compare import (
    LONG_STEP_S,
    Comparison,
    Pair,
    Verdict,
    added,
    all_of,
    compare,
    judge_counts,
    judge_time,
    plan,
    undecided,
)
from core.bench.worker import NotThere, Worker, check_records, own_ms

Device = Literal["cpu", "xla"]
DEVICES: tuple[Device, ...] = ("cpu", "xla")

BLOCK = 10  # steps; the first of each is left out: caches and the device's queue are empty then
STEPS, QUICK_STEPS = 400, 60  # of each kind and for each model
ROUNDS = 2  # so often that many, while the limit lies within the interval of the ratio
WARM_UP = 8  # steps before the clock counts: XLA compiles in the first and in the second
COUNTED_STEPS = 30  # of the comparison of counts; the program reads its loss in three of them
TARGET_S = 0.026  # of a typical step, so that a slower or a faster minute leaves it above 20 ms
ACCEPTED_S = (0.0215, 0.040)
FIRST_BATCH, MAX_BATCH = 16, 8192
MAX_ROUNDS = 3  # each costs two compiles on XLA


@dataclass(frozen=True, slots=True)
class Model:
    """One of the program's models; ``size`` and ``depth`` as its functions take them.

    ``batch``: None is found by trying, so that a step takes 20 ms or a little more.
    """

    name: str
    size: int
    depth: int
    batch: int | None = None
    label: str = ""

    @property
    def judged(self) -> bool:
        """Whether the time of its steps is judged: not where they are short on purpose."""
        return not self.label


MODELS = (Model("mlp", 256, 8), Model("transformer", 64, 2), Model("cnn", 16, 5))
SHORT = Model("mlp", 64, 4, batch=32, label="mlp, short")  # 1 ms on the CPU, 3 ms on XLA


@dataclass(frozen=True, slots=True)
class Case:
    """One model on one device. ``compared`` is None where nothing could be measured.

    ``added``: XLA's counts with the probe minus those without; None where nothing is counted.
    """

    device: Device
    model: str
    verdict: Verdict
    batch: int | None = None
    tensors: int | None = None
    compared: Comparison | None = None
    added: dict[str, int] | None = None
    judged: bool = True


@dataclass(slots=True)
class Report:
    """All cases, and the circumstances in which they were measured.

    ``own_ms``: by device, what the probe itself says that it took of a step (mean over all steps
    of all models, its start included), in milliseconds.
    """

    python: str
    cases: list[Case] = field(default_factory=list)
    own_ms: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str | None] = field(default_factory=dict)
    load: list[float] = field(default_factory=list)  # one-minute averages, before and after
    cpus: int = field(default_factory=lambda: os.cpu_count() or 1)

    @property
    def holds(self) -> bool:
        """Whether every judged case passed, and there was one."""
        judged = [case for case in self.cases if case.judged]
        return bool(judged) and all(case.verdict.state == "pass" for case in judged)


Say = Callable[[str], None]


def measure(
    python: str,
    devices: Sequence[Device] = DEVICES,
    models: Sequence[Model] = (*MODELS, SHORT),
    *,
    steps: int = STEPS,
    say: Say = lambda text: None,
) -> Report:
    """Measure every model on every device with that Python; ``say`` is told how far it is.

    A device for which the Python lacks a library is ``not run``. Raises PilotageError if the
    Python can't be started, or a process ends or hangs in the middle.
    """
    report = Report(python)
    report.load.append(_load())
    for device in devices:
        try:
            found = _time(report, device, models, steps, say)
            if device == "xla":
                found = _count(python, device, models, found, say)
            report.cases += found
        except NotThere as error:
            verdict = Verdict("not run", (str(error),))
            report.cases += [
                Case(device, model.label or model.name, verdict, judged=model.judged)
                for model in models
            ]
            say(f"{device}: not run. {error}")
    report.load.append(_load())
    return report


@contextmanager
def _directory() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="pilotage-bench-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


# --- time ------------------------------------------------------------------------------------


def _time(
    report: Report, device: Device, models: Sequence[Model], steps: int, say: Say
) -> list[Case]:
    """The cases of one device, judged by time and by whether the probe was really there."""
    cases = []
    say(f"{device}: starting a process with the probe")
    with _directory() as directory, Worker(report.python, device, directory, probe=True) as worker:
        versions = worker.greet()
        for name in ("torch", "torch_xla"):
            report.versions[name] = versions.get(name) or report.versions.get(name)
        for model in models:
            name = model.label or model.name
            batch, tensors = calibrate(worker, model)
            for attempt in (1, 2):
                say(
                    f"{device} {name}: {steps} steps with the probe and {steps} without, "
                    f"batch {batch}"
                )
                pairs = in_turns(worker, steps)
                compared = compare(pairs)
                for again in range(1, ROUNDS if model.judged and steps >= STEPS else 1):
                    if not undecided(compared) or compared.off_s < LONG_STEP_S:
                        break
                    say(f"{device} {name}: the limit lies within the interval; as many steps again")
                    pairs += in_turns(worker, steps, again)
                    compared = compare(pairs)
                if not model.judged or compared.off_s >= LONG_STEP_S or attempt == 2:
                    break
                # A busy neighbour is gone, and the steps have become too short to be judged.
                batch = next_batch([(batch, compared.off_s)])
                worker.make(model.name, model.size, model.depth, batch)
                worker.run(WARM_UP)
            verdict = judge_time(compared, judged=model.judged)
            cases.append(Case(device, name, verdict, batch, tensors, compared, judged=model.judged))
        counters = worker.counters()
        worker.end()
        records = worker.records()
    if (own := own_ms(records)) is not None:
        report.own_ms[device] = own
    wrong = check_records(records, worker.watched, counters, whole=False)
    return [_also(case, Verdict("fail", tuple(wrong))) if wrong else case for case in cases]


def calibrate(worker: Worker, model: Model) -> tuple[int, int]:
    """Make the model with a batch that fits, and warm it up; the batch and its tensors."""
    batch = model.batch or FIRST_BATCH
    known: list[tuple[int, float]] = []
    while True:
        tensors = worker.make(model.name, model.size, model.depth, batch)["tensors"]
        worker.run(WARM_UP)
        if model.batch is not None:
            return batch, tensors
        times = worker.run(2 * WARM_UP)
        # Processor time on a busy machine, which must not make the model too small; on an idle one
        # the time itself, which is less where XLA uses several threads. The medians: the first steps
        # of a block return at once where a device works on its own.
        typical = min(map(statistics.median, (times.wall, times.processor)))
        known.append((batch, typical))
        if ACCEPTED_S[0] <= typical <= ACCEPTED_S[1] or len(known) == MAX_ROUNDS:
            return batch, tensors
        if (found := next_batch(known)) == batch:
            return batch, tensors
        batch = found


def next_batch(known: Sequence[tuple[int, float]]) -> int:
    """The batch to try after these (batch, seconds of a step): a line through the last two.

    A step costs something whatever the batch; with one measurement that part is taken as none.
    """
    batch, seconds = known[-1]
    fixed, slope = 0.0, seconds / batch
    if len(known) > 1:
        other, other_seconds = known[-2]
        steep = (seconds - other_seconds) / (batch - other)
        if steep > 0:
            slope, fixed = steep, seconds - steep * batch
    return max(1, min(MAX_BATCH, round((TARGET_S - fixed) / slope)))


def in_turns(worker: Worker, steps: int, seed: int = 0) -> list[Pair]:
    """Blocks of watched and of unwatched steps in random order, ``steps`` of each kind."""
    block = min(BLOCK, steps)
    order = plan(max(1, steps // block), seed=steps + seed)
    pairs = []
    for first, second in zip(order[::2], order[1::2], strict=True):
        times = {
            watched: worker.run(block, watched=watched).without_first()
            for watched in (first, second)
        }
        pairs.append(Pair(off=times[False], on=times[True]))
    return pairs


# --- counts ----------------------------------------------------------------------------------


def _count(
    python: str, device: Device, models: Sequence[Model], cases: Sequence[Case], say: Say
) -> list[Case]:
    """The cases again, with what XLA counts more with the probe than without, and judged by it."""
    say(f"{device}: the same steps with the probe and without, to compare XLA's counters")
    judged = [model for model in models if model.judged]
    differences, wrong = count(python, device, judged)
    found = []
    for model, case in zip(models, cases, strict=True):
        if model not in judged:
            found.append(case)
            continue
        difference = differences[judged.index(model)]
        case = _also(replace(case, added=difference), judge_counts(difference))
        found.append(_also(case, Verdict("fail", tuple(wrong))) if wrong else case)
    return found


def count(
    python: str, device: Device, models: Sequence[Model], steps: int = COUNTED_STEPS
) -> tuple[list[dict[str, int]], list[str]]:
    """XLA's counts with the probe minus those without, for each model in turn.

    And what the probe's records say otherwise than these counters. The counts of the first model
    include those of the start of the process. Raises NotThere and PilotageError.
    """
    with (
        _directory() as directory,
        Worker(python, device, directory / "off", probe=False, counting=True) as off,
        Worker(python, device, directory / "on", probe=True, counting=True) as on,
    ):
        before: dict[Worker, dict[str, int]] = {off: {}, on: {}}
        for worker in (off, on):
            worker.greet()
        differences = []
        for model in models:
            grown = {}
            for worker in (off, on):
                worker.make(model.name, model.size, model.depth, FIRST_BATCH)
                worker.run(steps)
                now = worker.counters() or {}
                grown[worker], before[worker] = added(before[worker], now), now
            differences.append(added(grown[off], grown[on]))
        for worker in (off, on):
            worker.end()
        return differences, check_records(on.records(), on.made, before[on] or None, whole=True)


def _also(case: Case, verdict: Verdict) -> Case:
    return replace(case, verdict=all_of([case.verdict, verdict]))


def _load() -> float:
    with suppress(OSError):
        return round(os.getloadavg()[0], 2)
    return 0.0
