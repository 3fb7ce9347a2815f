"""Detectors over what the recorder itself watches: silence, idle chips, and the kernel's kills.

The text of a log shows some of it too: the detectors of the output of the same names see it there.
"""

from __future__ import annotations

from core import records_view as view
from core.detectors.base import Detector, Look, Sighting, detector
from core.text import clean

IDLE_PCT = 1.0
IDLE_S = 120.0
"""Duty cycle, in percent, below which a chip counts as idle, and for how many seconds."""


@detector
class Stalled(Detector):
    """No output and no step for a time that the operator sets."""

    NAME, CATEGORY, SILENT = "stall", "C4", True
    SOURCE = "[recorder] hang_s of the session, 900 s by default"

    def look(self, at: Look) -> Sighting | None:
        """See :class:`Detector`."""
        stall = at.run.stalled
        if stall is None or stall.alive:
            return None
        evidence = [f"no output and no step for {stall.seconds:.0f} s"]
        if stall.last_step is not None:
            evidence.append(f"last step: {stall.last_step}")
        if stall.last_line:
            evidence.append(f"last line: {clean(stall.last_line)}")
        if stall.doing or stall.at:
            where = f" at {clean(stall.at)}" if stall.at else ""
            evidence.append(f"last seen: {clean(stall.doing) or 'running'}{where}")
        next_step = {
            "collective": "A rank waits for the others: look which rank's output ends first, and "
            "that every rank takes as many steps.",
            "data": "It waits for its input: look at the DataLoader's workers and at the disk or "
            "the bucket they read from.",
            "sync": "It waits for the device: look for a graph that has grown since the last step.",
        }.get(
            stall.doing,
            "See where it hangs with `py-spy dump --pid PID`, or stop it; if it is meant to be "
            "silent for so long, raise hang_s in [recorder].",
        )
        return Sighting(
            "the run has stalled", evidence, next_step, threshold=f"{stall.limit_s:g} s"
        )


@detector
class ChipsIdle(Detector):
    """Steps go on, and the chips have nothing to do: the work is done somewhere else."""

    NAME, CATEGORY, SILENT = "duty_cycle_zero", "C2", True
    SOURCE = (
        "tpu-info's duty cycle; below 1 % for two minutes while steps are taken is our own "
        "threshold, chosen above the pauses of evaluation and checkpoints"
    )

    def look(self, at: Look) -> Sighting | None:
        """See :class:`Detector`."""
        telemetry = at.run.telemetry
        if not telemetry or not at.last:
            return None
        since = telemetry[-1][0] - int(IDLE_S * 1e6)
        if telemetry[0][0] > since:
            return None
        duties = [
            duty
            for ts_us, sample in telemetry
            if ts_us >= since
            for chip in sample.chips
            if (duty := view.number(chip.get("duty_pct"))) is not None
        ]
        if not duties or max(duties) >= IDLE_PCT or not self._steps(at, since):
            return None
        return Sighting(
            "the TPU's chips stand idle while steps are taken",
            [f"duty cycle at most {max(duties):.2f} % in the last {IDLE_S:.0f} s"],
            "See on which device the parameters and the loss are: the step does not run on the "
            "TPU, or nearly all of it waits for the host.",
            threshold=f"{IDLE_PCT:g} % for {IDLE_S:g} s",
        )

    @staticmethod
    def _steps(at: Look, since_us: int) -> bool:
        """Whether steps were taken during most of that time, by the wall clock of the probe."""
        times = [w for step in at.last if (w := view.number(step.get("wall"))) is not None]
        late = [w for w in times if w * 1e6 >= since_us]
        return len(late) >= 2 and max(late) - min(late) >= IDLE_S / 4


@detector
class KilledForMemory(Detector):
    """The kernel ended a process of the run for want of host memory."""

    NAME, CATEGORY, SILENT = "host_killed", "C6", False
    SOURCE = (
        "the kernel's own count (memory.events, oom_control) and log; without them SIGKILL from "
        "nobody of ours at 85 % of the memory that the run could have (core.runs.endings)"
    )

    def look(self, at: Look) -> Sighting | None:
        """See :class:`Detector`."""
        end = at.run.ended
        if end is None or end.cause not in ("out of memory", "probably out of memory"):
            return None
        doubt = "probably " if end.cause.startswith("probably") else ""
        return Sighting(
            f"{doubt}out of memory on the host",
            [clean(end.text), f"largest resident memory: {end.max_rss_mb:,.0f} MiB"],
            "Make the batch smaller, use fewer DataLoader workers, load the weights once for all "
            "processes, or take a machine with more memory; see whether memory grew step by step.",
            threshold="a process killed by the kernel",
        )
