"""Findings of a run: what the detectors see, and when one is over.

Attempt, finding and root cause are three things. A finding belongs to the run that showed it
and stays on record; it is *resolved* when a later run of the same command has got as far and
shows it no more.
"""

from __future__ import annotations

from collections.abc import Callable

# Importing these modules registers their detectors.
from core.detectors import (
    lazy,
    loud_kinds,
    numerics,
    placement,
    ranking,
    reference,
    replicas,
    training,
    watched,
)
from core.detectors.base import CATEGORIES as CATEGORIES
from core.detectors.base import DETECTORS, OUTPUT_DETECTORS, Detector, Look, Sighting
from core.detectors.loud import ErrorDetector
from core.events import FindingOpened, FindingResolved
from core.records_view import steps_done
from core.state import SessionState
from core.state_parts import Finding, Run
from core.verify.subject import is_target_run

#: What is nearer to a cause comes first: an error, then learning, then placement, then speed.
_ORDER = [
    module.__name__
    for module in (loud_kinds, training, reference, replicas, placement, numerics, lazy, watched)
]


def every_detector() -> list[Detector]:
    """All detectors: of probe records, of errors and of the output."""
    return [*DETECTORS.values(), *OUTPUT_DETECTORS.values()]


def detectors_for(run: Run) -> list[Detector]:
    """The detectors of errors and of probe records that apply to a run.

    An attempt: all. A parity run of the target: the loud ones and those that say so, as its probe
    reads and syncs so much that rates mean nothing. A run of the reference is the yardstick and is not judged.
    """
    if run.started.purpose == "attempt":
        return sorted(DETECTORS.values(), key=_order)
    if run.started.purpose == "parity" and not run.of_reference:
        return [d for d in DETECTORS.values() if isinstance(d, ErrorDetector) or d.PARITY]
    return []


#: What is to be done about a detector that raised: its name, and what it raised.
Failed = Callable[[str, Exception], None]


def detect(state: SessionState, run_id: str, failed: Failed | None = None) -> list[FindingOpened]:
    """What the detectors see in a run so far; may be asked again and again while it goes on.

    Ids are made of run and detector, so that a finding that is open already comes out with the
    id it has. A run that is not in the state has no findings. With ``failed`` a detector that
    raises is told to it, and costs the others nothing; without, what it raises is raised.
    """
    run = state.runs.get(run_id)
    if run is None:
        return []
    at = Look(state, run)
    found = []
    for detector in detectors_for(run):
        sighting = _look(detector, at, failed)
        if sighting is not None:
            found.append(_opened(run_id, detector, sighting))
    if any(f.detector == "params_unchanged" for f in found):
        # The same fault seen twice is one finding.
        found = [f for f in found if f.detector != "loss_constant"]
    if any(f.detector == "host_killed" for f in found):
        found = [f for f in found if f.detector != "error"]  # that it ended is all this one knows
    if run.started.purpose == "attempt":
        found += _in_output(at, {f.detector for f in found}, failed)
    return found


def _look(detector: Detector, at: Look, failed: Failed | None) -> Sighting | None:
    try:
        return detector.look(at)
    except Exception as error:  # a fault of ours, which must not end the session of the operator
        if failed is None:
            raise
        failed(detector.NAME, error)
        return None


def _in_output(at: Look, known: set[str], failed: Failed | None) -> list[FindingOpened]:
    """What the output alone shows beyond what is known: a fault seen by two means is one finding.

    The probe's finding is the more exact one and stays: that of the same name, and those that
    the output detector names in ``SAME_FAULT``. What the output only makes one suspect is not
    opened: in a session the probe and the checks measure it.
    """
    seen: ranking.Found = []
    for detector in ranking.output_detectors():
        if detector.NAME in known or known.intersection(detector.SAME_FAULT):
            continue
        sighting = _look(detector, at, failed)
        if sighting is not None and not ranking.suspected(sighting):
            seen.append((detector, sighting))
    return [_opened(at.run.run_id, d, s) for d, s in ranking.ranked(seen, at.log)] if seen else []


def _order(detector: Detector) -> int:
    module = type(detector).__module__
    return _ORDER.index(module) if module in _ORDER else len(_ORDER)


def _opened(run_id: str, detector: Detector, sighting: Sighting) -> FindingOpened:
    return FindingOpened(
        finding_id=f"{run_id}.{detector.NAME}",
        detector=detector.NAME,
        category=sighting.category or detector.CATEGORY,
        title=sighting.title,
        evidence=sighting.evidence,
        next_step=sighting.next_step,
        silent=detector.SILENT,
        threshold=sighting.threshold,
    )


def resolved(
    state: SessionState, run_id: str, failed: Failed | None = None
) -> list[FindingResolved]:
    """The open findings of earlier runs that an ended run shows to be over.

    It must be a run of the same purpose, of the same command or of the target's, have got as far
    (ended with exit 0, or taken as many steps as the run of the finding), and show the same
    detector nothing. One that raised (see :func:`detect`) has been shown nothing either way.
    """
    run = state.runs.get(run_id)
    if run is None or run.ended is None:
        return []
    unsure: set[str] = set()

    def note(name: str, error: Exception) -> None:
        unsure.add(name)
        if failed is not None:
            failed(name, error)

    found = detect(state, run_id, note if failed is not None else None)
    shown = {f.detector for f in found} | unsure
    return [
        FindingResolved(id, f"Run #{run.number} got as far and does not show it.")
        for id, finding in state.findings.items()
        if finding.open and finding.opened.detector not in shown and _as_far(state, finding, run)
    ]


def _as_far(state: SessionState, finding: Finding, run: Run) -> bool:
    before = state.runs.get(finding.run_id)
    if before is None or before.number >= run.number:
        return False
    old, new = before.started, run.started
    if (old.purpose, old.of) != (new.purpose, new.of):
        return False
    # The target command is what a session is about: what a shorter command showed of the same
    # code is settled by it too, never the other way round.
    if old.command != new.command and not is_target_run(state, run):
        return False
    reached, then = steps_done(run) or 0, steps_done(before) or 0
    if not finding.opened.silent:
        # An error that came before the first step is passed by reaching a step, or the end.
        return run.ok_exit or reached > then
    # A silent fault shows in steps: without as many of them its absence says nothing.
    return reached > 0 and reached >= then
