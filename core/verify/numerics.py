"""L1, second half: the same numbers, step by step, from the same start.

All of these are comparisons of two runs on the same weights and the same batches. Where the
start differs they say nothing about the migration, so they are *not run*.
"""

from __future__ import annotations

import math

from core import records_view as view
from core.body import JSON
from core.verify.compare import Comparison, compare, joined, series, share, show
from core.verify.registry import check
from core.verify.structure import start_difference
from core.verify.subject import NotRun, Subject, Verdict, judged


def _comparable(s: Subject) -> tuple[list[JSON], list[JSON]]:
    """The two runs' steps; raises :class:`NotRun` where their numbers can't be compared."""
    ours, theirs = s.pair()
    difference = start_difference(s)
    if difference:
        raise NotRun(difference)
    return ours, theirs


def _told(
    s: Subject, what: str, result: Comparison, rtol: float, evidence: JSON | None = None
) -> Verdict:
    if not result.compared:
        raise NotRun(f"No {what} was recorded for the same step of both parity runs.")
    if result.missing and not result.first:
        raise NotRun(f"The {what} of {result.missing} step(s) was recorded in one run only.")
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


@check("L1.first_loss")
def first_loss(s: Subject) -> Verdict:
    """Loss of the first step, before any update: ``first_loss_rtol``, bf16 ``bf16_rtol``."""
    ours, theirs = _comparable(s)
    rtol = s.rtol(s.criteria.first_loss_rtol, s.criteria.bf16_rtol)
    pairs = [p for p in series(ours, theirs, "loss") if p[0] == 1]
    return _told(s, "first loss", compare(pairs, rtol), rtol)


@check("L1.trajectory")
def trajectory(s: Subject) -> Verdict:
    """Loss of every parity step: ``trajectory_rtol``, bf16 ``bf16_trajectory_rtol``.

    A loss near zero is held to the scale of the curve (a thousandth of its largest value), as
    an elementwise relative error near zero says nothing (measured on torch_xla 2.9.0).
    """
    ours, theirs = _comparable(s)
    rtol = s.rtol(s.criteria.trajectory_rtol, s.criteria.bf16_trajectory_rtol)
    pairs = series(ours, theirs, "loss")
    result = compare(pairs, rtol, _floor(pairs))
    if len(theirs) < len(ours):
        return judged(
            False,
            f"the parity run took {len(theirs)} of {len(ours)} steps",
            expected=f"{len(ours)} steps",
            actual=f"{len(theirs)} steps",
            evidence={"steps": result.compared},
        )
    curves = {"expected": [p[1] for p in pairs], "actual": [p[2] for p in pairs]}
    return _told(s, "loss", result, rtol, {"loss": curves})


def _floor(pairs: list[tuple[int, float | None, float | None]]) -> float:
    values = [abs(p[1]) for p in pairs if p[1] is not None and math.isfinite(p[1])]
    return 1e-3 * max(values, default=0.0)


@check("L1.grad_norm")
def grad_norm(s: Subject) -> Verdict:
    """Norm of all gradients before clipping, per step: ``grad_rtol``, bf16 ``bf16_trajectory_rtol``."""
    ours, theirs = _comparable(s)
    rtol = s.rtol(s.criteria.grad_rtol, s.criteria.bf16_trajectory_rtol)
    pairs = series(ours, theirs, "grad_norm")
    result = compare(pairs, rtol, _floor(pairs))
    return _told(s, "gradient norm", result, rtol, _worst_tensor(s, ours, theirs, "grad_norms"))


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


def _clip_factor(record: JSON) -> float | None:
    """By what factor clipping scaled the gradients of a step; 1 where it had no effect."""
    before, after = view.number(record.get("grad_norm")), view.number(record.get("grad_norm_after"))
    if before is None or after is None:
        return None
    return after / before if before else 1.0


@check("L1.clip")
def clip(s: Subject) -> Verdict:
    """The factor by which clipping scaled the gradients in each step: ``grad_rtol``.

    It is measured on the gradients the optimizer got, not read from the call: norm right before
    the optimizer's step over the norm before clipping. The limits asked for are compared too.
    """
    ours, theirs = _comparable(s)
    rtol = s.rtol(s.criteria.grad_rtol, s.criteria.bf16_trajectory_rtol)
    result = compare(joined(ours, theirs, _clip_factor), rtol)
    limits = [
        sorted({_limit(c) for r in x for c in view.rows(r.get("clips"))}) for x in (ours, theirs)
    ]
    verdict = _told(s, "clip factor", result, rtol, {"asked for": limits[0], "calls": limits[1]})
    if result.ok and limits[0] != limits[1]:
        return judged(
            False,
            "other clip calls than the reference's",
            expected=", ".join(limits[0]) or "no clipping",
            actual=", ".join(limits[1]) or "no clipping",
            tolerance="equal",
        )
    return verdict


def _limit(call: JSON) -> str:
    return f"{call.get('fn')}({show(view.number(call.get('max_norm')))})"


@check("L1.update")
def update(s: Subject) -> Verdict:
    """Norm of the parameter update of each step: ``grad_rtol``, bf16 ``bf16_trajectory_rtol``."""
    ours, theirs = _comparable(s)
    rtol = s.rtol(s.criteria.grad_rtol, s.criteria.bf16_trajectory_rtol)
    pairs = series(ours, theirs, "update_norm")
    result = compare(pairs, rtol, _floor(pairs))
    still = [n for n, mine, other in pairs if mine and other == 0]
    if still:
        return judged(
            False,
            f"the parameters do not change in step {still[0]}",
            expected=f"an update of norm {show(result.expected)}",
            actual="0",
            evidence={"steps without an update": still},
        )
    return _told(s, "update norm", result, rtol, _worst_tensor(s, ours, theirs, "update_norms"))
