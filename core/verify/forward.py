"""L1, the first forward pass, module by module: which one is the first to differ?"""

from __future__ import annotations

import math
from dataclasses import dataclass

from core import records_view as view
from core.body import JSON
from core.state_parts import Run
from core.verify.batches import is_padded, unfed
from core.verify.compare import share
from core.verify.registry import check
from core.verify.start import start_difference
from core.verify.subject import NotRun, Subject, Verdict, judged

SHOWN = 200
"""Modules that a verdict keeps in its evidence, the furthest off first."""


@dataclass(frozen=True, slots=True)
class Module:
    """One call of a module: relative L2 of its output in place, and fed the reference's input."""

    name: str
    type: str
    error: float | None
    isolated: float | None
    sketched: bool
    shape_unlike: bool

    @property
    def placed(self) -> float | None:
        """The error in place; None where outputs of other shapes could not be laid beside."""
        if self.shape_unlike and self.error is not None and math.isinf(self.error):
            return None
        return self.error

    @property
    def told(self) -> str:
        """``blocks.1.up (Linear)``; the root is called by its class."""
        return f"{self.name} ({self.type})" if self.name else self.type


def modules(record: JSON | None) -> list[Module]:
    """The module calls of a ``forward`` record, in the order of the calls."""
    return [
        Module(
            str(m.get("name") or ""),
            str(m.get("type") or ""),
            view.number(m.get("error")),
            view.number(m.get("isolated")),
            bool(m.get("sketched")),
            bool(m.get("shape_unlike")),
        )
        for m in view.rows((record or {}).get("modules"))
    ]


def first_diverging(
    found: list[Module], rtol: float, padded: bool = False
) -> tuple[Module, str] | None:
    """The module to look at first, and in words how it differs; None where all are alike.

    A module that differs when it is fed the reference's own input is itself at fault, the
    innermost such one first. Where none does, the first output that differs in place got another
    input, from the code between the modules. Another shape is a difference where it is that of the
    model's own output, unless batches are ``padded``: within it, a faithful migration computes on
    all positions what the original picked some of, so that shapes are static. For the same reason
    outputs that differ in place don't count where the model's own is alike: a recurrent layer goes
    on over the padding that the original had packed away, and what it says there is not read.
    (What is not read in the first pass alone, such as a branch that begins at zero, is found by its
    gradients.)
    """
    if not padded and any(m.shape_unlike and not m.name for m in found):
        first = _innermost([m for m in found if m.shape_unlike])
        return first, "its output has another shape, and the model's own has"
    carried = _carried(found, rtol)
    alone = [m for m in found if m.isolated is not None and m.isolated > rtol]
    if padded and not carried:
        alone = []
    if alone:
        first = _innermost(alone)
        assert first.isolated is not None
        return first, f"fed the reference's own input it differs by {share(first.isolated)}"
    placed = unlike_in_place(found, rtol)
    if not placed or not carried:
        return None
    first = _innermost(placed)
    assert first.placed is not None
    if first.isolated is None:
        return first, f"its output differs by {share(first.placed)}"
    return first, (
        f"its output differs by {share(first.placed)}, but not when it is fed the reference's own "
        "input: look at the code that runs before it, between the modules"
    )


def unlike_in_place(found: list[Module], rtol: float) -> list[Module]:
    """The modules whose output differs as it came about."""
    return [m for m in found if m.placed is not None and not m.placed <= rtol]


def _carried(found: list[Module], rtol: float) -> bool:
    """Whether a difference within the model reaches its output, as far as that was compared."""
    roots = [m for m in found if not m.name]
    return not roots or any(m.placed is None or not m.placed <= rtol for m in roots)


def _innermost(found: list[Module]) -> Module:
    """The first module, in order of the calls, that holds no other of them."""
    names = {m.name for m in found}
    for module in found:
        inner = f"{module.name}." if module.name else ""
        if not any(name != module.name and name.startswith(inner) for name in names):
            return module
    return found[0]


@check("L1.forward")
def forward(s: Subject) -> Verdict:
    """Output of every module in the first training forward pass, dropout off: relative L2.

    fp32: ``forward_rtol``. The oracle prototype saw 3.5e-7 in a faithful migration, and 2e-4 or
    more for a LayerNorm eps, a GELU or a weight that is 0.1 % off, while the loss moved by 1e-6;
    elementwise relative error is useless near zero (measured on torch_xla 2.9.0). On a TPU whose
    products of matrices are bfloat16 by default, and in a run's own half precision (where only
    modules without parts are judged, and the model's output): ``forward_bf16_rtol``.
    """
    if difference := start_difference(s):
        raise NotRun(difference)
    if difference := unfed(s, first=True):
        raise NotRun(difference)
    record = s.told("forward")
    if record is None:
        raise NotRun(s.not_replayed("outputs of modules"))
    found = modules(record)
    padded = is_padded(s)
    known = [m for m in found if m.placed is not None or m.isolated is not None]
    if not padded:
        known += [m for m in found if m.shape_unlike and not m.name and m not in known]
    if not known:
        raise NotRun(
            "No module of the first forward pass could be compared: none has the same name on both "
            "sides. If they only have other names, say so in pilotage.toml: "
            '[parity] rename = {"name in the reference" = "name in the migrated code"}.'
        )
    rtol, note = s.low(s.criteria.forward_rtol, s.criteria.forward_bf16_rtol)
    rtol, note = s.widened(rtol, note, _variation(s.repeats))
    diverging = first_diverging(found, rtol, padded)
    unread = unlike_in_place(found, rtol) if diverging is None else []
    evidence = _evidence(s, record, found, known, unread)
    tolerance = f"relative L2 {share(rtol)}{note}"
    if diverging is not None:
        module, how = diverging
        return judged(
            False,
            f"first differs in {module.told}: {how}",
            expected=f"the reference's output of {module.told}",
            actual=how,
            tolerance=tolerance,
            evidence=evidence,
        )
    alike = [m for m in known if m not in unread]
    errors = [m.isolated if m.placed is None else m.placed for m in alike]
    worst = max((e or 0.0 for e in errors), default=0.0)
    summary = f"{len(alike)} modules agree: relative L2 {share(worst)} at most"
    own = _own(s, evidence)
    if own is not None:
        return own
    return judged(
        True,
        summary + (", also in its own precision" if s.parity_own else ""),
        expected="the reference's output of each module",
        actual=f"{share(worst)} off at most",
        tolerance=tolerance,
        evidence=evidence,
    )


def _own(s: Subject, evidence: JSON) -> Verdict | None:
    """The failure of the pass in the run's own dtype; None where it is alike or was not made."""
    run = s.parity_own
    found = modules(view.record(run, "forward")) if run else []
    if not found:
        return None
    names = {m.name for m in found if m.name}
    rtol = s.criteria.forward_bf16_rtol
    judged_ones = []
    for m in found:
        if any(name.startswith(f"{m.name}.") for name in names) or not m.name:
            continue  # what holds others adds up their rounding
        error = m.isolated if m.isolated is not None else m.error
        judged_ones.append((m, error))
    bad = [(m, e) for m, e in judged_ones if e is not None and e > rtol and m.isolated is not None]
    worst = max((e for _, e in judged_ones if e is not None), default=0.0)
    evidence["in its own precision"] = f"{len(judged_ones)} modules, {share(worst)} at most"
    if not bad:
        return None
    module, error = bad[0]
    assert error is not None
    return judged(
        False,
        f"in its own precision first differs in {module.told}: by {share(error)}",
        expected=f"the reference's output of {module.told}",
        actual=f"fed the reference's own input it differs by {share(error)}",
        tolerance=f"relative L2 {share(rtol)} (half precision)",
        evidence=evidence,
    )


def _variation(repeats: list[Run]) -> float:
    """How far the reference's own repeats are from its outputs, at most."""
    errors = [m.error for run in repeats for m in modules(view.record(run, "forward")) if m.error]
    return max((e for e in errors if math.isfinite(e)), default=0.0)


def _evidence(
    s: Subject, record: JSON, found: list[Module], known: list[Module], unread: list[Module]
) -> JSON:
    sketched = sum(m.sketched for m in known)
    counts = {
        "compared": len(known),
        "not compared": len(found) - len(known),
        "only in the reference": record.get("missing") or [],
        "only in the migrated code": record.get("extra") or [],
    }
    notes = [f"{sketched} of {len(known)} outputs were compared by a sample"] if sketched else []
    shapes = [m.told for m in found if m.shape_unlike and m.placed is None]
    if shapes:
        more = f" and {len(shapes) - 1} more" if len(shapes) > 1 else ""
        notes.append(f"{shapes[0]}{more}: of another shape, so not compared in place")
    elif is_padded(s):
        notes.append("batches are padded: outputs are compared where the reference has a value")
    if unread:
        more = f" and {len(unread) - 1} more" if len(unread) > 1 else ""
        notes.append(
            f"{unread[0].told}{more}: another output, by {share(unread[0].placed or 0.0)}, which "
            "does not reach the model's own: not counted"
        )
    worst = sorted(known, key=lambda m: -(m.placed if m.placed is not None else math.inf))[:SHOWN]
    keep = {id(m) for m in worst}
    rows = [
        {
            "module": m.told,
            "in place": _shown(m.placed),
            "alone": _shown(m.isolated),
            **({"sketched": True} if m.sketched else {}),
            **({"shape": "unlike"} if m.shape_unlike else {}),
        }
        for m in known
        if id(m) in keep
    ]
    return {**{k: v for k, v in counts.items() if v}, **s.footnotes(*notes), "modules": rows}


def _shown(error: float | None) -> str:
    return "-" if error is None else share(error)


def explained(s: Subject) -> str:
    """Why numbers after the first forward pass differ too; ``""`` where that agrees."""
    record = view.record(s.parity, "forward")
    rtol, note = s.low(s.criteria.forward_rtol, s.criteria.forward_bf16_rtol)
    rtol, _ = s.widened(rtol, note, _variation(s.repeats))
    diverging = first_diverging(modules(record), rtol, is_padded(s))
    if diverging is None:
        return ""
    return f"The forward pass differs already, first in {diverging[0].told} (L1.forward)."
