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
from core.detectors.lazy import number_of, scaled, unbounded
from core.detectors.reference import reference

#: The last steps in which a value that is read now and then is looked for.
SPARSE_STEPS = 5_000
_LOW = {"bfloat16": "bfloat16 keeps 8 bits", "float16": "float16 keeps 11 bits"}


def steps_of(at: Look) -> list[JSON]:
    """The first and the last steps, each once."""
    return at.first + [s for s in at.last if number_of(s) > FIRST_STEPS]


def readings(at: Look, field: str) -> list[float]:
    """The values of a field that were read in the first and last steps, wherever they are.

    On a lazy device a loss is known only where the program reads it, perhaps every fiftieth step.
    """
    who, every = view.trainer(at.run), at.run.steps
    part = every[:FIRST_STEPS] + every[max(FIRST_STEPS, len(every) - SPARSE_STEPS) :]
    return [
        value
        for step in part
        if (value := view.number(step.get(field))) is not None
        and (step.get("pid"), step.get("tid")) == who
    ]


def low_precision(at: Look) -> str:
    """The 16-bit type of trained parameters, if there is one."""
    dtypes = view.table((at.model or {}).get("dtypes"))
    return next((name for name in _LOW if name in dtypes), "")


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
        for record in view.stale_optimizers(at.run, reference(at)):
            stale += view.count(record.get("orphaned")) or 0
            where = ", ".join(view.table(record.get("devices"))) or "unknown"
            evidence.append(
                f"{record.get('cls')} updates {record.get('orphaned')} of {record.get('tensors')} "
                f"tensors that the model does not use (they are on {where})"
            )
        for record in view.records(at.run, "moved"):
            if stale and view.count(record.get("replaced")):
                new = ", ".join(view.table(record.get("devices_after"))) or "the device"
                evidence.append(f"moving the model to {new} made {record['replaced']} new tensors")
        read = [(s.get("n"), c) for s in steps_of(at) if (c := _changed(s)) is not None]
        still = [n for n, changed in read if not changed]
        if len(still) >= 2 and len(still) == len(read):
            evidence.append("no parameter changed in steps " + ", ".join(map(str, still[:10])))
        if not evidence:
            return None
        low = low_precision(at)
        if stale:
            title = "the optimizer trains parameters that the model does not use"
            step = "Make the optimizer after the model has been moved to the device."
        elif low:
            title = "training does not change the parameters"
            evidence.append(f"parameters in {low}: {_LOW[low]}, a smaller update is lost")
            step = "Keep the parameters in float32 and compute in bfloat16 under autocast."
        else:
            title = "training does not change the parameters"
            step = "Check that the optimizer got the model's parameters, gradients and a rate > 0."
        return Sighting(title, evidence, step, threshold="0 changes in at least 2 readings")


@detector
class LossConstant(Detector):
    """Exactly the same loss in every step from the first on.

    A model that has converged may end at a loss that stays as it is, so the last steps alone say
    nothing. A loss computed from 16-bit parameters has few digits: more readings are asked for.
    """

    NAME, CATEGORY = "loss_constant", "C2"
    SOURCE = (
        "public case eval_constant (huggingface/transformers#13204): bit-constant values; "
        "the number of readings is ours"
    )
    LOW_READINGS = 25

    def look(self, at: Look) -> Sighting | None:
        """See :meth:`Detector.look`."""
        least = self.LOW_READINGS if low_precision(at) else MIN_STEPS
        losses = readings(at, "loss")
        if len(losses) < least or not math.isfinite(losses[0]) or len(set(losses)) > 1:
            return None
        return Sighting(
            "the loss is exactly constant",
            [f"loss {losses[0]:.6g} in each of {len(losses)} readings from step 1 on"],
            "Check that batches differ, that the loss depends on the parameters and that they "
            "are updated.",
            threshold=f"one value in at least {least} readings",
        )


@detector
class LossNotFinite(Detector):
    """The loss, the gradient norm or a parameter is NaN or infinite."""

    NAME, CATEGORY = "nan", "C5"
    PARITY = True
    SOURCE = "public case nan (bf16 masks filled with the float32 minimum); any such value"
    _FIELDS = (
        ("loss", "loss"),
        ("grad_norm", "gradient norm"),
        ("param_norm", "norm of the parameters"),
    )

    def look(self, at: Look) -> Sighting | None:
        """See :meth:`Detector.look`."""
        before: dict[str, str] = {}
        for step in steps_of(at):
            for field, word in self._FIELDS:
                value = view.number(step.get(field))
                if value is None:
                    continue
                if math.isfinite(value):
                    before[field] = (
                        f"{word} {value:.6g} in step {step.get('n')}, the last finite one"
                    )
                    continue
                if field == "grad_norm" and scaled(step):
                    continue  # a GradScaler meets infinities by design and skips the step
                evidence = [f"step {step.get('n')}: {word} {value}"]
                evidence += [before[field]] if field in before else []
                if low := low_precision(at):
                    evidence.append(f"parameters in {low}")
                return Sighting(
                    f"the {word} is {value}",
                    evidence,
                    "Look for masks filled with a dtype's minimum, a lost clip, or a rate "
                    "that fits another batch size; compare with the reference at this step.",
                    threshold="any",
                )
        return None


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
        if unbounded(at):
            return None  # the graph that nothing ends is what grows: no_step_boundary says so
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
