"""L3, the project's own metric, against what the reference reaches and how much that varies."""

from __future__ import annotations

import math

from core import records_view as view
from core.body import JSON
from core.metric import MetricReading, higher_is_better
from core.state_parts import Run
from core.verify.comparable import comparable
from core.verify.compare import share
from core.verify.registry import check
from core.verify.result import metric_of, shown
from core.verify.seeds import Judgement, judge
from core.verify.subject import NotRun, Subject, Verdict, judged


@check("L3.metric")
def metric(s: Subject) -> Verdict:
    """The project's metric against our own reference runs, never against the paper's number.

    Only worse counts, in the metric's direction. Tolerance: ``goal_points`` where the metric has
    points (``[metric] points`` is the factor that turns it into them), else ``goal_rtol`` of the
    reference's value. With several runs the reference's own run-to-run variation is the band, by
    the rule in :func:`core.verify.seeds.judge`.
    """
    config = view.table(s.state.config.get("metric"))
    name, higher = str(config.get("name") or "metric"), higher_is_better(config)
    references, targets = s.references, s.target_runs
    of_ours = [_found(run, config) for run in references]
    of_theirs = [_found(run, config) for run in targets]
    ours, theirs = [x.value for x in of_ours], [x.value for x in of_theirs]
    for run, value in zip(references, ours, strict=True):
        if not math.isfinite(value):
            raise NotRun(f"The reference run #{run.number} printed {name} {value}.")
    points = view.number(config.get("points")) or 0.0
    scale = sum(abs(x) for x in ours) / len(ours)
    unit = points if points > 0 else (1 / scale if scale else math.inf)
    limit = s.criteria.goal_points if points > 0 else s.criteria.goal_rtol
    found = judge(ours, theirs, higher, limit / unit if math.isfinite(unit) else 0.0)
    words = "at most {:g} points worse" if points > 0 else "at most {:g} relative worse"
    sure, why = comparable(s)
    evidence: JSON = {
        "direction": "higher is better" if higher else "lower is better",
        "rule": found.rule,
        "reference read from": shown(of_ours[-1]),
        "read from": shown(of_theirs[-1]),
        "comparable": f"{'yes' if sure else 'no'}: {why}",
        **s.footnotes(*_notes(s, found, references, targets)),
    }
    if len(ours) > 1 or len(theirs) > 1:
        evidence |= {"reference values": ours, "values": theirs}
    difference = _difference(found, unit, points > 0, len(ours))
    shown_value = (
        f"{theirs[0]:g}" if len(theirs) == 1 else f"{sum(theirs) / len(theirs):g} on average"
    )
    return judged(
        # Not > : a metric that is nan is no pass.
        found.good and all(map(math.isfinite, theirs)),
        f"{name} {shown_value}, {difference}",
        expected=_expected(found, ours, references),
        actual=", ".join(f"{x:g}" for x in theirs),
        tolerance=words.format(limit) + _band(found, unit, points > 0, len(theirs)),
        evidence=evidence,
    )


def _difference(found: Judgement, unit: float, points: bool, references: int) -> str:
    """``0.50 points worse``; for several reference runs, than the worst of them."""
    if math.isnan(found.loss):
        return "which is no number"
    if not found.loss:
        return "equal to the reference"
    size = abs(found.loss) * unit
    words = f"{size:.2f} points" if points else f"{share(size)} relative"
    direction = "worse" if not found.loss <= 0 else "better"
    return f"{words} {direction}" + (
        " than the worst reference" if _has_band(found, references) else ""
    )


def _has_band(found: Judgement, references: int) -> bool:
    return references > 1 and "worst of" in found.rule


def _expected(found: Judgement, ours: list[float], references: list[Run]) -> str:
    if len(ours) == 1:
        return f"{ours[0]:g} (reference #{references[0].number})"
    low, high, mean = min(ours), max(ours), sum(ours) / len(ours)
    return f"{low:g} to {high:g}, mean {mean:g}, in {len(ours)} reference runs"


def _band(found: Judgement, unit: float, points: bool, targets: int) -> str:
    if math.isnan(found.low) or targets < 2:
        return f" ({found.rule})" if not math.isnan(found.low) else ""
    low, high = found.low * unit, found.high * unit
    what = "points" if points else "relative"
    return f" (95 % interval of the loss {low:.3g} to {high:.3g} {what})"


def _notes(s: Subject, found: Judgement, references: list[Run], targets: list[Run]) -> list[str]:
    """Facts that the figure is to be read with."""
    notes = [found.footnote]
    tried = sum(r.tree == s.tree and r.ok_exit and s.is_target(r) for r in s.state.attempts)
    if tried > len(targets):
        notes.append(f"the latest of {tried} runs of this code")
    if len(references) > len(targets):
        notes.append(
            f"{len(targets)} run(s) of the target against {len(references)} of the reference"
        )
    return notes


def _found(run: Run, config: dict[str, object]) -> MetricReading:
    found, problem = metric_of(run, config)
    if found is None:
        raise NotRun(problem)
    return found
