"""Several ranks: which of the reference's records each one's are held against.

As many ranks on both sides are compared rank by rank. Another number of them is compared as one:
the loss of a step is the mean over the ranks, its samples are their sum, and all else is the first
rank's, for after the reduce every rank has the same gradient (which ``L1.reduce`` and
``L2.replicas`` see to). A process with several devices (SPMD) is one rank with the whole batch.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from core import records_view as view
from core.body import JSON
from core.checks import CHECKS
from core.levels import FAIL, NOT_RUN
from core.run_steps import RunSteps
from core.state_parts import Run
from core.verify.compare import share, show, step_of
from core.verify.registry import check
from core.verify.subject import NotRun, Subject, Verdict, judged, not_run

#: Replicas apply the same update to the same weights, so their norms agree to the last bits; this
#: allows for a norm in float32. Ours; as of the detector of replicas that differ.
SAME_RTOL = 1e-5
#: In a step record: what is the same on all replicas, in the order in which it goes wrong.
SHARED = (("param_norm", "parameters"), ("update_norm", "update of the parameters"))
#: Of a run's records, how many steps are looked at for its ranks and for its global batch.
LOOK = 2_000


# --- the ranks of a run ------------------------------------------------------------------------


def ranks(run: Run) -> dict[int, tuple[Any, Any]]:
    """Process and thread of each rank that takes optimizer steps, in order; empty where unranked."""
    found: dict[int, tuple[Any, Any]] = {}
    for record in run.steps[:LOOK]:
        rank = view.count(record.get("rank"))
        if rank is not None:
            found.setdefault(rank, (record.get("pid"), record.get("tid")))
    return dict(sorted(found.items()))


def steps_by_rank(run: Run) -> dict[int, list[JSON]]:
    """The first steps of each rank, in order; of a run without ranks its trainer's, as rank 0."""
    who = ranks(run)
    if not who:
        return {0: view.steps(run, first=LOOK)}
    found: dict[int, list[JSON]] = {rank: [] for rank in who}
    for record in run.steps[:LOOK]:
        rank = view.count(record.get("rank"))
        if rank in found and (record.get("pid"), record.get("tid")) == who[rank]:
            found[rank].append(record)
    return found


def trained(run: Run) -> list[int | None]:
    """Samples of each rank's steps, in order of rank; None where one of them is not known."""
    who = ranks(run)
    trainers = {trainer: rank for rank, trainer in who.items()}
    if not trainers and (only := view.trainer(run)):
        trainers = {only: 0}
    sums: dict[int, int | None] = dict.fromkeys(trainers.values(), 0)
    for record in run.steps:
        rank = trainers.get((record.get("pid"), record.get("tid")))
        if rank is not None:
            sofar, samples = sums[rank], view.count(record.get("samples"))
            sums[rank] = None if sofar is None or samples is None else sofar + samples
    return [n or None for n in sums.values()] or [None]


def finishes(run: Run) -> list[JSON]:
    """The ``finish`` record of each process with ranks, the first rank's first; else the run's."""
    found = []
    for pid in dict.fromkeys(pid for pid, _ in ranks(run).values()):
        own = [r for r in run.signals if r.get("k") == "finish" and r.get("pid") == pid]
        found.append(own[-1] if own else {})
    return found or [view.record(run, "finish") or {}]


def of_rank(run: Run, rank: int) -> Run:
    """The run as its records of one rank alone tell it; that rank is called 0 in them."""
    who = ranks(run)
    if len(who) < 2:
        return run
    pid, tid = who[rank]
    alone = sum(other == pid for other, _ in who.values()) == 1  # else ranks are threads
    own = [r for r in run.steps if (r.get("pid"), r.get("tid")) == (pid, tid)]
    said = [
        r
        for r in run.signals
        if r.get("pid") == pid and (alone or r.get("rank") == rank or r.get("tid") == tid)
    ]
    return dataclasses.replace(
        run,
        steps=RunSteps({**r, "rank": 0} for r in own),
        signals=[{**r, "rank": 0} for r in said],
    )


def as_one(run: Run) -> Run:
    """The run as if one process had taken its steps: see the module."""
    by_rank = steps_by_rank(run)
    if len(by_rank) < 2:
        return run
    at = [{step_of(r): r for r in steps} for steps in by_rank.values()]
    merged = []
    for n, first in at[0].items():
        every = [steps[n] for steps in at if n in steps]
        losses = [view.number(r.get("loss")) for r in every]
        samples = [view.count(r.get("samples")) for r in every]
        whole = len(every) == len(at)  # a rank that is missing leaves the step unknown
        loss = sum(x for x in losses if x is not None) / len(losses)
        merged.append(
            {
                **{k: v for k, v in first.items() if k not in ("loss", "losses", "samples")},
                **({"loss": loss} if whole and None not in losses else {}),
                **({"samples": sum(x or 0 for x in samples)} if None not in samples else {}),
            }
        )
    first_rank = of_rank(run, next(iter(by_rank)))
    return dataclasses.replace(first_rank, steps=RunSteps({**r, "rank": 0} for r in merged))


# --- judging each of them ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OfRank(Subject):
    """The subject with its parity runs seen as one rank's, or (None) as one process's."""

    rank: int | None = None

    def _seen(self, run: Run) -> Run:
        return as_one(run) if self.rank is None else of_rank(run, self.rank)

    @property
    def parity(self) -> Run:
        """See :class:`Subject`."""
        return self._seen(Subject.parity.__get__(self))

    @property
    def parity_reference(self) -> Run:
        """See :class:`Subject`."""
        return self._seen(Subject.parity_reference.__get__(self))

    @property
    def parity_own(self) -> Run | None:
        """See :class:`Subject`."""
        run = Subject.parity_own.__get__(self)
        return None if run is None else self._seen(run)

    @property
    def repeats(self) -> list[Run]:
        """See :class:`Subject`."""
        return [self._seen(run) for run in Subject.repeats.__get__(self)]

    def own_pair(self) -> tuple[list[JSON], list[JSON]] | None:
        """See :class:`Subject`."""
        run = self.parity_own
        if run is None or not run.steps:
            return None
        k = self.criteria.parity_steps
        fed = self.state.runs.get(run.started.against)
        reference = self.parity_reference if fed is None else self._seen(fed)
        return view.steps(reference)[:k], view.steps(run)[:k]


def views(s: Subject) -> list[Subject]:
    """The subject once for each pair of ranks to compare; itself where there is one rank."""
    try:
        ours, theirs = ranks(s.parity_reference), ranks(s.parity)
    except NotRun:
        return [s]
    if len(ours) < 2 and len(theirs) < 2:
        return [s]
    same = {f.name: getattr(s, f.name) for f in dataclasses.fields(Subject)}
    if set(ours) == set(theirs):
        return [OfRank(**same, rank=rank) for rank in ours]
    return [OfRank(**same)]


OTHER_SAMPLER = (
    "A sampler for another number of ranks may deal out other samples in a step, so other batches "
    "say nothing here; each was replaced by the reference's. See that every epoch has all samples "
    "once (L1.data, L2.shards), and waive the check: "
)


def _all_fed(run: Run) -> bool:
    """Whether every batch of every rank is the reference's, by itself or since it was replaced."""
    found = [r for r in run.signals if r.get("k") == "batch"]
    return bool(found) and all(
        r.get("fed") is True or r.get("state") in ("same", "padded", "reordered") for r in found
    )


#: Checks of L1 that look at all ranks by themselves.
WHOLE = {"L1.reduce", "L1.global_batch"} | {id for id, check in CHECKS.items() if check.full}


def judge(s: Subject, id: str, level: int, evaluate: Callable[[Subject], Verdict]) -> Verdict:
    """The verdict of one check: of L1 the worst over the ranks, which it names.

    Raises :class:`NotRun` where that of a rank could not be made, and none has failed.
    """
    seen = views(s) if level == 1 and id not in WHOLE else [s]
    if len(seen) == 1:
        verdict = evaluate(seen[0])
        merged = isinstance(seen[0], OfRank) and id == "L1.batches" and verdict.state == FAIL
        if merged and _all_fed(s.parity):
            raise NotRun(OTHER_SAMPLER + verdict.summary + ".")
        return verdict
    verdicts: dict[int, Verdict] = {}
    for one in seen:
        rank = getattr(one, "rank", None) or 0
        try:
            verdicts[rank] = evaluate(one)
        except NotRun as missing:
            verdicts[rank] = not_run(f"Rank {rank}: {missing}" if rank else str(missing))
    failed = [rank for rank, v in verdicts.items() if v.state == FAIL]
    lacking = [rank for rank, v in verdicts.items() if v.state == NOT_RUN]
    worst = next(iter([*failed, *lacking, *verdicts]))
    found = verdicts[worst]
    evidence = {**found.evidence, "ranks": len(verdicts)}
    summary = found.summary
    if failed:
        evidence["failing ranks"] = failed
        if len(failed) < len(verdicts):
            summary = f"rank {worst} of {len(verdicts)}: {summary}"
    return dataclasses.replace(found, summary=summary, evidence=evidence)


# --- checks of their own -----------------------------------------------------------------------


def _several(s: Subject) -> dict[int, list[JSON]]:
    """The steps of each rank of the target's parity run, of several."""
    found = steps_by_rank(s.parity)
    if len(found) < 2:
        raise NotRun("One process took the steps: there are no ranks to compare.")
    return found


def _together(found: dict[int, list[JSON]], field: str) -> dict[int, list[float]]:
    """By step, the values of a field of all ranks, where every rank has one."""
    values: dict[int, list[float]] = {}
    for steps in found.values():
        for record in steps:
            value = view.number(record.get(field))
            if value is not None and step_of(record):
                values.setdefault(step_of(record), []).append(value)
    return {n: values[n] for n in sorted(values) if len(values[n]) == len(found)}


def _apart(values: list[float]) -> float:
    largest = max(abs(v) for v in values)
    gap = (max(values) - min(values)) / largest if largest else 0.0
    return gap if gap == gap and all(v == v for v in values) else float("inf")


def _first_apart(by_step: dict[int, list[float]], rtol: float) -> int:
    return next((n for n, values in by_step.items() if _apart(values) > rtol), 0)


def _parts(s: Subject, field: str) -> bool:
    """Whether the reference's ranks differ too: each has a part of the model (FSDP), by design."""
    try:
        theirs = steps_by_rank(s.parity_reference)
    except NotRun:
        return False
    return len(theirs) > 1 and bool(_first_apart(_together(theirs, field), SAME_RTOL))


def _listed(values: list[float]) -> str:
    return ", ".join(show(v) for v in values[:8]) + (" ..." if len(values) > 8 else "")


@check("L1.reduce")
def reduce(s: Subject) -> Verdict:
    """After the reduce every rank has the same gradient, before it is clipped and applied.

    Norm before clipping, equal over the ranks in every step within ``SAME_RTOL``. Where each rank
    clips its own, or some tensors are left out of the reduce, they differ.
    """
    found = _several(s)
    norms = _together(found, "grad_norm")
    if not norms:
        raise NotRun("No gradient norm was recorded for the same step of all ranks.")
    if _parts(s, "grad_norm"):
        raise NotRun("The reference's ranks have other gradients than each other, too.")
    n = _first_apart(norms, SAME_RTOL)
    at = n or next(iter(norms))
    why = "gradients are not the same on all ranks when they are clipped and applied"
    return judged(
        not n,
        f"{why} (step {n})" if n else f"the same gradient on {len(found)} ranks",
        expected="one norm of the gradients on all ranks",
        actual=f"{_listed(norms[at])} in step {at}",
        tolerance=f"relative {share(SAME_RTOL)}",
        evidence={"steps": len(norms), "ranks": len(found)},
    )


@check("L2.replicas")
def replicas(s: Subject) -> Verdict:
    """All ranks start from the same parameters, have the same after every step, and the same rates.

    A replay starts them all from the reference's, so the start is told by how far each rank's own
    parameters were from those: of equal parameters equally far. Norms of the parameters and of their update within ``SAME_RTOL``; rates within ``hyper_rtol``.
    """
    found = _several(s)
    if _parts(s, "param_norm"):
        raise NotRun("The reference's ranks have other parameters than each other, too.")
    if apart := _start_apart(s.parity, len(found)):
        return judged(
            False,
            "replicas start from other parameters than each other",
            expected="the same parameters on all ranks: one seed, or a broadcast of the first's",
            actual=f"{_listed(apart)} off the reference's (relative L2), by rank",
            tolerance=f"relative {share(SAME_RTOL)}",
            evidence={"ranks": len(found)},
        )
    compared = 0
    for field, what in SHARED:
        values = _together(found, field)
        compared += len(values)
        n = _first_apart(values, SAME_RTOL)
        if n:
            return judged(
                False,
                f"replicas drift apart: norm of the {what} differs from step {n} on",
                expected="one norm on all ranks",
                actual=f"{_listed(values[n])} in step {n}",
                tolerance=f"relative {share(SAME_RTOL)}",
                evidence={"step": n, "ranks": len(found)},
            )
    if not compared:
        raise NotRun("No norm of the parameters was recorded for the same step of all ranks.")
    n, rates = _other_rates(found, s.criteria.hyper_rtol)
    if n:
        return judged(
            False,
            f"ranks have other learning rates than each other in step {n}",
            expected="one learning rate on all ranks",
            actual=_listed(rates),
            tolerance=f"relative {share(s.criteria.hyper_rtol)}",
            evidence={"step": n, "ranks": len(found)},
        )
    return judged(
        True,
        f"{len(found)} replicas agree",
        expected="one norm on all ranks",
        actual="the same",
        tolerance=f"relative {share(SAME_RTOL)}",
        evidence={"ranks": len(found)},
    )


def _start_apart(run: Run, many: int) -> list[float]:
    """How far each rank's own initial parameters were from the reference's, where that differs."""
    errors: dict[int, float] = {}
    for record in run.signals:
        rank, error = view.count(record.get("rank")), view.number(record.get("natural_error"))
        if record.get("k") == "start" and rank is not None and error is not None:
            errors[rank] = error
    values = [errors[rank] for rank in sorted(errors)]
    return values if len(values) == many and _apart(values) > SAME_RTOL else []


def _other_rates(found: dict[int, list[JSON]], rtol: float) -> tuple[int, list[float]]:
    flat = {
        rank: [
            {"n": step_of(r), "lr": (view.rows(r.get("groups")) or [{}])[0].get("lr")}
            for r in steps
        ]
        for rank, steps in found.items()
    }
    values = _together(flat, "lr")
    n = _first_apart(values, rtol)
    return n, values.get(n, [])


@check("L1.global_batch")
def global_batch(s: Subject) -> Verdict:
    """As many samples in an optimizer step as the reference, summed over the ranks: exact.

    Of the full runs, which are not fed the reference's batches; the number that most steps have,
    so that an incomplete last batch is the business of ``L3.budget``.
    """
    mine, other = _usual(s.reference), _usual(s.run)
    of = f" over {len(steps_by_rank(s.run))} ranks" if len(steps_by_rank(s.run)) > 1 else ""
    return judged(
        mine == other,
        f"{other} samples a step{of}" + ("" if mine == other else f" instead of {mine}"),
        expected=f"{mine} samples a step (reference #{s.reference.number})",
        actual=f"{other}{of}",
        tolerance="equal",
    )


def _usual(run: Run) -> int:
    steps = as_one(run).steps[:LOOK]
    counts = Counter(n for r in steps if (n := view.count(r.get("samples"))))
    if not counts:
        raise NotRun(f"The probe saw no samples in the optimizer steps of run #{run.number}.")
    return counts.most_common(1)[0][0]
