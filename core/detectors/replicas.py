"""Silent failures of data parallelism: replicas that are none, and gradients that don't add up.

Each rank that takes optimizer steps is one replica.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

from core import records_view as view
from core.body import JSON
from core.detectors.base import LAST_STEPS, MIN_STEPS, Detector, Look, Sighting, detector
from core.detectors.lazy import number_of
from core.detectors.reference import reference

#: Step records looked at, over all replicas.
FIRST_RECORDS, LAST_RECORDS = 1_000, 8 * LAST_STEPS
#: Replicas apply the same update to the same weights, so their norms are equal to the last bits;
#: this allows for a float32 norm. Ours.
SAME_RTOL = 1e-5
#: Shards of one model differ by much, and always by as much; replicas drift apart from near 0. Ours.
DRIFT, NEAR = 1.5, 0.01


def replicas(at: Look) -> dict[int, list[JSON]]:
    """The first and last steps of each rank, in order; empty for a run of one.

    Processes without a rank are no replicas of each other: they may be folds or sweeps.
    """
    every = at.run.steps
    records = every[:FIRST_RECORDS] + every[max(FIRST_RECORDS, len(every) - LAST_RECORDS) :]
    found: dict[int, list[JSON]] = {}
    who: dict[int, tuple[Any, Any]] = {}
    for record in records:
        rank = view.count(record.get("rank"))
        trainer = (record.get("pid"), record.get("tid"))
        if rank is not None and who.setdefault(rank, trainer) == trainer:
            found.setdefault(rank, []).append(record)
    return found if len(found) > 1 else {}


def together(found: dict[int, list[JSON]], field: str) -> dict[int, list[float]]:
    """By step, the values of a field, where every replica has one that is finite."""
    values: dict[int, list[float]] = {}
    for steps in found.values():
        for step in steps:
            value = view.number(step.get(field))
            if value is not None and math.isfinite(value) and number_of(step):
                values.setdefault(number_of(step), []).append(value)
    return {n: values[n] for n in sorted(values) if len(values[n]) == len(found)}


def apart(values: list[float]) -> float:
    """Largest relative distance of the values from each other."""
    largest = max(map(abs, values))
    return (max(values) - min(values)) / largest if largest else 0.0


def _shown(values: list[float]) -> str:
    return ", ".join(f"{v:.7g}" for v in values[:8]) + (" ..." if len(values) > 8 else "")


@detector
class ReplicasDiffer(Detector):
    """Replicas of one model have other weights than each other."""

    NAME, CATEGORY = "replica_hash_mismatch", "C3"
    PARITY = True
    SOURCE = (
        "public case replica_hash_mismatch: gradients were not reduced, and the replicas drift "
        "apart; the bounds are ours"
    )

    def look(self, at: Look) -> Sighting | None:
        """See :meth:`Detector.look`."""
        found = replicas(at)
        norms = together(found, "param_norm")
        if not norms:
            return None
        gaps = {n: apart(values) for n, values in norms.items()}
        first, final = next(iter(gaps)), list(gaps)[-1]
        if gaps[final] <= SAME_RTOL or _sharded(at):
            return None
        drifting = gaps[first] < NEAR and gaps[final] > DRIFT * gaps[first]
        if not (drifting or _whole(at)):
            return None
        evidence = [f"norm of the parameters in step {final}: {_shown(norms[final])}"]
        if final != first:
            evidence.append(f"apart by {gaps[first]:.1e} in step {first}, {gaps[final]:.1e} now")
        if not any("R" in str(s.get("signature") or "").split() for x in found.values() for s in x):
            evidence.append("no reduction of gradients was seen between backward and step")
        return Sighting(
            "the replicas have different weights",
            evidence,
            "Reduce the gradients of every step (xm.optimizer_step or xm.reduce_gradients), and "
            "start all replicas from the same weights (xm.broadcast_master_param).",
            threshold=f"norms more than {SAME_RTOL:g} apart",
        )


def _root(model: JSON | None) -> str:
    return str((model or {}).get("root") or "")


def _sharded(at: Look) -> bool:
    """Whether each process has a part of the model: FSDP under any of its names."""
    names = (at.model or {}).get("names")
    flat = isinstance(names, list) and any(
        "_fsdp" in str(n) or "flat_param" in str(n) for n in names
    )
    return flat or "fsdp" in _root(at.model).lower() or "fullysharded" in _root(at.model).lower()


def _whole(at: Look) -> bool:
    """Whether a process has the whole model, as the reference has it."""
    ours, theirs = at.reference_model, at.model
    if ours is None or theirs is None or _root(ours) != _root(theirs):
        return False
    return view.count(ours.get("parameters")) == view.count(theirs.get("parameters"))


@detector
class SameData(Detector):
    """Every replica trains on the same batches."""

    NAME, CATEGORY = "same_data_on_ranks", "C3"
    SOURCE = (
        "ours: replicas with equal weights and bit-equal losses have had equal batches; the "
        "loader has no DistributedSampler"
    )

    def look(self, at: Look) -> Sighting | None:
        """See :meth:`Detector.look`."""
        found = replicas(at)
        losses = together(found, "loss")
        norms = together(found, "param_norm")
        if len(losses) < MIN_STEPS or not norms or _sharded(at):
            return None
        if any(apart(values) > SAME_RTOL for values in norms.values()):
            return None
        if any(len(set(values)) > 1 for values in losses.values()):
            return None
        if len({values[0] for values in losses.values()}) == 1:
            return None  # a constant loss says nothing of the batches
        n = list(losses)[-1]
        return Sighting(
            "every replica trains on the same batches",
            [
                f"the losses of {len(found)} replicas are equal in each of {len(losses)} steps",
                f"step {n}: {_shown(losses[n])}",
            ],
            "Give the loader a DistributedSampler with this process's rank and the number of "
            "replicas, and call its set_epoch().",
            threshold=f"equal in each of at least {MIN_STEPS} steps",
        )


@detector
class GradNormScale(Detector):
    """The gradient that is clipped or applied is not the mean over the replicas."""

    NAME, CATEGORY = "grad_norm_scale_mismatch", "C3"
    PARITY = True
    SOURCE = (
        "public case grad_norm_scale_mismatch (clip before xm.optimizer_step reduces); measured: "
        "norm 0.717 for a clip before averaging, 1.0 after it. Bounds of the comparison are ours."
    )
    #: Same loss in step 1 as the reference, and a norm this near to a multiple or part of it.
    SAME_LOSS, NEAR_N = 1e-3, 0.02

    def look(self, at: Look) -> Sighting | None:
        """See :meth:`Detector.look`."""
        found = replicas(at)
        if not found:
            return None
        evidence = self._order(found) or self._scale(at, found)
        if not evidence:
            return None
        return Sighting(
            "gradients are clipped on each replica before they are averaged"
            if "clip" in evidence[0]
            else "the gradient is not the mean over the replicas",
            evidence,
            "Reduce first (xm.reduce_gradients averages), then clip, then call the optimizer's "
            "own step(); see that the loss is not divided by the number of replicas twice.",
            threshold="any clip before the reduce, or a norm that is a multiple of the reference's",
        )

    @staticmethod
    def _order(found: dict[int, list[JSON]]) -> list[str]:
        """Steps in which a clip comes before the reduce."""
        wrong = known = 0
        shown = ""
        for step in (s for steps in found.values() for s in steps):
            events = str(step.get("signature") or "").split()
            if "S" not in events:
                continue
            known += 1
            before = events[: events.index("S")]
            clips = [i for i, e in enumerate(before) if e.startswith("C(")]
            if clips and "R" in before and clips[0] < len(before) - 1 - before[::-1].index("R"):
                wrong += 1
                shown = shown or " ".join(before) + " S"
        if not wrong or wrong < known / 2:
            return []
        norms = together(found, "grad_norm")
        evidence = [f"the clip comes before the reduce in {wrong} of {known} steps ({shown})"]
        for n, values in islice(norms.items(), 1):
            evidence.append(f"norms that were clipped in step {n}: {_shown(values)}")
        return evidence

    def _scale(self, at: Look, found: dict[int, list[JSON]]) -> list[str]:
        """The first step's norm as a multiple of the reference's, at the same loss."""
        before = reference(at)
        start = view.steps(before, first=1) if before else []
        losses, norms = (together(found, field).get(1) for field in ("loss", "grad_norm"))
        if not start or not losses or not norms or apart(norms) > self.NEAR_N:
            return []
        loss, norm = (view.number(start[0].get(field)) for field in ("loss", "grad_norm"))
        mean = sum(losses) / len(losses)
        if not loss or not norm or abs(mean - loss) > self.SAME_LOSS * abs(loss):
            return []
        many = len(found)
        for factor in (many, 1 / many):
            if abs(norms[0] / norm / factor - 1) < self.NEAR_N:
                text = f"gradient norm {norms[0]:.6g} in step 1 on {many} replicas, the reference's"
                return [f"{text} is {norm:.6g}: {factor:.3g} times as much, at loss {loss:.6g}"]
        return []
