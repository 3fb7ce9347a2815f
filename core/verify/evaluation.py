"""How a run evaluates: in which mode, and whether the ranks' parts become one metric."""

from __future__ import annotations

from core import records_view as view
from core.state_parts import Run
from core.verify.ranks import finishes, ranks
from core.verify.registry import check
from core.verify.subject import NotRun, Subject, Verdict, judged

#: Share of the evaluated samples by which two runs may differ in mode: a sanity check of a few
#: batches may be made before ``model.eval()``. Ours.
MODE_SHARE = 0.02


@check("L3.evaluated")
def evaluated(s: Subject) -> Verdict:
    """The model is evaluated in the same mode: with dropout and batch statistics, or without.

    Share of the samples forwarded without gradients that met a module in training mode. And where
    the reference keeps an average of its weights and evaluates with another module than the one it
    trains, it is not the trained one that is evaluated. Where as many samples met training mode (the
    rollouts of an actor-critic), another share is one of another number of samples: L3.samples.
    """
    if not s.run.ok_exit:
        raise NotRun(
            f"Run #{s.run.number} did not end with exit 0, so its evaluation says nothing."
        )
    mine, other = _share(s.reference), _share(s.run)
    if abs(mine - other) <= MODE_SHARE and (another := _other_module(s)):
        return another
    good = abs(mine - other) <= MODE_SHARE or _in_training(s.reference) == _in_training(s.run)
    words = "in training mode" if other > mine else "in evaluation mode"
    return judged(
        good,
        f"evaluates in {'training' if other > 0.5 else 'evaluation'} mode, as the reference"
        if good
        else f"{abs(other - mine):.0%} of the evaluation runs {words}, other than the reference's",
        expected=f"{mine:.1%} in training mode",
        actual=f"{other:.1%}",
        tolerance=f"{MODE_SHARE:.0%}",
        reason="" if good or other < mine else "model.eval() is not called before evaluating.",
    )


def _other_module(s: Subject) -> Verdict | None:
    try:
        kept = view.records(s.parity_reference, "copies")
        mine, other = (_share(run, "eval_untrained") for run in (s.reference, s.run))
    except NotRun:
        return None
    if not kept or mine - other <= MODE_SHARE:
        return None
    return judged(
        False,
        f"{mine - other:.0%} of the evaluation is of the trained model itself, not of its average",
        expected=f"{mine:.1%} with a module that is not trained itself",
        actual=f"{other:.1%}",
        tolerance=f"{MODE_SHARE:.0%}",
        reason="The reference keeps a copy of its weights, such as their average, and evaluates that.",
    )


def _in_training(run: Run) -> int:
    return sum(view.count(r.get("eval_train_mode")) or 0 for r in finishes(run))


def _share(run: Run, field: str = "eval_train_mode") -> float:
    records = finishes(run)
    train = [view.count(r.get(field)) for r in records]
    every = [view.count(r.get("eval_samples")) for r in records]
    samples = sum(n or 0 for n in every)
    if all(n is None for n in train) or not samples:
        raise NotRun(f"The probe saw no evaluation in run #{run.number}.")
    return sum(n or 0 for n in train) / samples


@check("L3.reduced")
def reduced(s: Subject) -> Verdict:
    """What several ranks evaluate becomes one metric: collectives are called where it is made.

    Counted during and after evaluations, on the first rank. Where both runs have as many ranks and
    call the same functions, as often at least; where the functions are others, at all. A reference
    of one process has none: then collectives are needed if each rank evaluates a part only.
    """
    world = len(ranks(s.run))
    if world < 2:
        raise NotRun(f"Run #{s.run.number} is of one process: there is nothing to combine.")
    other = _collectives(s.run)
    told = ", ".join(f"{n} {name}" for name, n in sorted(other.items())) or "no collective"
    if len(ranks(s.reference)) < 2:
        return _against_one(s, world, other, told)
    mine = _collectives(s.reference)
    if not mine:
        raise NotRun("The reference's ranks combine nothing in their evaluations.")
    lost = [name for name in mine if other.get(name, 0) < mine[name]]
    alike = set(other) <= set(mine)
    good = bool(other) and not (alike and lost and len(ranks(s.reference)) == world)
    return judged(
        good,
        "the ranks' evaluations are combined"
        if good
        else f"{lost[0]} is called {other.get(lost[0], 0)} times in evaluations instead of "
        f"{mine[lost[0]]}",
        expected=", ".join(f"{n} {name}" for name, n in sorted(mine.items())),
        actual=told,
        reason="" if good else "Each rank's metric is of its own samples alone.",
    )


def _collectives(run: Run) -> dict[str, int]:
    first = finishes(run)[0].get("collectives")
    if not isinstance(first, dict):
        raise NotRun(f"The probe counted no collectives in run #{run.number}.")
    return {str(name): n for name, value in first.items() if (n := view.count(value))}


def _against_one(s: Subject, world: int, other: dict[str, int], told: str) -> Verdict:
    samples = [view.count(r.get("eval_last")) or 0 for r in finishes(s.run)]
    whole = view.count(finishes(s.reference)[0].get("eval_last"))
    if not whole or not any(samples):
        raise NotRun("The probe saw no evaluation in one of the runs.")
    parts = max(samples) < whole
    return judged(
        bool(other) or not parts,
        "the ranks' evaluations are combined"
        if other
        else f"each of {world} ranks evaluates a part, and nothing combines them"
        if parts
        else "a rank evaluates all samples",
        expected="one metric of all samples",
        actual=f"{', '.join(map(str, samples[:8]))} samples by rank, {told}",
        reason="" if other or not parts else "Each rank's metric is of its own samples alone.",
    )
