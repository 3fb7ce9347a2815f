"""Silent failures of lazy execution: graphs compiled again and again, reads that force them.

Thresholds are those of PyTorch/XLA's own metrics analysis and troubleshooting guide.
"""

from __future__ import annotations

import re

from core import records_view as view
from core.body import JSON
from core.detectors.base import MIN_STEPS, WARMUP_STEPS, Detector, Look, Sighting, detector

#: Per step; PyTorch/XLA's metrics analysis.
MAX_RATE = 0.5
#: Seconds of one compilation; the same tool.
MAX_COMPILE_S = 300.0
#: Compilations in so many successive steps after the warm-up are an alarm before step 10, which
#: may be many minutes away where each takes half a minute (measured on torch_xla 2.9.0: alert from step 3). Ours.
EARLY_STEPS = 4


def _window(at: Look) -> list[JSON]:
    """The last steps after the warm-up, once there are enough of them to speak of a rate."""
    steps = [s for s in at.last if (view.count(s.get("n")) or 0) > WARMUP_STEPS]
    return steps if steps and (view.count(steps[-1].get("n")) or 0) >= MIN_STEPS else []


def _rate(steps: list[JSON], field: str) -> tuple[float, str] | None:
    total, known = view.per_step(steps, field)
    if not known or total / known <= MAX_RATE:
        return None
    return total / known, f"{total:g} in the {known} steps up to step {steps[-1].get('n')}"


@detector
class Recompiles(Detector):
    """The graph is compiled in about every step."""

    NAME, CATEGORY = "recompile", "C4"
    SOURCE = (
        "PyTorch/XLA metrics analysis: CompileTime too frequent, > 0.5 a step after 10 steps; "
        "before that, ours: 4 steps in a row after the warm-up of 3 (measured on torch_xla 2.9.0)"
    )
    _LINE = re.compile(r"pt-xla-profiler: CompileTime too frequent")

    def look(self, at: Look) -> Sighting | None:
        """See :meth:`Detector.look`."""
        steps = _window(at)
        found = _rate(steps, "compiles")
        lines = at.matching(self._LINE, 2)
        evidence = []
        if found:
            seconds, _ = view.per_step(steps, "compile_s")
            evidence.append(f"compilations: {found[1]} ({seconds:.1f} s)")
        else:
            evidence += self._early(at)
        if not evidence and not lines:
            return None
        return Sighting(
            "the graph is compiled again in every step",
            evidence + lines,
            "Give every batch the same shapes (pad to a fixed length, weight instead of "
            "indexing with a mask) and keep changing Python numbers out of the graph.",
            threshold=f"> {MAX_RATE:g} a step after {MIN_STEPS} steps, or {EARLY_STEPS} in a row",
        )

    @staticmethod
    def _early(at: Look) -> list[str]:
        """Steps after the warm-up and before step 10 of which the last few all compiled."""
        if _window(at):
            return []
        steps = [s for s in at.last if (view.count(s.get("n")) or 0) > WARMUP_STEPS]
        recent = steps[-EARLY_STEPS:]
        if len(recent) < EARLY_STEPS or not all(view.count(s.get("compiles")) for s in recent):
            return []
        seconds, _ = view.per_step(recent, "compile_s")
        span = f"{recent[0].get('n')} to {recent[-1].get('n')}"
        return [f"compilations: one or more in each of the steps {span} ({seconds:.1f} s)"]


@detector
class SlowCompile(Detector):
    """One compilation takes very long."""

    NAME, CATEGORY = "compile_too_slow", "C4"
    SOURCE = "PyTorch/XLA metrics analysis: one compilation > 300 s (pytorch/xla#4203)"
    _LINE = re.compile(r"pt-xla-profiler: CompileTime too slow")

    def look(self, at: Look) -> Sighting | None:
        """See :meth:`Detector.look`."""
        lines = at.matching(self._LINE, 2)
        for step in [*at.first, *at.last]:
            seconds, count = view.number(step.get("compile_s")), view.count(step.get("compiles"))
            if seconds and count and seconds / count > MAX_COMPILE_S:
                lines.insert(0, f"step {step.get('n')}: {seconds:.0f} s for {count} compilation(s)")
                break
        if not lines:
            return None
        return Sighting(
            "a compilation takes very long",
            lines,
            "Look for a loop that is traced into one graph; end the graph inside it with "
            "torch_xla.sync().",
            threshold=f"> {MAX_COMPILE_S:g} s",
        )


@detector
class HostTransfers(Detector):
    """A tensor is read by the host in about every step."""

    NAME, CATEGORY = "transfer_per_step", "C4"
    SOURCE = "PyTorch/XLA metrics analysis: transfers to the host > 0.5 a step after 10 steps"
    _LINE = re.compile(r"pt-xla-profiler: TransferFrom(?:Server|Device)Time too frequent")

    def look(self, at: Look) -> Sighting | None:
        """See :meth:`Detector.look`."""
        found = _rate(_window(at), "transfers")
        lines = at.matching(self._LINE, 2)
        if found is None and not lines:
            return None
        return Sighting(
            "the host reads a tensor in every step",
            ([f"transfers to the host: {found[1]}"] if found else []) + lines,
            "Find .item(), print(tensor), float(loss) or a branch on a tensor in the loop; read "
            "every few steps instead, or add a step closure.",
            threshold=f"> {MAX_RATE:g} a step after {MIN_STEPS} steps",
        )


@detector
class NoStepBoundary(Detector):
    """Steps are traced and never executed."""

    NAME, CATEGORY = "no_step_boundary", "C4"
    SOURCE = "measured on torch_xla 2.9.0: without a step boundary MarkStep and ExecuteTime stay 0 while steps pass"

    def look(self, at: Look) -> Sighting | None:
        """See :meth:`Detector.look`."""
        steps = _window(at)
        on_xla = any(view.is_device(d, "xla") for d in view.table((at.model or {}).get("devices")))
        total, known = view.per_step(steps, "executes")
        if not on_xla or not known or total / known > 0.1:
            return None
        return Sighting(
            "the training steps are never executed on the device",
            [f"executions: {total:g} in the {known} steps up to step {steps[-1].get('n')}"],
            "Call torch_xla.sync() (xm.mark_step() before torch_xla 2.5) after each optimizer "
            "step, or use torch_xla.step().",
            threshold=f"at most 0.1 executions a step after {MIN_STEPS} steps",
        )


@detector
class Fallback(Detector):
    """An operator has no lowering and runs on the host."""

    NAME, CATEGORY = "aten_fallback", "C5"
    SOURCE = (
        "PyTorch/XLA troubleshooting guide: any aten:: counter but aten::_local_scalar_dense "
        "is an operator that is not lowered"
    )
    _LINE = re.compile(r"pt-xla-profiler: Op\(s\) not lowered: (?!aten::_local_scalar_dense,)")

    def look(self, at: Look) -> Sighting | None:
        """See :meth:`Detector.look`."""
        ops = view.fallbacks([view.record(at.run, "finish") or {}])
        ops = ops or view.fallbacks(at.first) or view.fallbacks(at.last)
        lines = at.matching(self._LINE, 2)
        if not ops and not lines:
            return None
        most = sorted(ops.items(), key=lambda item: -item[1])[:10]
        return Sighting(
            "an operator runs on the host instead of the device",
            [f"{op}: {n} times" for op, n in most] + lines,
            "Replace the operator by ones that XLA lowers, or move it out of the training step.",
            threshold="any aten::* counter but aten::_local_scalar_dense",
        )
