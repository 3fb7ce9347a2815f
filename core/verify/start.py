"""L1, where both runs begin: the same weights, or the reference's loaded into the target."""

from __future__ import annotations

from core import records_view as view
from core.body import JSON
from core.verify.compare import relative, share, show
from core.verify.registry import check
from core.verify.subject import NotRun, Subject, Verdict, judged

#: What to do about parameters that only one side has, by name.
RENAME = (
    "If they only have other names, say so in pilotage.toml: "
    '[parity] rename = {"name in the reference" = "name in the migrated code"}.'
)


def start_record(s: Subject) -> JSON | None:
    """The target's ``start`` record: how its own weights compare, and whether it was loaded."""
    return s.told("start")


def loaded(s: Subject) -> bool:
    """Whether the target started from the reference's weights."""
    return (start_record(s) or {}).get("loaded") is True


def start_difference(s: Subject) -> str:
    """Why the numbers of the two parity runs can't be compared; ``""`` if they can.

    Both must begin with the same weights: loaded from the reference, or alike by themselves. By a
    ``start`` record that is measured tensor by tensor; without one (a session of an earlier
    release) by the norm of each tensor, for the names both have. Tolerance: ``start_rtol``.
    """
    record = start_record(s)
    if record is None:
        return _norms_differ(s)
    if loaded(s):
        return ""
    why = str(record.get("why") or "").rstrip(".")
    unlike = _unlike(record)
    if unlike:
        return f"The reference's weights could not be loaded: {why or unlike}. {RENAME}"
    error = view.number(record.get("natural_error"))
    if error is None:
        return f"The reference's weights could not be loaded: {why or 'it is not said why'}."
    if error <= s.criteria.start_rtol:
        return ""
    return (
        f"The runs start from different weights ({record.get('worst')} differs by a relative "
        f"{share(error)}), and the reference's could not be loaded: {why or 'not said why'}."
    )


def _unlike(record: JSON) -> str:
    """Names and shapes that do not match, in a few words."""
    parts = []
    for field, words in (
        ("missing", "only in the reference"),
        ("extra", "only in the migrated code"),
        ("unlike_shape", "of another shape"),
    ):
        names = record.get(field)
        if isinstance(names, list) and names:
            more = f" and {len(names) - 2} more" if len(names) > 2 else ""
            parts.append(f"{', '.join(map(str, names[:2]))}{more} {words}")
    return "; ".join(parts)


def _norms_differ(s: Subject) -> str:
    ours, theirs = s.models()
    mine, other = view.norms(ours), view.norms(theirs)
    common = [name for name in mine if name in other]
    if not common:
        return "No initial norms were recorded for parameters that both runs have."
    bad = [n for n in common if relative(mine[n], other[n]) > s.criteria.start_rtol]
    if not bad:
        return ""
    name = bad[0]
    return (
        f"The runs start from different weights: {len(bad)} of {len(common)} tensors differ, "
        f"{name} has norm {show(other[name])}, the reference {show(mine[name])}. "
        "Make the weights on the CPU with the reference's seed, then move them."
    )


@check("L1.start")
def start(s: Subject) -> Verdict:
    """Same initial weights: loaded from the reference, or alike by themselves.

    ``start_rtol``; its source is the oracle prototype (measured on torch_xla 2.9.0: relative L2
    1e-5). Own weights that are unlike are no failure where the reference's were loaded: another
    device draws other numbers. Weights that can't be loaded, for want of a name or a shape, are
    *not run*; how many parameters there are is the business of ``L1.parameters``.
    """
    record = start_record(s)
    if record is None:
        return _by_norms(s)
    matched = view.count(record.get("matched")) or 0
    unlike, error = _unlike(record), view.number(record.get("natural_error"))
    difference = start_difference(s)
    if difference and (unlike or error is None):
        raise NotRun(difference)
    own = "not compared" if error is None else "the same" if not error else f"{share(error)} off"
    notes = []
    if loaded(s):
        if error and error > s.criteria.start_rtol:
            notes.append(f"its own differ by {share(error)} in {record.get('worst')}, not counted")
        if unlike:
            notes.append(unlike)
        if renamed := view.count(record.get("renamed")):
            notes.append(f"{renamed} by another name")
        if dtypes := record.get("dtype_unlike"):
            notes.append(f"{len(dtypes)} of another dtype")
    how = "the reference's loaded" if loaded(s) else "alike by themselves"
    return judged(
        not difference,
        "other weights at the start" if difference else f"{matched} tensors, {how}",
        expected="the reference's initial weights",
        actual=f"own weights {own}",
        tolerance=f"relative L2 {share(s.criteria.start_rtol)}",
        reason=difference,
        evidence=s.footnotes(*notes),
    )


def _by_norms(s: Subject) -> Verdict:
    ours, theirs = s.models()
    common = set(view.norms(ours)) & set(view.norms(theirs))
    difference = start_difference(s)
    if not common:
        raise NotRun(difference)
    return judged(
        not difference,
        "other weights at the start" if difference else f"{len(common)} tensors",
        expected="the reference's initial norm of each tensor",
        actual="different" if difference else "the same",
        tolerance=f"relative {share(s.criteria.start_rtol)}",
        reason=difference,
    )
