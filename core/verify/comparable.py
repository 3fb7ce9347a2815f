"""Whether a figure of the target may be laid beside the reference's, and why not."""

from __future__ import annotations

from core import records_view as view
from core.levels import target
from core.reference.marks import no_time
from core.verify.subject import NotRun, Subject


def comparable(s: Subject) -> tuple[bool, str]:
    """Whether the two metrics speak of the same thing: same data, evaluation and seeds.

    Not comparable is what is *known* to differ; what is not known is said. The class of hardware
    is no part of it: it is what a migration changes, and matters to time and dollars
    (:func:`comparable_time`).
    """
    unlike, alike, unknown = [], [], []
    for field, what in (("eval_last", "samples evaluated"), ("samples", "training samples")):
        mine, other = (_count(s, run, field) for run in ("reference", "run"))
        if not mine or not other:
            unknown.append(f"the {what} are not known")
        elif mine == other:
            alike.append(f"the same number of {what}")
        else:
            unlike.append(f"{other} {what}, the reference {mine}")
    words, same = _batches(s)
    (unknown if same is None else alike if same else unlike).append(words)
    seeds = [run.started.seed for run in s.references]
    if len(seeds) > 1:
        alike.append(f"{len(seeds)} seeds of the reference, {len(s.target_runs)} of the target")
    if unlike:
        return False, "; ".join(unlike)
    return True, "; ".join([*alike, *unknown])


def _count(s: Subject, which: str, field: str) -> int | None:
    run = getattr(s, which)
    if field == "samples":
        steps = view.steps(run)
        total, known = view.per_step(steps, field)
        return int(total) if known and known == len(steps) else None
    finish = view.record(run, "finish") or {}
    return view.count(finish.get(field, finish.get("eval_samples")))


def _batches(s: Subject) -> tuple[str, bool | None]:
    try:
        states = {str(r.get("state")) for r in view.records(s.parity, "batch")}
    except NotRun:
        states = set()
    if not states:
        return "the batches were not compared", None
    if states <= {"same", "padded", "reordered"}:
        extra = " and ".join(sorted(states - {"same"}))
        return f"the same batches{f' ({extra})' if extra else ''}", True
    return "other batches in the parity steps", False


def comparable_time(s: Subject) -> tuple[bool, str]:
    """Whether time and dollars of the two may be compared: what each side ran on."""
    if why := no_time(s.reference):
        return False, f"reference #{s.reference.number}: {why}"
    reference = s.reference.started.target or "cpu"
    kind = str(target(s.state).get("kind", ""))
    if s.xla_cpu:
        return False, f"xla-cpu against {reference}: no TPU figure"
    if reference.split(":")[0] == "cpu":
        return False, f"{kind} against a CPU: the reference was not run on the GPU it is for"
    return True, f"{kind} against {reference}"
