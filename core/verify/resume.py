"""A run that goes on from saved states: are the weights, the momenta and the schedule there?"""

from __future__ import annotations

from dataclasses import dataclass, field

from core import records_view as view
from core.body import JSON
from core.state_parts import Run
from core.verify.compare import relative, show, step_of
from core.verify.registry import check
from core.verify.subject import NotRun, Subject, Verdict, judged


@dataclass(slots=True)
class Stage:
    """One optimizer of one process of the first rank, in the order of their first steps."""

    state_tensors: int | None = None
    loads: list[JSON] = field(default_factory=list)
    rates: dict[int, list[float | None]] = field(default_factory=dict)
    process: int = 0

    @property
    def resumes(self) -> bool:
        """Whether it begins with momenta, or was given a state."""
        return bool(self.state_tensors) or any(r.get("what") == "optimizer" for r in self.loads)


def stages(run: Run) -> list[Stage]:
    """The optimizers of all processes that step and have no rank, or rank 0, one after another.

    A command may run a program twice, the second time from what the first has saved.
    """
    pids: dict[object, int] = {}
    found: dict[tuple[object, int], Stage] = {}
    for record in run.steps:
        if record.get("rank") not in (None, 0):
            continue
        process = pids.setdefault(record.get("pid"), len(pids))
        key = (record.get("pid"), view.count(record.get("optimizer_id")) or 0)
        stage = found.setdefault(key, Stage(process=process))
        n = view.count(record.get("optimizer_n")) or step_of(record)
        stage.rates[n] = [view.number(g.get("lr")) for g in view.rows(record.get("groups"))]
    loads: dict[object, list[JSON]] = {}
    for record in run.signals:
        if record.get("k") == "loaded":
            loads.setdefault(record.get("pid"), []).append(record)
        if record.get("k") == "optimizer":
            key = (record.get("pid"), view.count(record.get("optimizer_id")) or 0)
            if key in found and found[key].state_tensors is None:
                found[key].state_tensors = view.count(record.get("state_tensors"))
                # What this process has loaded since the optimizer before this one.
                found[key].loads = loads.pop(record.get("pid"), [])
    return list(found.values())


@check("L1.resume")
def resume(s: Subject) -> Verdict:
    """What the reference takes over from a saved state is taken over here, too.

    Of the full runs, optimizer by optimizer: tensors in its state before its first step (momenta),
    weights loaded with no key missing that the reference finds, and the learning rate of each step
    after it, relative ``hyper_rtol``. A state that the reference does not start with is a fault as
    well: a stale file was picked up.
    """
    ours, theirs = stages(s.reference), stages(s.run)
    for run, found in ((s.reference, ours), (s.run, theirs)):
        if not found or all(one.state_tensors is None for one in found):
            raise NotRun(f"The probe recorded no optimizer's state in run #{run.number}.")
    if not any(one.resumes for one in (*ours, *theirs)):
        raise NotRun("Neither run starts from a saved state of an optimizer.")
    wrong = ""
    if len(ours) != len(theirs):
        wrong = f"{len(theirs)} optimizer(s) take steps instead of {len(ours)}"
    for n, (mine, other) in enumerate(zip(ours, theirs, strict=False), 1):
        wrong = wrong or _unlike(mine, other, s.criteria.hyper_rtol)
        if wrong and len(ours) > 1 and len(ours) == len(theirs):
            wrong = f"optimizer {n} of {len(ours)}: {wrong}"
            break
    return judged(
        not wrong,
        wrong or "goes on from the same state",
        expected=_told(ours),
        actual=_told(theirs),
        tolerance=f"relative {s.criteria.hyper_rtol:g}",
    )


def _unlike(mine: Stage, other: Stage, rtol: float) -> str:
    before, after = mine.state_tensors or 0, other.state_tensors or 0
    if before and not after:
        return "its state is lost: it starts without momenta"
    if after and not before:
        return f"it starts with {after} tensors of state, the reference's with none"
    if after < before:
        return f"it starts with {after} tensors of state instead of {before}"
    if mine.resumes:
        return _weights(mine, other) or _schedule(mine, other, rtol)
    return ""


def _weights(mine: Stage, other: Stage) -> str:
    a, b = (
        [r for r in stage.loads if r.get("what") == "module" and view.count(r.get("keys"))]
        for stage in (mine, other)
    )
    if a and not b:
        return "its model's weights are not loaded"
    for x, y in zip(a, b, strict=False):
        missing = view.count(y.get("missing")) or 0
        if missing > (view.count(x.get("missing")) or 0):
            return f"{missing} keys of {y.get('cls')} are missing in what it loads"
    return ""


def _schedule(mine: Stage, other: Stage, rtol: float) -> str:
    for n in sorted(set(mine.rates) & set(other.rates)):
        for x, y in zip(mine.rates[n], other.rates[n], strict=False):
            if x is not None and y is not None and relative(x, y) > rtol:
                when = "the first step" if n == 1 else f"step {n}"
                return f"lr is {show(y)} in {when} after the resume instead of {show(x)}"
    return ""


def _told(found: list[Stage]) -> str:
    return "; ".join(
        f"{one.state_tensors or 0} tensors of state"
        + (f", lr {show(one.rates[min(one.rates)][0])}" if _has_rate(one) else "")
        for one in found[:6]
    )


def _has_rate(stage: Stage) -> bool:
    return bool(stage.rates) and bool(stage.rates[min(stage.rates)])
