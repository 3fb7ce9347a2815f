"""Silent failures of placement: the work is done elsewhere, or on another model."""

from __future__ import annotations

import re
from collections import Counter

from core import records_view as view
from core.detectors.base import Detector, Look, Sighting, detector
from core.levels import target


@detector
class ModelOffDevice(Detector):
    """The target command trains parameters that are not on the XLA device."""

    NAME, CATEGORY = "model_on_cpu", "C2"
    SOURCE = (
        "measured on torch_xla 2.9.0: model on the CPU; parameters and loss on cpu, no executions"
    )

    def look(self, at: Look) -> Sighting | None:
        """See :meth:`Detector.look`."""
        if not at.wants_xla or at.model is None:
            return None
        devices: Counter[str] = Counter()
        for model in view.latest(at.run, "model"):  # one for each optimizer, as of a GAN
            for name, elements in view.table(model.get("devices")).items():
                devices[name] += view.count(elements) or 0
        kind = str(target(at.state).get("kind", ""))
        off = [d for d in devices if not view.is_target_device(d, kind)]
        if not off:
            return None
        return Sighting(
            f"the model is trained on {', '.join(off)} and not on the target's device",
            [f"{n} trained parameters on {d}" for d, n in devices.items()],
            "Move the model to torch_xla.device() (TorchTPU: 'tpu') before the optimizer is made, "
            "and the batches in the loop.",
            threshold="any trained parameter off the device",
        )


@detector
class DefaultedToCpu(Detector):
    """A TPU was asked for and the XLA runtime took the host's CPU.

    On ``xla-cpu`` the host is what was asked for: there the same warning is no finding.
    """

    NAME, CATEGORY = "pjrt_cpu_fallback", "C1"
    SOURCE = "public case pjrt_cpu_fallback (pytorch/xla#8626): Defaulting to PJRT_DEVICE=CPU"
    _LINE = re.compile(r"Defaulting to PJRT_DEVICE=CPU")

    def look(self, at: Look) -> Sighting | None:
        """See :meth:`Detector.look`."""
        if not at.wants_tpu:  # on xla-cpu that is what was asked for
            return None
        evidence = at.matching(self._LINE, 2)
        for record in view.records(at.run, "xla"):
            devices = record.get("devices")
            if isinstance(devices, list) and any(str(d).startswith("CPU") for d in devices):
                evidence.append("runtime devices: " + ", ".join(map(str, devices)))
        if not evidence:
            return None
        return Sighting(
            "the XLA runtime fell back to the host's CPU",
            evidence,
            "Set PJRT_DEVICE=TPU and install the libtpu that belongs to this torch_xla; check "
            "that no other process holds the chips.",
            threshold="any",
        )


@detector
class NoAccelerator(Detector):
    """A library says that it found no accelerator and goes on without."""

    NAME, CATEGORY = "cpu_fallback_warning", "C2"
    SOURCE = "public case cpu_fallback_warning (jax-ml/jax#10192): a stale process holds the chip"
    _LINE = re.compile(
        r"No GPU/TPU found, falling back to CPU|libtpu.so already in use"
        r"|libtpu.so (?:is )?already in used? by another process"
    )

    def look(self, at: Look) -> Sighting | None:
        """See :meth:`Detector.look`."""
        lines = at.matching(self._LINE) if at.wants_tpu else []
        if not lines:
            return None
        return Sighting(
            "a library found no accelerator and goes on without",
            lines,
            "End the process that holds the chips, then run again.",
            threshold="any",
        )


@detector
class TiesLost(Detector):
    """Parameters that were one tensor are several: the move to the device untied them."""

    NAME, CATEGORY = "param_count_changed", "C3"
    SOURCE = (
        "public case param_count_changed (pytorch-lightning#2705, C3: weight tying and .to(xla) "
        "do not go together); measured on torch_xla 2.9.0: .to(xla) unties. Compared with the "
        "model before the move, and with our own reference run"
    )

    def look(self, at: Look) -> Sighting | None:
        """See :meth:`Detector.look`."""
        if at.model is None:
            return None
        lost = _untied(at)
        ours, theirs = at.reference_model, at.model
        counts: list[str] = []
        # Another model than the reference's can't be compared with it.
        if ours is not None and ours.get("root") == theirs.get("root"):
            lost |= view.ties(ours) - view.ties(theirs)
            mine, other = (view.count(m.get("parameters")) for m in (ours, theirs))
            if at.wants_xla and mine is not None and other is not None and mine != other:
                counts.append(f"{other} parameters, the reference has {mine}")
        if not lost and not counts:
            return None
        evidence = ["no longer tied: " + " = ".join(group) for group in sorted(lost)[:5]]
        return Sighting(
            "tied weights are no longer tied" if lost else "the number of parameters has changed",
            evidence + counts,
            "Tie the weights again after the move to the device, before the optimizer is made."
            if lost
            else "Build the model with the reference's configuration, and compare the names.",
            threshold="any tie lost, any difference from the reference",
        )


def _untied(at: Look) -> set[tuple[str, ...]]:
    """Groups that were one tensor before a move and that the trained model holds apart.

    The module that was moved may be part of the trained one, whose names then are longer.
    """
    model = at.model or {}
    names = model.get("names")
    single = {str(n) for n in names} if isinstance(names, list) else set()
    found = set()
    for moved in view.records(at.run, "moved"):
        before = view.ties({"tied": moved.get("ties_before")})
        for group in before - view.ties({"tied": moved.get("ties_after")}):
            # One tensor is named once: two of the group's names in the list are two tensors.
            prefixes = Counter(
                name.removesuffix(part)
                for part in group
                for name in single
                if name == part or name.endswith("." + part)
            )
            if any(times > 1 for times in prefixes.values()):
                found.add(group)
    return found
