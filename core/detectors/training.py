"""Silent failures of training itself: nothing is learned, or what is learned is not a number."""

from __future__ import annotations

import itertools
import math

from core import records_view as view
from core.body import JSON
from core.detectors.base import (
    FIRST_STEPS,
    LAST_STEPS,
    MIN_STEPS,
    Detector,
    Look,
    Sighting,
    detector,
)


def _changed(step: JSON) -> bool | None:
    """Whether the step changed the parameters, where that was read."""
    if isinstance(step.get("params_changed"), bool):
        return bool(step["params_changed"])
    norm = view.number(step.get("update_norm"))
    return None if norm is None else norm != 0


@detector
class ParamsUnchanged(Detector):
    """The optimizer steps and the model stays what it was."""

    NAME, CATEGORY = "params_unchanged", "C2"
    SOURCE = (
        "public cases params_unchanged (pytorch/xla#1623, #3675): an optimizer made before the "
        "move keeps the old parameters. Two readings without a change, or one stale tensor."
    )

    def look(self, at: Look) -> Sighting | None:
        """See :meth:`Detector.look`."""
        evidence = []
        stale = 0
        for record in view.records(at.run, "optimizer"):
            orphaned = view.count(record.get("orphaned")) or 0
            if orphaned:
                stale += orphaned
                where = ", ".join(view.table(record.get("devices"))) or "unknown"
                evidence.append(
                    f"{record.get('cls')} updates {orphaned} of {record.get('tensors')} tensors "
                    f"that the model does not use (they are on {where})"
                )
        for record in view.records(at.run, "moved"):
            if stale and view.count(record.get("replaced")):
                new = ", ".join(view.table(record.get("devices_after"))) or "the device"
                evidence.append(f"moving the model to {new} made {record['replaced']} new tensors")
        read = [(s.get("n"), c) for s in at.first if (c := _changed(s)) is not None]
        read += [
            (s.get("n"), c)
            for s in at.last
            if (c := _changed(s)) is not None and (view.count(s.get("n")) or 0) > FIRST_STEPS
        ]
        still = [n for n, changed in read if not changed]
        if len(still) >= 2 and len(still) == len(read):
            evidence.append("no parameter changed in steps " + ", ".join(map(str, still[:10])))
        if not evidence:
            return None
        if stale:
            title = "the optimizer trains parameters that the model does not use"
            step = "Make the optimizer after the model has been moved to the device."
        else:
            title = "training does not change the parameters"
            step = "Check that the optimizer got the model's parameters, gradients and a rate > 0."
        return Sighting(title, evidence, step, threshold="0 changes in at least 2 readings")


@detector
class LossConstant(Detector):
    """Exactly the same loss in every step."""

    NAME, CATEGORY = "loss_constant", "C2"
    SOURCE = "public case eval_constant (huggingface/transformers#13204): bit-constant values"

    def look(self, at: Look) -> Sighting | None:
        """See :meth:`Detector.look`."""
        losses = [v for s in at.last if (v := view.number(s.get("loss"))) is not None]
        if len(losses) < MIN_STEPS or not math.isfinite(losses[0]) or len(set(losses)) > 1:
            return None
        return Sighting(
            "the loss is exactly constant",
            [f"loss {losses[0]:.6g} in each of {len(losses)} readings"],
            "Check that batches differ, that the loss depends on the parameters and that they "
            "are updated.",
            threshold=f"one value in at least {MIN_STEPS} readings",
        )


@detector
class LossNotFinite(Detector):
    """The loss or the gradient norm is NaN or infinite."""

    NAME, CATEGORY = "not_finite", "C5"
    SOURCE = "public case nan (bf16 masks filled with the float32 minimum); any such value"

    def look(self, at: Look) -> Sighting | None:
        """See :meth:`Detector.look`."""
        steps = at.first + [s for s in at.last if (view.count(s.get("n")) or 0) > FIRST_STEPS]
        for step in steps:
            for field, word in (("loss", "loss"), ("grad_norm", "gradient norm")):
                value = view.number(step.get(field))
                if value is not None and not math.isfinite(value):
                    if field == "grad_norm" and _scaled(step):
                        continue  # a GradScaler meets infinities by design and skips the step
                    return Sighting(
                        f"the {word} is {value}",
                        [f"step {step.get('n')}: {word} {value}"],
                        "Look for masks filled with a dtype's minimum, a lost clip, or a rate "
                        "that fits another batch size; compare with the reference at this step.",
                        threshold="any",
                    )
        return None


def _scaled(step: JSON) -> bool:
    return "scaled" in str(step.get("loss_source"))


@detector
class MemoryGrows(Detector):
    """Resident memory grows from step to step."""

    NAME, CATEGORY = "rss_slope", "C4"
    SOURCE = (
        "public case rss_slope and measured on torch_xla 2.9.0 (no step boundary: 1.2 to 4.4 GB in 100 steps). The "
        "bound is ours: more than 256 MiB and 1 MiB a step over 100 steps after the warm-up, "
        "growing in each quarter."
    )
    SPAN = 100

    def look(self, at: Look) -> Sighting | None:
        """See :meth:`Detector.look`."""
        if not at.xla_seen:  # the lazy graph is what grows here; leaks of other kinds are slower
            return None
        values = [
            (n, rss)
            for s in at.last
            if (n := view.count(s.get("n"))) is not None
            and n > MIN_STEPS
            and (rss := view.number(s.get("rss_mb"))) is not None
            and math.isfinite(rss)
        ]
        if len(values) < self.SPAN or len(values) > LAST_STEPS:
            return None
        quarters = [values[len(values) * i // 4][1] for i in range(4)] + [values[-1][1]]
        grown = quarters[-1] - quarters[0]
        steps = values[-1][0] - values[0][0]
        steady = all(b - a > grown / 10 for a, b in itertools.pairwise(quarters))
        if not steady or grown < 256 or grown < steps:
            return None
        first, final = values[0][0], values[-1][0]
        return Sighting(
            "host memory grows with every step",
            [f"{quarters[0]:.0f} to {quarters[-1]:.0f} MiB from step {first} to {final}"],
            "Call torch_xla.sync() once a step, and keep no lazy tensors across steps (sum "
            "losses as floats read every few steps).",
            threshold="> 256 MiB and > 1 MiB a step",
        )
