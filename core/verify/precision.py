"""L1, what the program computes in: half precision only where it was asked for."""

from __future__ import annotations

from core import records_view as view
from core.body import JSON
from core.levels import target
from core.verify.registry import check
from core.verify.subject import NotRun, Subject, Verdict, judged


@check("L1.precision")
def precision(s: Subject) -> Verdict:
    """Half precision only where the operator allows it or the reference uses it: exact.

    ``[target] precision`` is what the operator allows; without it, what the reference's own run
    asks for. Counted are requests (``autocast``, ``.half()``, ``.to(bfloat16)``, default dtypes)
    and variables that make torch_xla compute in bfloat16 while every dtype says float32
    (measured on torch_xla 2.9.0). Silent downcasts are why this has a check of its own.
    """
    record = s.told("precision")
    if record is None or not isinstance(record.get("requests"), list):
        raise NotRun(s.not_replayed("requests for a precision"))
    mine, other = half(view.record(s.parity_reference, "precision")), half(record)
    declared = str(target(s.state).get("precision") or "")
    allowed = declared == "bf16" or (not declared and bool(mine))
    asked = "bf16, by [target] precision" if declared == "bf16" else ""
    if declared == "fp32":
        asked = "fp32, by [target] precision"
    elif not declared:
        asked = (
            f"half precision, as the reference ({mine[0]})" if mine else "fp32, as the reference"
        )
    note = ""
    if mine and not other:
        note = f"the reference computes in half precision ({mine[0]}), this in float32"
    evidence: JSON = {
        "requests": other[:20],
        "requests of the reference": mine[:20],
        **s.footnotes(note),
    }
    own = s.parity_own
    compute = view.table((view.record(own or s.parity, "precision") or {}).get("compute"))
    if compute:
        evidence["outputs of modules by dtype"] = compute
    if other and not allowed:
        return judged(
            False,
            f"computes in half precision, which nobody asked for: {other[0]}",
            expected=asked,
            actual="; ".join(other[:5]),
            tolerance="none",
            reason=(
                'If that is wanted, say so: [target] precision = "bf16". The numbers of L1 are '
                "compared in float32 either way."
            ),
            evidence=evidence,
        )
    return judged(
        True,
        f"half precision, allowed: {other[0]}" if other else f"float32{'; ' if note else ''}{note}",
        expected=asked,
        actual="; ".join(other[:5]) or "no request for half precision",
        tolerance="none",
        evidence=evidence,
    )


def half(record: JSON | None) -> list[str]:
    """What a ``precision`` record has of half precision, each with the line that asked for it."""
    found = []
    for request in view.half_requests(record):
        at, count = str(request.get("at") or ""), view.count(request.get("count")) or 1
        times = f" {count}x" if count > 1 else ""
        found.append(f"{request.get('what')}{times}" + (f" at {at}" if at else ""))
    return found + [f"{k}={v}" for k, v in view.table((record or {}).get("env")).items()]
