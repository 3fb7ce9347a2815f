"""Which tags of the diff may be why a check fails."""

from __future__ import annotations

from core.events import DiffTagged
from core.guard.tag import Tag

RELATED: dict[str, tuple[str, ...]] = {
    "L1.parameters": ("architecture", "weights", "frozen"),
    "L1.ties": ("weights",),
    "L1.start": ("weights", "seed", "architecture", "checkpoint"),
    "L1.batches": ("dataset", "padding", "batch size", "shuffle", "sampler", "drop_last", "seed", "data subset"),
    "L1.precision": ("dtype",),
    "L1.forward": ("architecture", "masks", "normalisation", "dtype", "mode", "dropout"),
    "L1.optimizer": ("optimizer", "learning rate", "parameter groups"),
    "L1.schedule": ("schedule", "learning rate", "epochs"),
    "L1.events": ("clipping", "accumulation", "schedule", "reduce"),
    "L1.first_loss": ("loss", "masks", "architecture", "dtype"),
    "L1.gradients": ("loss", "detach", "accumulation", "masks", "dtype"),
    "L1.clip": ("clipping",),
    "L1.global_batch": ("batch size", "accumulation", "sampler"),
    "L1.reduce": ("reduce",),
    "L1.frozen": ("frozen", "parameter groups"),
    "L1.dropout": ("dropout", "mode"),
    "L1.data": ("dataset", "drop_last", "data subset", "sampler", "batch size", "shuffle"),
    "L1.resume": ("checkpoint",),
    "L3.metric": ("metric", "evaluation data", "epochs"),
    "L3.samples": ("evaluation data",),
    "L3.budget": ("epochs", "data subset", "early exit"),
    "L3.evaluated": ("mode", "evaluation data"),
    "L3.reduced": ("reduce", "metric"),
    "L3.checkpoint": ("checkpoint",),
}  # fmt: skip
"""Kinds of tag by check; a check that is not named here has none of its own."""


def related(check: str, tagged: DiffTagged | None, tree: str) -> list[Tag]:
    """The tags of a tree's diff that have to do with a check; sure ones first."""
    kinds = RELATED.get(check, ())
    if tagged is None or tagged.tree != tree:
        return []
    tags = [tag for item in tagged.tags if (tag := Tag.from_json(item)) and tag.kind in kinds]
    return sorted(tags, key=lambda tag: not tag.sure)
