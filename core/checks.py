"""The checks of the ladder L0-L4: what each asks, and of which category a failure is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """One check of the ladder; the function that evaluates it lives in ``core.verify``.

    ``optional``: it rests on facts that not every project gives, and holds its level back only
    where it fails. ``category``: ``C1`` to ``C6`` as of findings, the kind of fault that a failure
    points to; ``""`` where it may be any. ``full``: a check of L1 that compares the full runs, as
    all of the other levels do, and not the parity runs.
    """

    id: str
    level: int
    title: str
    question: str
    optional: bool = False
    category: str = ""
    full: bool = False


def _check(
    id: str,
    category: str,
    title: str,
    question: str,
    optional: bool = False,
    full: bool = False,
) -> tuple[str, Check]:
    level = int(id[1])
    return id, Check(id, level, title, question, optional, category, full or level != 1)


#: All checks, in the order in which they are shown.
CHECKS: dict[str, Check] = dict(
    (
        _check("L0.exit", "", "exit", "Did the target command end by itself with exit code 0?"),
        _check("L0.steps", "", "steps", "Did it take as many optimizer steps as the reference?"),
        _check("L0.result", "", "result", "Did it print the project's metric?"),
        _check("L0.errors", "", "errors", "Did it end without a traceback in its output?"),
        _check(
            "L1.parameters", "C3", "parameters", "Same parameters: how many, in how many tensors?"
        ),
        _check("L1.ties", "C3", "ties", "Are the same parameters tied to each other?"),
        _check("L1.start", "C3", "same start", "Do both parity runs start from the same weights?"),
        _check("L1.batches", "C3", "batches", "Are both parity runs given the same batches?"),
        _check("L1.precision", "C5", "precision", "Half precision only where it was asked for?"),
        _check("L1.forward", "C5", "forward", "Same output of every module in the first pass?"),
        _check("L1.optimizer", "C3", "optimizer", "Same optimizer with the same hyperparameters?"),
        _check("L1.schedule", "C3", "schedule", "Same learning rate in each step?"),
        _check(
            "L1.events", "C3", "step order", "Backward, clip, step, schedule in the same order?"
        ),
        _check("L1.first_loss", "C5", "first loss", "Same loss in the first step?"),
        _check(
            "L1.gradients",
            "C5",
            "gradients",
            "Same gradient of every parameter in the first step?",
            optional=True,
        ),
        _check("L1.grad_norm", "C5", "gradient norm", "Same gradient norm before clipping?"),
        _check("L1.clip", "C3", "clipping", "Are gradients clipped the same, by the same factor?"),
        _check("L1.update", "C5", "updates", "Do the parameters change by the same amount?"),
        _check("L1.trajectory", "C5", "loss curve", "Same loss over all parity steps?"),
        _check(
            "L1.global_batch",
            "C3",
            "global batch",
            "As many samples in an optimizer step, over all ranks?",
            optional=True,
            full=True,
        ),
        _check("L1.reduce", "C3", "reduce", "Do all ranks apply the same gradient?", optional=True),
        _check("L1.frozen", "C3", "frozen", "Are the same parameters trained?", optional=True),
        _check("L1.dropout", "C3", "dropout", "Is as much dropped out in training?", optional=True),
        _check(
            "L1.data",
            "C3",
            "passes",
            "As many passes over as many samples, in an order that varies as much?",
            optional=True,
            full=True,
        ),
        _check(
            "L1.resume",
            "C3",
            "resume",
            "Does it go on from all of the state that was saved?",
            optional=True,
            full=True,
        ),
        _check("L2.device", "C2", "device", "Are all trained parameters on the device asked for?"),
        _check("L2.runtime", "C2", "runtime", "Is the XLA runtime on the hardware asked for?"),
        _check("L2.chips", "C2", "chips", "As many chips used as asked for?"),
        _check(
            "L2.optimizer", "C2", "optimizer", "Does the optimizer train the model's parameters?"
        ),
        _check("L2.replicas", "C3", "replicas", "Do the replicas agree?", optional=True),
        _check("L2.shards", "C3", "shards", "Is each rank fed data of its own?", optional=True),
        _check("L2.executed", "C4", "executed", "Was every step executed, at a step boundary?"),
        _check("L2.fallback", "C5", "fallback", "Did every operator run on the device?"),
        _check("L2.recompiles", "C4", "recompiles", "Are compilations over after the warm-up?"),
        _check("L2.transfers", "C4", "transfers", "Are tensors left on the device between steps?"),
        _check("L3.metric", "", "metric", "As good as our own reference run?"),
        _check("L3.samples", "C3", "evaluated", "Evaluated on as many samples?", optional=True),
        _check("L3.budget", "C3", "trained on", "Trained on as many samples?", optional=True),
        _check(
            "L3.evaluated",
            "C3",
            "evaluation mode",
            "Evaluated with dropout and batch statistics off, as before?",
            optional=True,
        ),
        _check(
            "L3.reduced",
            "C3",
            "combined",
            "Are the evaluations of all ranks combined?",
            optional=True,
        ),
        _check("L3.checkpoint", "C3", "saved", "Are the trained weights saved?", optional=True),
        _check("L4.time", "", "time", "Does one run take no longer than the reference?"),
        _check("L4.cost", "", "dollars", "Does one run cost no more?", optional=True),
    )
)
