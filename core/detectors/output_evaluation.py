"""What scores and evaluations say of themselves: a guess's, or the same number each time."""

from __future__ import annotations

import math
import re

from core.detectors.base import OutputDetector, Sighting, detector
from core.detectors.output_look import LogLook, is_eval, is_loss, is_score, quote
from core.detectors.output_series import FLAT, MIN_SPAN, Series, chance_of, series
from core.detectors.output_training import evaluations, is_flat, losses, warming_up


@detector
class AtChance(OutputDetector):
    """The loss goes up and down around that of a guess, and the accuracy is a guess's."""

    NAME, CATEGORY = "loss_flat", "C5"
    SOURCE = (
        "public case loss_flat (pytorch/xla#7331): accuracy 1/k and loss ln k over an epoch. The "
        "bounds are ours: accuracy within 0.02 of 1/k, loss within 2 % of ln k (0.3 % where "
        "only evaluations are printed), and neither better at the end"
    )
    SAME_FAULT = ("params_unchanged", "loss_constant", "no_step_boundary")
    MEASURED = ("loss",)

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        if warming_up(log):
            return None
        found = self._score(log) or self._loss(log) or self._evaluations(log)
        if found is None:
            return None
        shown, words = found
        weak = "" if len(shown.readings) >= 20 else " (suspected: few readings)"
        evidence, at = quote(shown.readings)
        return Sighting(
            f"{words}: nothing is learned{weak}",
            evidence,
            "Run the same steps on the CPU in float32 and compare the gradients, module by "
            "module: an operator may give wrong values on the device.",
            threshold="stays at the value of a guess among k classes",
            at=at,
        )

    @staticmethod
    def _score(log: LogLook) -> tuple[Series, str] | None:
        scores = series(log, lambda key: is_score(key) and "acc" in key, 3)
        for found in scores:
            values = [v / 100 if found.mean > 1 else v for v in found.values]
            k = round(1 / max(sum(values) / len(values), 1e-9)) if found.finite else 0
            if not 2 <= k <= 20 or max(values) - min(values) > 0.02 or found.mean > 100:
                continue
            if any(abs(v - 1 / k) > 0.015 for v in values):
                continue
            lost = [s for s in losses(log) if s.finite and len(s.readings) >= 3]
            near = [s for s in lost if abs(s.mean - math.log(k)) <= 0.05 * math.log(k)]
            if near and all(s.values[-1] >= s.values[0] * 0.99 for s in near):
                return found, f"accuracy stays at 1/{k} and the loss at ln {k}"
            exact = len(values) >= 3 and all(abs(v - 1 / k) < 0.005 for v in values)
            if not lost and (len(values) >= 5 or exact) and not found.same:
                return found, f"accuracy stays at 1/{k}"
        return None

    @staticmethod
    def _loss(log: LogLook) -> tuple[Series, str] | None:
        for found in losses(log):
            values = found.values
            if len(values) < 8 or found.span < 5 * MIN_SPAN or not found.finite:
                continue
            k = chance_of(found.mean, 0.02)
            third = len(values) // 3
            first, last = sum(values[:third]) / third, sum(values[-third:]) / third
            near = all(chance_of(v, 0.03) == k for v in values)
            if k and near and last >= first * 0.995 and found.spread > FLAT:
                return found, f"the loss stays at that of a guess among {k} (ln {k})"
        return None

    @staticmethod
    def _evaluations(log: LogLook) -> tuple[Series, str] | None:
        for found in evaluations(log):
            if not is_loss(found.key) or not found.finite or found.precision > 0.01 or found.same:
                continue
            k = chance_of(found.values[0])
            steady = k and found.spread <= 0.003 and all(chance_of(v) == k for v in found.values)
            if steady and not any(_learns(s) for s in losses(log)):
                return found, f"the evaluation loss stays at that of a guess among {k} (ln {k})"
        return None


def _learns(found: Series) -> bool:
    return found.finite and found.values[-1] < found.values[0] * 0.98


_TABLE = re.compile("[│┃|].*[│┃|]\\s*$|^\\s*[│┃]")


@detector
class EvaluationConstant(OutputDetector):
    """Every evaluation gives the same number, to the last digit."""

    NAME, CATEGORY = "eval_constant", "C2"
    SOURCE = (
        "public cases eval_constant (huggingface/transformers#13204) and params_unchanged "
        "(aws-neuron-sdk#1316): bit-constant evaluation. A loss says so in 2 evaluations of 4 digits "
        "or more, an accuracy at chance in 2, any other score in 5 (ours)"
    )
    SAME_FAULT = ("params_unchanged", "loss_constant", "no_step_boundary")
    MEASURED = ("params_changed", "update_norm")

    def read(self, log: LogLook) -> Sighting | None:
        """See :meth:`OutputDetector.read`."""
        constant = [s for s in evaluations(log) if self._constant(s)]
        others = [s for s in evaluations(log) if not s.same and is_loss(s.key)]
        if not constant or others:  # a score may stand still while the loss moves
            return None
        found = max(constant, key=lambda s: (is_loss(s.key), len(s.readings)))
        read = log.readings(is_loss, lambda row, f: not is_eval(row, f))
        trains = losses(log)
        if trains and all(is_flat(s) for s in trains if len(s.readings) > 1):
            return None  # the same sign in the training loss, which says more
        evidence, at = quote(found.readings)
        weak = "" if len(found.readings) >= 3 else " (suspected: two evaluations)"
        threshold = "one value, to the last digit, in every evaluation"
        if not read:
            # Nothing read a value between the evaluations, so nothing forced the graph to run.
            return Sighting(
                f"the evaluation never changes and no loss is read: the steps may never run{weak}",
                evidence,
                "Call torch_xla.sync() (xm.mark_step()) after each optimizer step, then look "
                "whether one parameter changes.",
                category="C4",
                threshold=threshold,
                at=at,
            )
        return Sighting(
            f"every evaluation gives the same value: it does not see the updates{weak}",
            evidence,
            "Check that the evaluated model holds the tensors that the optimizer updates, after "
            "the move to the device.",
            threshold=threshold,
            at=at,
        )

    @staticmethod
    def _constant(found: Series) -> bool:
        value = found.values[0]
        whole = value in (1.0, 100.0) or (value == 0 and is_loss(found.key))
        if not found.same or not found.finite or whole:
            return False
        # A summary may print one evaluation again: two have to be of two moments.
        moments = {(r.row.step, r.row.epoch) for r in found.readings}
        lines = {r.row.line.no for r in found.readings if not _TABLE.search(r.row.text)}
        if len(moments) < 2 and len(lines) < 3:
            return False
        if is_loss(found.key):
            digits = len(found.readings[0].field.text.replace(".", "").lstrip("0"))
            return digits >= (4 if len(found.readings) >= 2 else 9) or len(found.readings) >= 4
        share = value / 100 if value > 1 else value
        k = round(1 / share) if share > 0 else 0
        if 2 <= k <= 1000 and abs(share - 1 / k) <= 0.1 / k and k in (2, 3, 4, 5, 10, 100, 1000):
            return True
        return len(found.readings) >= 5
