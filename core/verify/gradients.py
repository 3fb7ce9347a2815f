"""L1, the gradients of the first step, tensor by tensor, before any clipping."""

from __future__ import annotations

import math
import re

from core import records_view as view
from core.body import JSON
from core.state_parts import Run
from core.verify.batches import unfed
from core.verify.compare import clip_factor, relative, share
from core.verify.forward import explained
from core.verify.registry import check
from core.verify.start import start_difference
from core.verify.structure import by_hand
from core.verify.subject import NotRun, Subject, Verdict, judged

NEGLIGIBLE = 1e-2
"""A difference below this times the tolerance, as a share of the whole gradient, is rounding."""


@check("L1.gradients")
def gradients(s: Subject) -> Verdict:
    """Relative L2 of each parameter's gradient in the first step: ``gradients_rtol``.

    The oracle prototype saw 6e-7 in fp32 and 1.8e-2 in bf16 for a faithful migration (measured on
    torch_xla 2.9.0). A gradient that is zero but for rounding, such as that of a bias before a
    batch norm, has no direction to agree on: a tensor counts only where what it is off by is more
    than a hundredth of the tolerance as a share of the whole gradient. A method that
    estimates its gradient without backward has none, and the check is not run. Clipping that one of
    the programs has written out comes before its gradients are read: they are then shorter by the
    clip coefficient, and off by just that.
    """
    if difference := start_difference(s):
        raise NotRun(difference)
    if difference := unfed(s, first=True):
        raise NotRun(difference)
    record = _first(s.parity)
    if record is None:
        if not s.replayed:
            raise NotRun(s.not_replayed("gradients"))
        raise NotRun(
            "The reference has no gradients of parameters in its first step: its optimizer does "
            "without backward. Its updates are compared instead (L1.update)."
        )
    errors = _errors(record)
    missing, extra = _names(record, "missing"), _names(record, "extra")
    if not errors and not missing and not extra:
        raise NotRun("No gradient could be compared: no parameter has one on both sides.")
    rtol, note = s.low(s.criteria.gradients_rtol, s.criteria.gradients_bf16_rtol)
    shares = _shares(s)
    rtol, note = s.widened(rtol, note, _variation(s.repeats, rtol, shares))
    bad = _bad(errors, rtol, shares)
    scaled = _scaled_by_hand(s)
    if bad and scaled and all(abs(errors[n] - scaled) * shares.get(n, 1.0) <= rtol for n in errors):
        note += f"; all are shorter by {share(scaled)}, as clipping has made them"
        errors, bad = {name: abs(error - scaled) for name, error in errors.items()}, []
    evidence: JSON = {
        "compared": len(errors),
        **({"only the reference has one": missing[:50]} if missing else {}),
        **({"only the migrated code has one": extra[:50]} if extra else {}),
        "tensors": [
            {"tensor": n, "error": share(e), "share": share(shares[n]) if n in shares else "-"}
            for n, e in sorted(errors.items(), key=lambda x: -x[1])[:50]
        ],
    }
    tolerance = f"relative L2 {share(rtol)}{note}"
    if missing or extra:
        which = missing or extra
        side = "only the reference has" if missing else "the reference does not have"
        return judged(
            False,
            f"{len(which)} parameter(s) with a gradient that {side}: {', '.join(which[:3])}",
            expected=f"gradients of {len(errors) + len(missing)} tensors",
            actual=f"{len(errors) + len(extra)} tensors",
            tolerance="equal",
            evidence=evidence,
        )
    if bad:
        if cause := explained(s):
            raise NotRun(cause)
        name = max(bad, key=lambda n: errors[n] * shares.get(n, 1.0))
        return judged(
            False,
            f"{len(bad)} of {len(errors)} gradients differ, most in {name}: {share(errors[name])}",
            expected=f"the reference's gradient of {name}",
            actual=f"{share(errors[name])} off",
            tolerance=tolerance,
            evidence=evidence,
        )
    worst = max(errors, key=lambda n: errors[n] * shares.get(n, 1.0))
    own = _own(s, evidence, shares)
    if own is not None:
        return own
    return judged(
        True,
        f"{len(errors)} gradients agree: relative L2 {share(errors[worst])} in {worst}",
        expected="the reference's gradient of each tensor",
        actual=f"{share(errors[worst])} off at most",
        tolerance=tolerance,
        evidence=evidence,
    )


def _scaled_by_hand(s: Subject) -> float:
    """By what share of the reference's the gradients are off if one side clips by itself, or 0."""
    ours, theirs = s.pair()
    hands = by_hand(ours), by_hand(theirs)
    if hands[0] == hands[1] or not ours or not theirs:
        return 0.0
    factor, other = clip_factor(ours[0]), clip_factor(theirs[0])
    if not factor or other is None or relative(factor, other) > s.criteria.grad_rtol:
        return 0.0
    return 1.0 / factor - 1.0 if hands[0] else 1.0 - factor


def _own(s: Subject, evidence: JSON, shares: dict[str, float]) -> Verdict | None:
    record = _first(s.parity_own) if s.parity_own else None
    if record is None:
        return None
    rtol = s.criteria.gradients_bf16_rtol
    errors = _errors(record)
    bad = _bad(errors, rtol, shares)
    if errors:
        worst = max(errors, key=lambda n: errors[n] * shares.get(n, 1.0))
        evidence["in its own precision"] = f"{share(errors[worst])} in {worst}"
    # Single tensors add up the rounding of all layers above them: the whole gradient is judged.
    total = sum((e * shares.get(n, 0.0)) ** 2 for n, e in errors.items() if e == e) ** 0.5
    if not bad or total <= rtol:
        return None
    name = max(bad, key=lambda n: errors[n] * shares.get(n, 1.0))
    return judged(
        False,
        f"in its own precision the gradient differs by {share(total)}, most in {name}",
        expected="the reference's gradient",
        actual=f"{share(total)} off",
        tolerance=f"relative L2 {share(rtol)} (half precision)",
        evidence=evidence,
    )


def _first(run: Run) -> JSON | None:
    """What is known of the first step of each optimizer, as one record."""
    found = view.records(run, "gradients")
    if not found:
        return None
    errors: dict[str, float] = {}
    for record in found:
        for name, error in _errors(record).items():
            if not error <= errors.get(name, -1.0):  # the worst of several ranks; nan is
                errors[name] = error
    sides = {
        field: [name for record in found for name in _names(record, field)]
        for field in ("missing", "extra")
    }
    return {"errors": errors, **sides}


def _errors(record: JSON) -> dict[str, float]:
    table = view.table(record.get("errors"))
    return {str(k): e for k, v in table.items() if (e := view.number(v)) is not None}


def _names(record: JSON, field: str) -> list[str]:
    names = record.get(field)
    return [str(n) for n in names] if isinstance(names, list) else []


def _bad(errors: dict[str, float], rtol: float, shares: dict[str, float]) -> list[str]:
    return [
        name
        for name, error in errors.items()
        # Not <=: a gradient that is nan on one side is not alike.
        if not error <= rtol and not error * shares.get(name, 1.0) <= NEGLIGIBLE * rtol
    ]


def _shares(s: Subject) -> dict[str, float]:
    """Each tensor's part of its optimizer's whole gradient in the reference's first step, by name.

    Where several roots are trained, a name begins with the number of its root.
    """
    made = reversed(view.records(s.parity_reference, "model"))
    models = {view.count(m.get("optimizer_id")): m for m in made}
    norms: dict[str, float] = {}
    seen = set()
    for step in view.steps(s.parity_reference, first=50):
        optimizer = view.count(step.get("optimizer_id"))
        if optimizer in seen:
            continue
        seen.add(optimizer)
        norms |= _of_optimizer(models.get(optimizer) or {}, step)
    shares = {}
    for name in _errors(_first(s.parity) or {}):
        value = norms.get(name, norms.get(_ROOT.sub("", name)))
        if value is not None:
            shares[name] = value
    return shares


_ROOT = re.compile(r"^\d+\.")


def _of_optimizer(model: JSON, step: JSON) -> dict[str, float]:
    names, norms = model.get("names"), step.get("grad_norms")
    if not isinstance(names, list) or not isinstance(norms, list) or len(names) != len(norms):
        return {}
    known = {
        str(n): v for n, x in zip(names, norms, strict=True) if (v := view.number(x)) is not None
    }
    total = sum(v * v for v in known.values()) ** 0.5
    return {n: v / total for n, v in known.items()} if total else {}


def _variation(repeats: list[Run], rtol: float, shares: dict[str, float]) -> float:
    """How far the reference's own repeats are from its gradients, at most, where that counts."""
    errors = [_errors(record) for run in repeats if (record := _first(run))]
    counted = [e[name] for e in errors for name in _bad(e, rtol, shares)]
    return max((x for x in counted if math.isfinite(x)), default=0.0)
