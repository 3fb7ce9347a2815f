"""Silent failures of number formats: what is computed is not what the dtype says."""

from __future__ import annotations

import re
import shlex

from core import records_view as view
from core.detectors.base import MIN_STEPS, Detector, Look, Sighting, detector
from core.detectors.lazy import scaled

#: Variables that change a dtype without a word, and what becomes of it (measured on torch_xla 2.9.0).
FORCED = {
    "XLA_USE_BF16": "float32 is computed as bfloat16",
    "XLA_DOWNCAST_BF16": "float32 is computed as bfloat16",
    "XLA_USE_FP16": "float32 is computed as float16",
    "XLA_DOWNCAST_FP16": "float32 is computed as float16",
    "XLA_USE_32BIT_LONG": "int64 is computed as int32",
}
_SAID = re.compile(rf"\b({'|'.join(FORCED)}) will be deprecated")
_OFF = ("", "0", "false", "off", "no")
_ASSIGNMENT = re.compile(r"([A-Z][A-Z0-9_]*)=(.*)", re.DOTALL)


@detector
class ForcedDtype(Detector):
    """A variable of the environment makes the device compute in another type than the program says."""

    NAME, CATEGORY = "forced_dtype", "C5"
    SOURCE = (
        "measured on torch_xla 2.9.0: under XLA_USE_BF16=1 a float32 1 + 1e-5 is 1, under "
        "XLA_USE_32BIT_LONG=1 an int64 2**40 + 1 is 1, and each tensor's dtype says otherwise"
    )

    def look(self, at: Look) -> Sighting | None:
        """See :meth:`Detector.look`."""
        if not at.wants_xla and not at.xla_seen:
            return None
        given = {name: str(value) for name, value in environment(at).items() if name in FORCED}
        forced = {n: v for n, v in given.items() if v.strip().lower() not in _OFF}
        evidence = {name: f"{name}={value}: {FORCED[name]}" for name, value in forced.items()}
        # The program may have set it itself: torch_xla says so when it finds one.
        for line in at.matching(_SAID):
            if (found := _SAID.search(line)) and found[1] not in evidence:
                evidence[found[1]] = f"{line} ({FORCED[found[1]]})"
        if not evidence:
            return None
        return Sighting(
            "the environment changes the precision: " + FORCED[next(iter(evidence))],
            list(evidence.values()),
            "Take the variable out and ask for the type in the code (torch.autocast('xla', "
            "dtype=torch.bfloat16), or .to(torch.bfloat16)), where it can be seen.",
            threshold="any",
        )


def environment(at: Look) -> dict[str, str]:
    """What the run's environment is known to hold: as started, and as its command sets it."""
    known = {n: v for n, v in at.run.started.env.items() if isinstance(v, str)}
    try:
        words = shlex.split(at.run.started.command)
    except ValueError:
        return known
    for word in words:
        assigned = _ASSIGNMENT.fullmatch(word)
        if assigned:
            known[assigned[1]] = assigned[2]
        elif word != "env":
            break
    return known


@detector
class CudaAmp(Detector):
    """Mixed precision as written for CUDA goes on on the XLA device."""

    NAME, CATEGORY = "cuda_amp", "C2"
    SOURCE = (
        "measured on torch_xla 2.9.0: under autocast('cuda') the XLA device computes in float32, "
        "and the GradScaler reads from the device in each step, without a warning"
    )

    def look(self, at: Look) -> Sighting | None:
        """See :meth:`Detector.look`."""
        devices = view.table((at.model or {}).get("devices"))
        if not any(view.is_target_device(d, "tpu") for d in devices):
            return None
        steps = [s for s in at.first if scaled(s)]
        if not steps:
            return None
        reads, known = view.per_step([s for s in at.last if scaled(s)][:MIN_STEPS], "transfers")
        evidence = [f"the loss is scaled by a GradScaler from step {steps[0].get('n')} on"]
        if known and reads:
            evidence.append(f"transfers to the host: {reads:g} in {known} of these steps")
        return Sighting(
            "mixed precision for CUDA is still in use on the device",
            evidence,
            "Use torch.autocast(device.type, dtype=torch.bfloat16) and no GradScaler: bfloat16 has "
            "float32's range and needs no scaling.",
            threshold="any scaled loss on an XLA or TPU device",
        )
