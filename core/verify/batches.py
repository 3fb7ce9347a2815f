"""L1, what both runs are fed: the batches of the reference."""

from __future__ import annotations

from core import records_view as view
from core.body import JSON
from core.verify.compare import share
from core.verify.registry import check
from core.verify.subject import NotRun, Subject, Verdict, judged

#: States of a ``batch`` record in which the target made the reference's batch by itself.
ALIKE = ("same", "padded", "reordered")
_FOOTNOTES = {
    "padded": "{n} of {total} batches are padded to a fixed shape; what was added is not compared",
    "reordered": "{n} of {total} batches have the same samples in another order",
}


def unfed(s: Subject, first: bool = False) -> str:
    """Why the steps of the two runs saw other data; ``""`` where they saw the same.

    A batch that is unlike and was replaced by the reference's is no reason. ``first``: of the first
    step alone, whose batches may be the same where later ones are not: a program that makes its own
    data, as by acting in an environment, makes others once its weights are others.
    """
    records = view.records(s.parity, "batch")
    if first:
        records = [r for r in records if _n(r) <= _of_first_step(s)]
    return _first_unfed(records)


def unfed_own(s: Subject) -> str:
    """The same of the run in the target's own dtype: what acts by a rounded model sees other data."""
    return _first_unfed(view.records(s.parity_own, "batch")) if s.parity_own else ""


def _first_unfed(records: list[JSON]) -> str:
    for record in records:
        if record.get("state") not in ALIKE and not record.get("fed"):
            return (
                f"The runs were given other batches from batch {_n(record)} on, and the "
                f"reference's could not be fed: {_words(record)}."
            )
    return ""


def _of_first_step(s: Subject) -> int:
    """Batches of the reference's first step: as many as its backward passes, at least one."""
    steps = view.steps(s.parity_reference, first=1)
    signature = str(steps[0].get("signature") or "") if steps else ""
    return max(1, signature.split().count("B"))


def is_padded(s: Subject) -> bool:
    """Whether the target pads batches to a fixed shape, so that what it computes is larger."""
    return any(record.get("state") == "padded" for record in view.records(s.parity, "batch"))


def _n(record: JSON) -> int:
    return (view.count(record.get("n")) or 0) + 1


def _words(record: JSON) -> str:
    leaf, detail = str(record.get("leaf") or ""), str(record.get("detail") or "").rstrip(".")
    if not detail:
        detail = "it is missing" if record.get("state") == "missing" else "its values differ"
    return f"{leaf}: {detail}" if leaf and leaf not in detail else detail


@check("L1.batches")
def batches(s: Subject) -> Verdict:
    """The same batches in the parity steps: exact, leaf by leaf (SHA-256 of the values).

    Batches padded to a fixed shape, and the same samples in another order, pass with a footnote:
    both are faithful ways to make shapes static. With the generators set alike on both sides at
    each start of a loader, a shuffle draws the same order, so other samples are a difference of
    the code. What was unlike was replaced by the reference's batch where that could be done, and
    the checks after this one then judge the same data.
    """
    _ = s.parity_reference  # without it there is nothing to hold against
    records = view.records(s.parity, "batch")
    if not records:
        if not s.replayed:
            raise NotRun(s.not_replayed("batches"))
        raise NotRun(
            "No batch was compared: the reference's parity run has no DataLoader and no inputs of "
            "its model on record. Let the training draw from a DataLoader, or waive the check."
        )
    bad = [r for r in records if r.get("state") not in ALIKE]
    states = [str(r.get("state")) for r in records]
    notes = [
        text.format(n=states.count(state), total=len(states))
        for state, text in _FOOTNOTES.items()
        if state in states
    ]
    evidence: JSON = {"compared at": records[0].get("source"), **s.footnotes(*notes)}
    if bad:
        fed = sum(bool(r.get("fed")) for r in bad)
        error = view.number(bad[0].get("error"))
        evidence["batches"] = [
            {"batch": _n(r), "state": r.get("state"), "leaf": r.get("leaf"), "fed": r.get("fed")}
            for r in bad[:20]
        ]
        return judged(
            False,
            f"{len(bad)} of {len(records)} batches differ, first batch {_n(bad[0])}, "
            + _words(bad[0]),
            expected="the reference's batches",
            actual=_words(bad[0]) + (f" (relative L2 {share(error)})" if error else ""),
            tolerance="equal",
            reason=f"The reference's batch was fed instead in {fed} of them." if fed else "",
            evidence=evidence,
        )
    return judged(
        True,
        f"{len(records)} batches" + (f", {notes[0]}" if notes else ", the same"),
        expected="the reference's batches",
        actual=", ".join(f"{states.count(x)} {x}" for x in ALIKE if x in states),
        tolerance="equal",
        evidence=evidence,
    )
