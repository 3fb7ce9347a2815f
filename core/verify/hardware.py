"""L2: on the hardware that was asked for?"""

from __future__ import annotations

from collections import Counter

from core import records_view as view
from core.body import JSON
from core.levels import last
from core.state_parts import Run
from core.verify.ranks import ranks
from core.verify.registry import check
from core.verify.subject import NotRun, Subject, Verdict, judged

#: Executions per step below which a run has no working step boundary; see ``L2.executed``.
MIN_EXECUTIONS = 0.5

#: Operators that torch_xla lowers on a TPU alone, and sends to the host on any other device
#: (pytorch/xla, torch_xla/csrc/aten_xla_type.cpp: "Only the XLA TPU backend for now implements the
#: CustomCall required by our XLA lowering").
LOWERED_ON_TPU = frozenset(
    {"aten::upsample_bilinear2d_backward", "aten::upsample_nearest2d_backward"}
)


def _xla(s: Subject) -> None:
    """All targets of this ladder run through XLA; a kind that is not known is not judged."""
    if not (s.xla_cpu or s.kind.startswith("tpu")):
        raise NotRun(f"The target kind {s.kind!r} is not known: use xla-cpu or tpu-<type>-<chips>.")


def _why(s: Subject) -> str:
    """Why a count is missing, as the end of a sentence."""
    if view.record(s.run, "tpu") is not None:
        return "TorchTPU counts only its compilations. Waive the check if you know better."
    return "no XLA was seen in it."


def _model(run: Run) -> JSON:
    model = view.record(run, "model")
    if model is None:
        raise NotRun(f"The probe saw no trained model in run #{run.number}.")
    return model


def _stepped(run: Run) -> list[JSON]:
    steps = view.steps(run)
    if not steps:
        raise NotRun(f"The probe saw no optimizer step in run #{run.number}.")
    return steps


@check("L2.device")
def device(s: Subject) -> Verdict:
    """Every trained parameter is on the target's device when the optimizer first steps (L2).

    That is ``xla`` under torch_xla and ``tpu`` under TorchTPU.
    """
    _xla(s)
    _model(s.run)
    devices: Counter[str] = Counter()
    for model in view.latest(s.run, "model"):  # one for each optimizer, as of a GAN
        for name, elements in view.table(model.get("devices")).items():
            devices[name] += view.count(elements) or 0
    if not devices:
        raise NotRun(f"The probe recorded no device of parameters in run #{s.run.number}.")
    wrong = {k: v for k, v in devices.items() if not view.is_target_device(k, s.kind)}
    text = ", ".join(f"{v} on {k}" for k, v in devices.items())
    return judged(
        not wrong,
        "all trained parameters on " + ("XLA" if any(map(_is_xla, devices)) else "the TPU")
        if not wrong
        else f"trained parameters on {', '.join(wrong)}",
        expected=f"{sum(devices.values())} on {'xla' if s.xla_cpu else 'xla or tpu'}",
        actual=text,
        tolerance="all",
    )


def _is_xla(device: str) -> bool:
    return view.is_device(device, "xla")


@check("L2.runtime")
def runtime(s: Subject) -> Verdict:
    """The hardware behind the XLA device: TPU, or for ``xla-cpu`` the host's CPU.

    Without ``PJRT_DEVICE`` torch_xla falls back to the CPU and the device still reads ``xla:0``
    (measured on torch_xla 2.9.0), so the runtime's own list of devices decides, not the device string.
    """
    _xla(s)
    expected = "CPU" if s.xla_cpu else "TPU"
    devices = _devices(s)
    wrong = [d for d in devices if d.split(":")[0].upper() != expected]
    note = " (xla-cpu, no TPU)" if s.xla_cpu else ""
    return judged(
        not wrong,
        f"runs on {', '.join(devices)}{note}",
        expected=expected,
        actual=", ".join(devices),
        evidence={"PJRT_DEVICE": (view.record(s.run, "xla") or {}).get("pjrt_device")},
    )


def _devices(s: Subject) -> list[str]:
    """The runtime's devices, such as ``CPU:0``, as the started runtime named them."""
    found: set[str] = set()
    for record in s.run.signals:
        names = record.get("devices")
        if record.get("k") in ("xla", "tpu") and isinstance(names, list):
            found |= {str(name) for name in names}
    if view.record(s.run, "xla") is None and view.record(s.run, "tpu") is None:
        raise NotRun(
            f"Run #{s.run.number} imported neither torch_xla nor torch_tpu, as far as the probe saw."
        )
    if not found:
        raise NotRun(
            f"The XLA runtime of run #{s.run.number} named no devices: it was not started by the "
            "time of the first optimizer step."
        )
    return sorted(found)


@check("L2.chips")
def chips(s: Subject) -> Verdict:
    """As many chips as asked for, no fewer and no more (asked = used).

    Of ranks in processes of their own each has its devices: they may all call theirs ``CPU:0``.
    """
    _xla(s)
    used = max(len(_devices(s)), _of_ranks(s))
    return judged(
        used == s.chips,
        f"{used} of {s.chips} chip(s)",
        expected=str(s.chips),
        actual=str(used),
        tolerance="equal",
    )


def _of_ranks(s: Subject) -> int:
    """Devices of the processes with ranks, counted one process at a time."""
    found: dict[object, set[str]] = {pid: set() for pid, _ in ranks(s.run).values()}
    for record in s.run.signals:
        names = record.get("devices")
        if record.get("k") in ("xla", "tpu") and isinstance(names, list):
            if record.get("pid") in found:
                found[record.get("pid")] |= {str(name) for name in names}
    every = list(found.values())
    if not s.xla_cpu and every and len(every[0]) > 1 and all(x == every[0] for x in every):
        return len(every[0])  # each process names the chips of all of them
    return sum(len(x) for x in every)


@check("L2.optimizer")
def optimizer(s: Subject) -> Verdict:
    """No optimizer tensor belongs to a copy of the model that is not used (measured on torch_xla 2.9.0).

    ``.to(xla)`` makes new Parameters: an optimizer made before it steps the old ones. A tensor that
    is trained beside the model on purpose is none of them (``records_view.stale_optimizers``).
    """
    found = view.latest(s.run, "optimizer")
    if not found or all(view.count(r.get("orphaned")) is None for r in found):
        raise NotRun(f"The probe saw no optimizer with its model in run #{s.run.number}.")
    reference = last(s.state.runs_for("reference"), lambda r: r.ok_exit)
    stale = view.stale_optimizers(s.run, reference)
    orphaned = sum(view.count(r.get("orphaned")) or 0 for r in stale)
    total = sum(view.count(r.get("tensors")) or 0 for r in found)
    where = ", ".join(sorted({d for r in found for d in view.table(r.get("devices"))}))
    return judged(
        orphaned == 0,
        f"trains {total} tensors"
        if not orphaned
        else f"{orphaned} of {total} tensors in the optimizer are not the model's",
        expected="0 tensors of a model that is not used",
        actual=f"{orphaned}, on {where}",
        tolerance="0",
    )


@check("L2.executed")
def executed(s: Subject) -> Verdict:
    """The graph is executed about once a step, at least every second one.

    Without a step boundary nothing runs until something is read (measured on torch_xla 2.9.0: MarkStep and
    ExecuteTime 0). The bound of 0.5 is ours: it lets a program sync every second step, and is
    above what reading the loss every few steps alone would give.
    """
    _xla(s)
    total, known = view.per_step(_stepped(s.run), "executes")
    if not known:
        raise NotRun(f"Run #{s.run.number} has no count of executions: {_why(s)}")
    return judged(
        total >= MIN_EXECUTIONS * known,
        f"{total / known:.2g} executions a step",
        expected=f"at least {MIN_EXECUTIONS:g} a step",
        actual=f"{total:g} in {known} steps",
        tolerance=f">= {MIN_EXECUTIONS:g} a step",
    )


@check("L2.fallback")
def fallback(s: Subject) -> Verdict:
    """No operator ran on the host (PyTorch/XLA: any ``aten::*`` counter but one is a fallback).

    On ``xla-cpu`` those of :data:`LOWERED_ON_TPU` are no fault of the code: on the TPU they stay.
    """
    _xla(s)
    steps = _stepped(s.run)
    finish = view.record(s.run, "finish") or {}
    if not any(isinstance(r.get("fallbacks"), dict) for r in [*steps, finish]):
        raise NotRun(f"Run #{s.run.number} has no fallback counters: {_why(s)}")
    # The totals at the end also hold what fell back outside the training steps.
    every = view.fallbacks([finish]) or view.fallbacks(steps)
    ops = {op: n for op, n in every.items() if not (s.xla_cpu and op in LOWERED_ON_TPU)}
    note = ", ".join(f"{op} {n}x" for op, n in sorted(every.items()) if op not in ops)
    return judged(
        not ops,
        "no operator fell back" if not ops else f"{len(ops)} operator(s) ran on the host",
        expected="none",
        actual=", ".join(f"{op} {n}x" for op, n in sorted(ops.items())) or "none",
        tolerance="0",
        evidence=s.footnotes(note and f"{note}: only the TPU has a lowering, so not counted here"),
    )


@check("L2.recompiles")
def recompiles(s: Subject) -> Verdict:
    """Compilations per step after the warm-up, at most ``compiles_per_step``.

    0.5 is the threshold of PyTorch/XLA's metrics analysis; a healthy run compiles in its first
    two steps only (measured on torch_xla 2.9.0), so steps up to ``warmup_steps`` don't count.
    """
    _xla(s)
    return _rate(s, "compiles", "compilations", s.criteria.compiles_per_step)


@check("L2.transfers")
def transfers(s: Subject) -> Verdict:
    """Reads to the host per step after the warm-up, at most ``transfers_per_step``.

    0.5 is the threshold of PyTorch/XLA's metrics analysis: reading the loss every tenth step
    is fine, every step is not. Steps at which a file is saved do not count, nor does what follows the
    last one: tensors that are written down have to be read. The probe's own reads are not in the figure, nor are those of the
    operators that only the TPU has (one for each call; measured on torch_xla 2.9.0).
    """
    _xla(s)
    return _rate(s, "transfers", "transfers to the host", s.criteria.transfers_per_step)


def _rate(s: Subject, field: str, what: str, limit: float) -> Verdict:
    warm = s.criteria.warmup_steps
    later = [r for r in _stepped(s.run) if (view.count(r.get("n")) or 0) > warm]
    if field == "transfers":
        saved = {view.count(r.get("n")) for r in view.records(s.run, "saved")}
        later = [r for r in later[:-1] if view.count(r.get("n")) not in saved] or later
    total, known = view.per_step(later, field)
    if field == "transfers" and s.xla_cpu:
        forced = sum(n for op, n in view.fallbacks(later).items() if op in LOWERED_ON_TPU)
        total = max(0.0, total - forced)
    if not known:
        why = f": {_why(s)}" if view.record(s.run, "tpu") else "."
        raise NotRun(f"Run #{s.run.number} has no count of {what} after step {warm}{why}")
    rate = total / known
    seconds, _ = view.per_step(view.steps(s.run), "compile_s")
    return judged(
        rate <= limit,
        f"{rate:.2g} {what} a step",
        expected=f"at most {limit:g} a step after step {warm}",
        actual=f"{total:g} in {known} steps",
        tolerance=f"<= {limit:g} a step",
        evidence={"compile seconds in all": round(seconds, 3)} if field == "compiles" else {},
    )
