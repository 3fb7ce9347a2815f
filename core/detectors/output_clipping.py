"""Clipping that does nothing, as far as a log prints the gradient norm on both of its sides."""

from __future__ import annotations

import math
import re

from core.detectors.base import OutputDetector, Sighting, detector
from core.detectors.output_look import LogLook, Row, quote

_AFTER = re.compile(r"\b(?:after|post|clipped)\b|\bpost[- ]?clip")
_BEFORE = re.compile(r"\b(?:before|pre|unclipped|raw|total)\b|\bpre[- ]?clip")
_LIMIT = re.compile(r"\b(?:max(?:imum)?(?: grad(?:ient)?s?)? ?norm|clip(?:ping)?(?: (?:norm|value|at|to|threshold))?|threshold)$")  # fmt: skip
#: Relative; a norm is printed with a few digits.
BEYOND = 0.02
LEAST = 2


def _sides(row: Row) -> tuple[float, float] | None:
    """(norm before, norm after) of a line that prints both."""
    before = after = None
    for f in row.fields:
        if _AFTER.search(f.key):
            after = f.value
        elif _BEFORE.search(f.key):
            before = f.value
    return None if before is None or after is None else (before, after)


@detector
class ClipWithoutEffect(OutputDetector):
    """The gradient norm after clipping is beyond the limit that it was clipped to."""

    NAME, CATEGORY = "clip_without_effect", "C3"
    SOURCE = (
        "torch.nn.utils.clip_grad_norm_: the norm afterwards is at most max_norm. The bounds are ours: "
        "2 lines that print it on both sides, each more than 2 % beyond the limit"
    )
    SAME_FAULT = ("clip_changed",)

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        words = {line.no for line in log.having("clip")}
        if not words:
            return None
        limits = [
            f.value
            for row in log.rows
            for f in row.fields
            if _LIMIT.search(f.key) and not _AFTER.search(f.key) and not _BEFORE.search(f.key)
        ]
        limits = [x for x in limits if math.isfinite(x) and x > 0]
        if not limits:
            return None
        limit = max(limits)
        sides = [(row, s) for row in log.rows if row.line.no in words and (s := _sides(row))]
        beyond = [row for row, (_, after) in sides if after > limit * (1 + BEYOND)]
        least = 1 if log.excerpt else LEAST
        if len(beyond) < least or len(beyond) < len(sides):
            return None
        evidence, at = quote(beyond)
        return Sighting(
            f"clipping has no effect: the norm after it is beyond {limit:g}",
            evidence,
            "Clip between the reduction of the gradients and the optimizer's step, the parameters "
            "that the optimizer holds.",
            threshold=f"more than {BEYOND:.0%} beyond the limit, in every line",
            at=at,
        )
