"""Silent failures of lazy execution: graphs compiled again and again, reads that force them.

Thresholds are those of PyTorch/XLA's own metrics analysis and troubleshooting guide.
"""

from __future__ import annotations

import itertools
import re

from core import records_view as view
from core.body import JSON
from core.detectors.base import MIN_STEPS, WARMUP_STEPS, Detector, Look, Sighting, detector
from core.detectors.beats import compiling_for, waiting_for
from core.detectors.places import compiled_at, read_at

#: Per step; PyTorch/XLA's metrics analysis.
MAX_RATE = 0.5
#: Seconds of one compilation, and of one execution; the same tool.
MAX_COMPILE_S, MAX_EXECUTE_S = 300.0, 30.0
#: The same sign in so many successive steps after the warm-up is an alarm before step 10, which
#: may be many minutes away where each takes half a minute (measured on torch_xla 2.9.0: alert from step 3). Ours.
EARLY_STEPS = 4
#: Reads in the first steps only are no rate (a program that prints its first ten losses, and then
#: every tenth from the eleventh on): ours.
MIN_READ_STEPS = MIN_STEPS + 4
#: Steps over which several compilations in one step (after an evaluation) no longer tip the mean: ours.
LONG = 40
#: A graph grows where its later compilations take so many times as long as its earlier ones: ours.
GROWTH = 1.5
#: Operators whose result has a size that depends on the data. None is lowered; each read of that
#: size makes a graph of another shape (measured on torch_xla 2.9.0: nonzero, masked_select).
SIZED_BY_DATA = frozenset(
    f"aten::{name}"
    for name in (
        "nonzero", "masked_select", "unique", "_unique", "_unique2", "unique_dim",
        "unique_consecutive", "unique_dim_consecutive", "bincount",
    )
)  # fmt: skip


def number_of(step: JSON) -> int:
    """The step's number; 0 where it is not known."""
    return view.count(step.get("n")) or 0


def warm(at: Look) -> list[JSON]:
    """The last steps, without those of the warm-up."""
    return [s for s in at.last if number_of(s) > WARMUP_STEPS]


def window(at: Look, least: int = MIN_STEPS) -> list[JSON]:
    """The last steps after the warm-up, once there are enough of them to speak of a rate."""
    steps = warm(at)
    return steps if steps and number_of(steps[-1]) >= least else []


def early(at: Look) -> list[JSON]:
    """The last few steps after the warm-up where :func:`window` has nothing to say yet."""
    recent = warm(at)[-EARLY_STEPS:]
    return recent if len(recent) == EARLY_STEPS and not window(at) else []


def span(steps: list[JSON]) -> str:
    """Such as ``steps 4 to 7``."""
    return f"steps {steps[0].get('n')} to {steps[-1].get('n')}"


def _share(steps: list[JSON], counts: list[float]) -> float:
    """Of the steps, the share in which a count is above 0."""
    return sum(c > 0 for c in counts) / len(steps) if steps else 0.0


# --- compilations ----------------------------------------------------------------------------


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
        steps, evidence = compiling(at)
        lines = at.matching(self._LINE, 2)
        if not evidence and not lines:
            return None
        if evidence and not synced(steps):
            return None  # each graph goes on from the last one: see NoStepBoundary
        tpu = view.record(at.run, "tpu") is not None
        if by_data := sized_by_data(steps):
            # One fault, the shape that the operator makes: Fallback leaves it to us unless it has
            # spoken already, where shapes came back often at first and compiled seldom.
            if at.has_open(Fallback.NAME):
                return None
            return Sighting(
                "the graph is compiled again in every step",
                [*evidence, *_operators(at), *compiled_at(at), *lines],
                f"The size of what {by_data[0].removeprefix('aten::')} gives depends on the data: "
                "weight or mask with torch.where instead, so that every shape is fixed.",
                threshold=f"> {MAX_RATE:g} a step after {MIN_STEPS} steps, or {EARLY_STEPS} in a row",
            )
        return Sighting(
            "the graph is compiled again in every step",
            evidence + (compiled_at(at) if evidence else []) + lines,
            "Give every batch the same shapes (pad to a fixed length, weight instead of "
            "indexing with a mask) and keep changing Python numbers out of the graph"
            + (", a float learning rate too (TorchTPU compiles for each value)." if tpu else "."),
            threshold=f"> {MAX_RATE:g} a step after {MIN_STEPS} steps, or {EARLY_STEPS} in a row",
        )


def _operators(at: Look) -> list[str]:
    """The operators that run on the host, most often called first, in words."""
    ops = view.fallbacks([view.record(at.run, "finish") or {}])
    ops = ops or view.fallbacks(at.first) or view.fallbacks(at.last)
    return [f"{op}: {n} times" for op, n in sorted(ops.items(), key=lambda item: -item[1])[:10]]


def compiling(at: Look) -> tuple[list[JSON], list[str]]:
    """Steps in which about every one compiles, and that in words; both empty if few do.

    What counts is the share of steps that compile, so that an evaluation or a last batch, which
    compile several graphs in one step and never again, don't make a rate of a short run.
    """
    for steps, in_a_row in ((window(at), False), (early(at), True)):
        known = [s for s in steps if view.number(s.get("compiles")) is not None]
        if not known:
            continue
        counts = [view.number(s.get("compiles")) or 0 for s in known]
        seconds, _ = view.per_step(known, "compile_s")
        more = _growth(known)
        share = _share(known, counts)
        often = sum(counts) / len(known) > MAX_RATE < sum(counts[-10:]) / len(counts[-10:])
        if in_a_row and share == 1 and len(known) == EARLY_STEPS:
            text = f"compilations: one or more in each of the {span(known)} ({seconds:.1f} s)"
            return known, [text, *more]
        if not in_a_row and (share > MAX_RATE or (often and len(known) >= LONG)):
            text = f"{sum(counts):g} in the {len(known)} steps up to step {known[-1].get('n')}"
            return known, [f"compilations: {text} ({seconds:.1f} s)", *more]
    return [], []


def _growth(steps: list[JSON]) -> list[str]:
    """That each compilation takes longer than the last, where it does: the graph grows."""
    each = [
        seconds / count
        for s in steps
        if (seconds := view.number(s.get("compile_s"))) and (count := view.count(s.get("compiles")))
    ]
    half = len(each) // 2
    if half < 4:
        return []
    before, after = sum(each[:half]) / half, sum(each[half:]) / (len(each) - half)
    if not before < after / GROWTH or sum(b > a for a, b in itertools.pairwise(each)) <= half:
        return []
    longer = f"each takes longer: {each[0]:.1f} s at first, {each[-1]:.1f} s now"
    return [longer + ", so something of earlier steps is still part of the graph"]


def sized_by_data(steps: list[JSON]) -> list[str]:
    """Operators of data-dependent size that ran on the host in nearly every step that compiled."""
    compiled = [s for s in steps if view.count(s.get("compiles"))]
    ops = [set(view.fallbacks([s])) & SIZED_BY_DATA for s in compiled]
    if not ops or sum(map(bool, ops)) < 0.9 * len(ops):
        return []
    return sorted(set().union(*ops))


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
        seconds, where = compiling_for(at)
        if seconds > MAX_COMPILE_S:
            lines.insert(0, _lasting(f"one compilation has gone on for {seconds:.0f} s", where))
        if not lines:
            return None
        return Sighting(
            "a compilation takes very long",
            lines,
            "Look for a loop that is traced into one graph; end the graph inside it with "
            "torch_xla.sync().",
            threshold=f"> {MAX_COMPILE_S:g} s",
        )


def _lasting(text: str, where: str) -> str:
    return text + (f", at {where}" if where else "")


# --- executions ------------------------------------------------------------------------------


@detector
class SlowExecution(Detector):
    """One execution takes very long."""

    NAME, CATEGORY = "execution_too_slow", "C4"
    SOURCE = (
        "PyTorch/XLA metrics analysis: one execution > 30 s. A wait of the host within one step "
        "counts as so many executions as a step has: ours."
    )
    _LINE = re.compile(r"pt-xla-profiler: ExecuteTime too slow")

    def look(self, at: Look) -> Sighting | None:
        """See :meth:`Detector.look`."""
        lines = at.matching(self._LINE, 2)
        for report in reversed(view.records(at.run, "xla_metrics")[-1:]):
            time = view.table(view.table(report.get("metrics")).get("ExecuteTime"))
            total, samples = view.number(time.get("total")), view.count(time.get("samples"))
            if total and samples and total / samples > MAX_EXECUTE_S:
                lines.insert(0, f"{samples} executions took {total / samples:.0f} s on the average")
        executes, known = view.per_step(warm(at), "executes")
        many = max(1.0, executes / known if known else 1.0)
        seconds, where = waiting_for(at)
        if seconds > MAX_EXECUTE_S * many:
            text = f"the host waited {seconds:.0f} s for the device within one step"
            lines.insert(0, _lasting(text, where))
        if not lines:
            return None
        return Sighting(
            "an execution takes very long",
            lines,
            "Look for a loop that is traced into one graph, and for operators that the "
            "device does badly (gathers over long sequences, small matrix products).",
            threshold=f"> {MAX_EXECUTE_S:g} s",
        )


@detector
class NoStepBoundary(Detector):
    """Steps are traced and not executed: the graph of the next grows on that of the last."""

    NAME, CATEGORY = "no_step_boundary", "C4"
    SOURCE = (
        "measured on torch_xla 2.9.0: without a step boundary MarkStep and ExecuteTime stay 0 "
        "while steps pass; 100 such steps took 135 s and 4.4 GB when they were read at last"
    )

    def look(self, at: Look) -> Sighting | None:
        """See :meth:`Detector.look`."""
        evidence = unbounded(at)
        if not evidence:
            return None
        return Sighting(
            "the training steps are not executed on the device one by one",
            evidence,
            "Call torch_xla.sync() (xm.mark_step() before torch_xla 2.5) after each optimizer "
            "step, or use torch_xla.step().",
            threshold=f"at most 0.1 executions a step after {MIN_STEPS} steps, {MAX_RATE:g} "
            f"without any sync, or none in {EARLY_STEPS} in a row",
        )


def synced(steps: list[JSON]) -> bool:
    """Whether the program has ended a step by itself in any of these."""
    return any("M" in str(s.get("signature") or "").split() for s in steps)


def unbounded(at: Look) -> list[str]:
    """What shows that steps on the device end nowhere; empty if they do end."""
    if not any(view.is_device(d, "xla") for d in view.table((at.model or {}).get("devices"))):
        return []
    steps = window(at) or early(at)
    total, known = view.per_step(steps, "executes")
    if not known:
        return []
    rate = total / known
    ends = synced(steps)
    compiled, again = ([], []) if ends else compiling(at)
    if compiled:
        steps = compiled  # what is read in each step executes a graph that has grown by a step
    elif window(at):
        if rate > (0.1 if ends else MAX_RATE):
            return []
    elif rate > 0 or ends or known < EARLY_STEPS:
        return []
    evidence = [*again, f"executions: {total:g} in the {span(steps)}"]
    if not ends:
        evidence.append("no torch_xla.sync() or mark_step() in these steps")
    rss = [v for s in steps if (v := view.number(s.get("rss_mb"))) is not None]
    if rss and rss[-1] - rss[0] > 1:
        evidence.append(f"host memory: {rss[0]:.0f} to {rss[-1]:.0f} MiB in them")
    return evidence


# --- reads -----------------------------------------------------------------------------------


@detector
class HostTransfers(Detector):
    """A tensor is read by the host in about every step."""

    NAME, CATEGORY = "transfer_per_step", "C4"
    SOURCE = (
        "PyTorch/XLA metrics analysis: transfers to the host > 0.5 a step after 10 steps (here 14, "
        "and in more than half of the last steps too, so that reading the first ones is let pass); "
        "each fallback to the host transfers once and is a finding of its own (measured on "
        "torch_xla 2.9.0)"
    )
    _LINE = re.compile(r"pt-xla-profiler: TransferFrom(?:Server|Device)Time too frequent")

    def look(self, at: Look) -> Sighting | None:
        """See :meth:`Detector.look`."""
        steps = [
            s for s in window(at, MIN_READ_STEPS) if view.count(s.get("transfers")) is not None
        ]
        reads = [_reads(s) for s in steps]
        recent = slice(-EARLY_STEPS, None)
        evidence = []
        if min(_share(steps, reads), _share(steps[recent], reads[recent])) > MAX_RATE:
            if unbounded(at):
                return None  # where no step ends, the reads are what executes anything at all
            text = f"{sum(reads):g} in the {len(reads)} steps up to step {steps[-1].get('n')}"
            evidence.append(f"transfers to the host: {text}")
        lines = [] if view.fallbacks(at.last) else at.matching(self._LINE, 2)
        if not evidence and not lines:
            return None
        return Sighting(
            "the host reads a tensor in every step",
            evidence + (read_at(at, steps) if evidence else []) + lines,
            "Find .item(), print(tensor), float(loss) or a branch on a tensor in the loop; read "
            "every few steps instead, or add a step closure.",
            threshold=f"in > {MAX_RATE:g} of the steps, from step {MIN_READ_STEPS} on",
        )


def _reads(step: JSON) -> float:
    """Transfers of a step that neither a fallback nor a gradient scaler accounts for."""
    moved = view.count(step.get("transfers")) or 0
    explained = sum(view.fallbacks([step]).values()) + scaled(step)
    return max(0, moved - explained)


def scaled(step: JSON) -> bool:
    """Whether a GradScaler scaled the step's loss; it reads back whether to skip the step."""
    return step.get("scaler") is True or "scaled" in str(step.get("loss_source"))


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
        evidence = _operators(at)
        lines = at.matching(self._LINE, 2)
        if not evidence and not lines:
            return None
        by_data = [op for op in SIZED_BY_DATA if any(e.startswith(op + ":") for e in evidence)]
        if evidence and len(by_data) == len(evidence):
            # Whether each step compiles because of them shows only later; then that is the fault.
            waiting = at.run.running and not window(at)
            if waiting or compiling(at)[0] or at.has_open(Recompiles.NAME):
                return None
        return Sighting(
            "an operator runs on the host instead of the device",
            evidence + lines,
            "Replace the operator by ones that XLA lowers, or move it out of the training step.",
            threshold="any aten::* counter but aten::_local_scalar_dense",
        )
