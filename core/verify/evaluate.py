"""Evaluate every check of the ladder for one tree, from the fold alone."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from core.criteria import Used, hash_of
from core.events import CheckEvaluated, LevelMeasured
from core.levels import (
    CHECKS,
    FAIL,
    NOT_RUN,
    PASS,
    QUESTIONS,
    WAIVED,
    Check,
    Criteria,
    Identity,
    highest,
    identity,
    stale_reason,
    target_note,
    top_level,
    with_note,
)
from core.state import SessionState
from core.state_parts import level_name

# Importing these modules registers their checks.
from core.verify import (
    batches,
    checkpoint,
    data,
    evaluation,
    execution,
    forward,
    goal,
    gradients,
    hardware,
    metric,
    modules,
    numerics,
    precision,
    ranks,
    resume,
    start,
    structure,
    worth,
)
from core.verify.registry import EVALUATORS as EVALUATORS
from core.verify.subject import NotRun, Subject, not_run

_MODULES = (
    *(execution, structure, start, batches, precision, forward, gradients, numerics, ranks),
    *(modules, data, resume, hardware, metric, goal, evaluation, checkpoint, worth),
)
assert set(EVALUATORS) == set(CHECKS), _MODULES


def evaluate(state: SessionState, tree: str) -> list[CheckEvaluated]:
    """The result of every check for ``tree``, in the order of the ladder.

    Pure: the same state gives the same results. A check that lacks what it needs is ``not run``
    with the reason. A check that the operator waived stays waived, unless it passes, for as long
    as a result for the same tree, command, criteria it uses and chip count would hold; what was
    measured stays in its evidence.
    """
    subject = Subject(state, tree, Criteria.of(state))
    return [_evaluate(subject, check) for check in CHECKS.values()]


def _evaluate(s: Subject, check: Check) -> CheckEvaluated:
    now = identity(s.state, s.tree)
    used = Used(s.criteria)
    s = replace(s, criteria=used)  # type: ignore[arg-type]  # it reads as criteria do
    try:
        verdict = ranks.judge(s, check.id, check.level, EVALUATORS[check.id])
    except NotRun as missing:
        verdict = not_run(str(missing))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # Records come from a stranger's process. What can't be judged has not passed.
        verdict = not_run(
            f"The records of this check could not be read ({type(error).__name__}: {error})."
        )
    runs, references = _runs(s, check)
    result = CheckEvaluated(
        check=check.id,
        level=check.level,
        state=verdict.state,
        summary=verdict.summary,
        expected=verdict.expected,
        actual=verdict.actual,
        tolerance=verdict.tolerance,
        reason=verdict.reason,
        tree=now.tree,
        command=now.command,
        criteria=hash_of(used.values),
        uses=dict(sorted(used.values.items())),
        chips=now.chips,
        runs=runs,
        reference_runs=references,
        evidence=verdict.evidence,
    )
    waiver = None if verdict.state == PASS else _waiver(s, result, now)
    return waived(result, waiver.reason, waiver.author) if waiver else result


def _runs(s: Subject, check: Check) -> tuple[list[str], list[str]]:
    """The runs a check looks at: those of the tree, and those it is held against."""
    names = ("run", "reference") if check.full else ("parity", "parity_reference")
    found: list[list[str]] = []
    for name in names:
        try:
            found.append([getattr(s, name).run_id])
        except NotRun:
            found.append([])
    return found[0], found[1]


def _waiver(s: Subject, result: CheckEvaluated, now: Identity) -> CheckEvaluated | None:
    """The waiver that still holds, by the rule by which any result does."""
    for earlier in reversed(s.state.checks.get(result.check, [])):
        body = earlier.body
        if body.state in (WAIVED, PASS) and not stale_reason(s.state, body, now):
            return body if body.state == WAIVED else None
    return None


def waived(result: CheckEvaluated, reason: str, author: str) -> CheckEvaluated:
    """The same result, waived by the operator; ``reason`` is what they said."""
    evidence = dict(result.evidence)
    evidence.setdefault("measured", result.state)
    evidence.setdefault("measured summary", result.summary)
    return CheckEvaluated(
        **{
            **result.payload(),
            "state": WAIVED,
            "summary": f"waived: {reason}",
            "reason": reason,
            "evidence": evidence,
            "author": author,
        }
    )


def measured(
    results: list[CheckEvaluated],
    note: str = "",
    top: int = len(QUESTIONS) - 1,
    later: Collection[str] = (),
) -> LevelMeasured:
    """The measured level of one round of checks, and in a sentence what stands above it.

    ``note`` (see :func:`core.levels.target_note`) goes into the text; ``top`` is
    :func:`core.levels.top_level`, ``later`` checks that were not there to be evaluated.
    """
    states = {r.check: r.state for r in results}
    level = highest(states, top, later)
    tree = results[0].tree if results else ""
    above = [r for r in results if r.level == level + 1 <= top and r.state in (FAIL, NOT_RUN)]
    above = [r for r in above if not (CHECKS[r.check].optional and r.state == NOT_RUN)]
    above.sort(key=lambda r: r.state != FAIL)
    text = level_name(level)
    if above:
        more = f" and {len(above) - 1} more" if len(above) > 1 else ""
        text += f"; {above[0].check} {above[0].state}{more}: {above[0].reason or above[0].summary}"
    return LevelMeasured(level, tree, dict(states), with_note(text, note))


def measure(state: SessionState, tree: str) -> tuple[list[CheckEvaluated], LevelMeasured]:
    """One round of verification: every check, and the level that follows from them."""
    results = evaluate(state, tree)
    return results, measured(results, target_note(state), top_level(state))
