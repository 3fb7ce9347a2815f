"""L1, second half: the same numbers, step by step, from the same start.

All of these are comparisons of two runs on the same weights and the same batches. Where the
start differs they say nothing about the migration, so they are *not run*.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from core import records_view as view
from core.body import JSON
from core.levels import FAIL, PASS
from core.verify.batches import unfed, unfed_own
from core.verify.compare import (
    Comparison,
    clip_factor,
    compare,
    joined,
    relative,
    series,
    share,
    show,
    step_of,
)
from core.verify.copies import other_copies
from core.verify.forward import explained
from core.verify.growth import grown
from core.verify.registry import check
from core.verify.start import start_difference
from core.verify.structure import by_hand
from core.verify.subject import NotRun, Subject, Verdict, judged

Judge = Callable[[list[JSON], list[JSON], bool], Verdict]
"""A comparison of two runs' steps; the last argument: in half precision."""


def _comparable(s: Subject, first: bool) -> tuple[list[JSON], list[JSON]]:
    """The two runs' steps; raises :class:`NotRun` where their numbers can't be compared."""
    ours, theirs = s.pair()
    if difference := start_difference(s):
        raise NotRun(difference)
    if difference := unfed(s, first):
        raise NotRun(difference)
    return ours, theirs


def _both(
    s: Subject,
    judge: Judge,
    explains: Callable[[Subject], str] = explained,
    first: bool = False,
) -> Verdict:
    """The verdict in float32, and where the target has a dtype of its own, in that as well.

    A difference that an earlier check has named (``explains``) is *not run* here with that
    reason: the first place where two runs differ is the answer, the rest follows from it. ``first``:
    the first step alone is judged.
    """
    ours, theirs = _comparable(s, first)
    verdict = judge(ours, theirs, False)
    if verdict.state == FAIL and (cause := explains(s)):
        raise NotRun(cause)
    if verdict.state == FAIL and not first and len(theirs) >= len(ours):
        verdict = _before_growth(s, judge, ours, theirs) or verdict
    own = s.own_pair()
    if verdict.state != PASS or own is None:
        return verdict
    if not first and (other := unfed_own(s)):
        return replace(verdict, evidence={**verdict.evidence, "not in its own precision": other})
    again = judge(*own, True)
    if again.state == FAIL:
        return replace(again, summary=f"in its own precision {again.summary}")
    evidence = {**verdict.evidence, "in its own precision": again.summary}
    return replace(verdict, evidence=evidence)


def _before_growth(
    s: Subject, judge: Judge, ours: list[JSON], theirs: list[JSON]
) -> Verdict | None:
    """The verdict on the steps before rounding has grown, if it passes; see :func:`grown`."""
    n, how = grown(s, ours, theirs)
    if not n:
        return None
    before = [[r for r in steps if step_of(r) < n] for steps in (ours, theirs)]
    verdict = judge(before[0], before[1], False)
    if verdict.state != PASS:
        return None
    note = f"{how}: judged up to step {n - 1}"
    evidence = {**verdict.evidence, **s.footnotes(note)}
    return replace(verdict, summary=f"{verdict.summary}, up to step {n - 1}", evidence=evidence)


def _told(
    s: Subject,
    what: str,
    result: Comparison,
    rtol: float,
    evidence: JSON | None = None,
    note: str | None = None,
) -> Verdict:
    if not result.compared:
        raise NotRun(f"No {what} was recorded for the same step of both parity runs.")
    if result.missing and not result.first:
        raise NotRun(f"The {what} of {result.missing} step(s) was recorded in one run only.")
    if note is None:
        note = f" ({s.low_precision})" if s.low_precision else ""
    summary = f"{what} agrees: relative error {share(result.error)}"
    if result.first:
        summary = (
            f"{what} differs from step {result.first} on: relative error {share(result.error)}"
        )
    return judged(
        result.ok,
        summary,
        expected=f"{show(result.expected)} in step {result.first or result.worst}",
        actual=show(result.actual),
        tolerance=f"relative {share(rtol)}{note}",
        evidence={
            "steps": result.compared,
            "largest relative error": "inf" if math.isinf(result.error) else result.error,
            **(evidence or {}),
        },
    )


def _tolerance(
    s: Subject,
    fp32: float,
    low: float,
    half: bool,
    value: Callable[[JSON], float | None],
    scaled: bool = True,
) -> tuple[float, str]:
    """Tolerance and its note: by dtype, and at least what the reference's own repeats vary by."""
    if half:
        return max(fp32, low), " (half precision)"
    rtol, note = s.low(fp32, low)
    mine = view.steps(s.parity_reference)[: s.criteria.parity_steps]
    variation = 0.0
    for run in s.repeats:
        pairs = joined(mine, view.steps(run)[: s.criteria.parity_steps], value)
        error = compare(pairs, math.inf, _floor(pairs) if scaled else 0.0).error
        variation = max(variation, error if math.isfinite(error) else 0.0)
    return s.widened(rtol, note, variation)


def _field(name: str) -> Callable[[JSON], float | None]:
    return lambda record: view.number(record.get(name))


@check("L1.first_loss")
def first_loss(s: Subject) -> Verdict:
    """Loss of the first step, before any update: ``first_loss_rtol``, bf16 ``bf16_rtol``."""

    def judge(ours: list[JSON], theirs: list[JSON], half: bool) -> Verdict:
        c = s.criteria
        rtol, note = _tolerance(s, c.first_loss_rtol, c.bf16_rtol, half, _field("loss"))
        pairs = [p for p in series(ours, theirs, "loss") if p[0] == 1]
        return _told(s, "first loss", compare(pairs, rtol), rtol, note=note)

    return _both(s, judge, first=True)


@check("L1.trajectory")
def trajectory(s: Subject) -> Verdict:
    """Loss of every parity step: ``trajectory_rtol``, bf16 ``bf16_trajectory_rtol``.

    A loss near zero is held to the scale of the curve (a thousandth of its largest value), as
    an elementwise relative error near zero says nothing (measured on torch_xla 2.9.0). In half
    precision the whole curve is held to its largest value: rounding sends two faithful runs along
    slightly other ways.
    """

    def judge(ours: list[JSON], theirs: list[JSON], half: bool) -> Verdict:
        c = s.criteria
        rtol, note = _tolerance(s, c.trajectory_rtol, c.bf16_trajectory_rtol, half, _field("loss"))
        pairs = series(ours, theirs, "loss")
        result = compare(pairs, rtol, _floor(pairs) * (1e3 if half else 1))
        if len(theirs) < len(ours):
            return judged(
                False,
                f"the parity run took {len(theirs)} of {len(ours)} steps",
                expected=f"{len(ours)} steps",
                actual=f"{len(theirs)} steps",
                evidence={"steps": result.compared},
            )
        curves = {"expected": [p[1] for p in pairs], "actual": [p[2] for p in pairs]}
        return _told(s, "loss", result, rtol, {"loss": curves}, note)

    def explains(s: Subject) -> str:
        # That it broke off is nothing a module explains.
        ours, theirs = s.pair()
        return "" if len(theirs) < len(ours) else explained(s)

    return _both(s, judge, explains)


def _floor(pairs: list[tuple[int, float | None, float | None]]) -> float:
    values = [abs(p[1]) for p in pairs if p[1] is not None and math.isfinite(p[1])]
    return 1e-3 * max(values, default=0.0)


def _norms(s: Subject, field: str, what: str, per_tensor: str) -> Judge:
    """How the norms of a step are judged; in half precision the first step alone.

    After it two faithful runs are at slightly other places, and a norm there is another number.
    """

    def judge(ours: list[JSON], theirs: list[JSON], half: bool) -> Verdict:
        c = s.criteria
        rtol, note = _tolerance(s, c.grad_rtol, c.bf16_trajectory_rtol, half, _field(field))
        pairs = [p for p in series(ours, theirs, field) if p[0] == 1 or not half]
        evidence = _worst_tensor(s, ours, theirs, per_tensor)
        return _told(s, what, compare(pairs, rtol, _floor(pairs)), rtol, evidence, note)

    return judge


@check("L1.grad_norm")
def grad_norm(s: Subject) -> Verdict:
    """Norm of all gradients before clipping, per step: ``grad_rtol``, bf16 ``bf16_trajectory_rtol``."""
    return _both(s, _norms(s, "grad_norm", "gradient norm", "grad_norms"))


def _worst_tensor(s: Subject, ours: list[JSON], theirs: list[JSON], field: str) -> JSON:
    """The tensor whose norm is furthest off in the first step, by name: where to look first."""
    model = view.record(s.parity_reference, "model") or {}
    names = model.get("names")
    a, b = (x[0].get(field) if x else None for x in (ours, theirs))
    if not (isinstance(names, list) and isinstance(a, list) and isinstance(b, list)):
        return {}
    if not len(names) == len(a) == len(b):  # frozen parameters: positions can't be named
        return {}
    values = [(i, view.number(x), view.number(y)) for i, (x, y) in enumerate(zip(a, b), 1)]  # noqa: B905
    result = compare(values, math.inf, _floor(values))
    if not result.compared:
        return {}
    return {"furthest tensor in step 1": str(names[result.worst - 1]), "its error": result.error}


@check("L1.clip")
def clip(s: Subject) -> Verdict:
    """The clip coefficient, by which clipping scaled the gradients of each step: ``grad_rtol``.

    It is measured on the gradients the optimizer got, not read from the call: norm right before
    the optimizer's step over the norm before clipping. The limits asked for are compared too, and
    are judged whatever the numbers rest on: another start or other batches explain no other limit.
    """
    ours, theirs = s.pair()
    asked = [_limits(x) for x in (ours, theirs)]
    # Clipping written out in the program has no limit on record, only what it did.
    written_out = any(not a and by_hand(x) for a, x in zip(asked, (ours, theirs), strict=True))
    if asked[0] != asked[1] and not written_out:
        return _other_limits(ours, theirs, asked)

    def judge(ours: list[JSON], theirs: list[JSON], half: bool) -> Verdict:
        c = s.criteria
        rtol, note = _tolerance(
            s, c.grad_rtol, c.bf16_trajectory_rtol, half, clip_factor, scaled=False
        )
        pairs = [p for p in joined(ours, theirs, clip_factor) if p[0] == 1 or not half]
        evidence = {"asked for": asked[0], "calls": asked[1]}
        result = compare(pairs, rtol)
        verdict = _told(s, "clip coefficient", result, rtol, evidence, note)
        if not result.first:
            return verdict
        values = f"{show(result.actual)} instead of {show(result.expected)}"
        text = f"clip coefficient differs from step {result.first} on: {values}"
        return replace(verdict, summary=text)

    return _both(s, judge)


def _other_limits(ours: list[JSON], theirs: list[JSON], asked: list[list[str]]) -> Verdict:
    """The failure of another limit, with the coefficients of the first step it made another."""
    pairs = joined(ours, theirs, clip_factor)
    known = [p for p in pairs if p[1] is not None and p[2] is not None]
    at = next((p for p in known if relative(p[1] or 0.0, p[2] or 0.0) > 1e-6), None)
    words = [", ".join(x) or "no clipping" for x in asked]
    if at is None:
        return judged(
            False,
            "other clip calls than the reference's",
            expected=words[0],
            actual=words[1],
            tolerance="equal",
        )
    return judged(
        False,
        f"clip coefficient {show(at[2])} instead of {show(at[1])} in step {at[0]}: {words[1]}, the "
        f"reference {words[0]}",
        expected=f"clip coefficient {show(at[1])} in step {at[0]} ({words[0]})",
        actual=f"clip coefficient {show(at[2])} ({words[1]})",
        tolerance="equal",
        evidence={
            "asked for": asked[0],
            "calls": asked[1],
            "coefficients": {"expected": [p[1] for p in pairs], "actual": [p[2] for p in pairs]},
        },
    )


def _limits(steps: list[JSON]) -> list[str]:
    return sorted({_limit(c) for r in steps for c in view.rows(r.get("clips"))})


def _limit(call: JSON) -> str:
    """Without how it was called: torch clips by norm in one call, in two, or by a model's method."""
    name, kind = str(call.get("fn")), view.number(call.get("norm_type"))
    if name == "clip_grads_with_norm_" or name.endswith(".clip_grad_norm_"):
        name = "clip_grad_norm_"
    of = "" if kind in (None, 2.0) else f", norm {show(kind)}"
    return f"{name}({show(view.number(call.get('max_norm')))}{of})"


@check("L1.update")
def update(s: Subject) -> Verdict:
    """Norm of the parameter update of each step: ``grad_rtol``, bf16 ``bf16_trajectory_rtol``.

    And where the copies of the weights that the program keeps have come by then.
    """
    norms = _norms(s, "update_norm", "update norm", "update_norms")

    def judge(ours: list[JSON], theirs: list[JSON], half: bool) -> Verdict:
        pairs = series(ours, theirs, "update_norm")
        still = [p for p in pairs if p[1] and p[2] == 0]
        if still:
            return judged(
                False,
                f"the parameters do not change in step {still[0][0]}",
                expected=f"an update of norm {show(still[0][1])}",
                actual="0",
                evidence={"steps without an update": [p[0] for p in still]},
            )
        return norms(ours, theirs, half)

    verdict = _both(s, judge)
    return (other_copies(s) or verdict) if verdict.state == PASS else verdict
