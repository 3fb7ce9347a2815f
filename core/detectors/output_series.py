"""Series of one number in the output, and when one is flat: rules shared by detectors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core.detectors.output_fields import Field
from core.detectors.output_look import LogLook, Reading, Row

#: A loss that differs by less than so much, relatively, over a whole log has not moved. Batches
#: of one data set alone move it by more. Ours: the public cases move by 1e-4 to 5e-4.
FLAT = 1e-3
#: Readings of at least so many steps apart say something (PyTorch/XLA's metrics analysis: 10).
MIN_SPAN = 10
#: Loss of a guess among k classes is ln k; of k options that are common.
CHANCE_CLASSES = (2, 3, 4, 5, 6, 8, 10, 20, 50, 100, 200, 1000, 30522, 32000, 50257, 50265, 128256)


@dataclass(frozen=True, slots=True)
class Series:
    """Readings of one key (and rank), in order."""

    key: str
    rank: str
    readings: Sequence[Reading]

    @property
    def values(self) -> list[float]:
        """The numbers."""
        return [r.value for r in self.readings]

    @property
    def finite(self) -> bool:
        """Whether all are finite."""
        return all(math.isfinite(v) for v in self.values)

    @property
    def mean(self) -> float:
        """Their mean."""
        return sum(self.values) / len(self.readings)

    @property
    def spread(self) -> float:
        """Largest minus smallest, relative to the mean's size; infinite around zero."""
        size = abs(self.mean)
        return (max(self.values) - min(self.values)) / size if size > 1e-12 else math.inf

    @property
    def precision(self) -> float:
        """The coarsest step of the printed numbers, relative to their size."""
        size = abs(self.mean)
        coarse = max(r.field.resolution for r in self.readings)
        return coarse / size if size > 1e-12 else math.inf

    @property
    def digits(self) -> int:
        """Decimals of the shortest printed number."""
        return min(len(r.field.text.partition(".")[2]) for r in self.readings)

    @property
    def same(self) -> bool:
        """Whether all print alike."""
        return len({r.field.text for r in self.readings}) == 1

    @property
    def span(self) -> float:
        """Steps between the first and the last reading; epochs count as many steps each.

        Without steps and epochs, the number of readings.
        """
        steps = [r.row.step for r in self.readings if r.row.step is not None]
        if len(steps) >= 2 and steps[-1] > steps[0]:
            return steps[-1] - steps[0]
        epochs = [r.row.epoch for r in self.readings if r.row.epoch is not None]
        if len(epochs) >= 2 and epochs[-1] > epochs[0]:
            return max(float(MIN_SPAN), (epochs[-1] - epochs[0]) * MIN_SPAN)
        return float(len(self.readings))

    @property
    def falls_steadily(self) -> bool:
        """Whether each value is below the one before it: slow, but learning."""
        pairs = itertools.pairwise(self.values)
        return len(self.readings) >= 4 and all(b < a for a, b in pairs)


def series(
    log: LogLook,
    wanted: Callable[[str], bool],
    least: int = 2,
    also: Callable[[Row, Field], bool] | None = None,
) -> list[Series]:
    """The series of all keys that are wanted, by key and rank; short ones left out."""
    found: dict[tuple[str, str], list[Reading]] = {}
    for reading in log.readings(wanted, also):
        found.setdefault((reading.field.key, reading.row.rank), []).append(reading)
    return [Series(key, rank, r) for (key, rank), r in found.items() if len(r) >= least]


def chance_of(value: float, within: float = 0.003) -> int | None:
    """The number of classes among which a guess has this loss, within a relative distance."""
    for k in CHANCE_CLASSES:
        if abs(value - math.log(k)) <= within * math.log(k):
            return k
    return None
