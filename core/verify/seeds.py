"""Several runs on either side: what the reference varies by itself is no loss of the migration."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean, stdev

#: Two-sided 95 % quantiles of Student's t by degrees of freedom; any table of statistics.
_T95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


def t95(freedom: float) -> float:
    """The two-sided 95 % quantile for a degree of freedom >= 1, rounded down; above 30 z's 1.96.

    Rounding down gives the wider interval.
    """
    n = math.floor(freedom)
    return _T95[max(n, 1) - 1] if n <= len(_T95) else 1.96


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether the target is as good, by which rule; ``loss`` > 0 is worse, in the metric's unit.

    ``low`` and ``high`` are the band of the reference's own runs (several references, one target
    run), or the 95 % interval of the loss (several on both sides); NaN where there is neither.
    """

    good: bool
    loss: float
    rule: str
    low: float = math.nan
    high: float = math.nan
    footnote: str = ""


def judge(ours: list[float], theirs: list[float], higher: bool, limit: float) -> Judgement:
    """Hold the target's values against the reference's; ``limit`` is the tolerance, in the unit.

    - One reference run: the target, or the mean of its runs, may be worse by the tolerance.
    - Several reference runs and one of the target: it may be worse than the worst of the reference
      by the tolerance. The reference's own range is the band (Ascend's rule: an accuracy problem
      only where it is out of the run-to-run variation).
    - Several on both sides: the mean may be worse by the tolerance; beyond it, it counts as worse
      only if the loss is also larger than its 95 % interval, by Welch's t for unequal variances
      (B. L. Welch, Biometrika 34, 1947): half width t(0.975, nu) * sqrt(s1^2/n1 + s2^2/n2) with
      Satterthwaite's nu. An interval wider than the tolerance is said: too few seeds to tell.
    """
    sign = 1.0 if higher else -1.0
    if not all(map(math.isfinite, theirs)):
        return Judgement(False, math.nan, "a value that is no number is no pass")
    if len(ours) == 1:
        loss = sign * (ours[0] - fmean(theirs))
        many = f", mean of {len(theirs)} runs" if len(theirs) > 1 else ""
        return Judgement(loss <= limit, loss, f"against one reference run{many}")
    if len(theirs) == 1:
        low, high = min(ours), max(ours)
        loss = sign * ((low if higher else high) - theirs[0])
        rule = f"no worse than the worst of {len(ours)} reference runs, and the tolerance"
        return Judgement(loss <= limit, loss, rule, low, high)
    loss = sign * (fmean(ours) - fmean(theirs))
    half = half_width(ours, theirs)
    rule = (
        f"difference of means of {len(ours)} reference and {len(theirs)} target runs, worse only "
        "beyond the tolerance and its 95 % interval (Welch)"
    )
    footnote = ""
    if half > limit:
        footnote = "the runs vary by more than the tolerance: more seeds would tell more"
    return Judgement(loss <= max(limit, half), loss, rule, loss - half, loss + half, footnote)


def half_width(ours: list[float], theirs: list[float]) -> float:
    """Half of the 95 % interval of the difference of two means (Welch); both of 2 values or more."""
    parts = [stdev(x) ** 2 / len(x) for x in (ours, theirs)]
    total = sum(parts)
    if not total:
        return 0.0
    spread = sum(p**2 / (len(x) - 1) for p, x in zip(parts, (ours, theirs), strict=True))
    # Of squares below the smallest float nothing is left: one degree is the widest interval.
    return t95(total**2 / spread if spread else 1.0) * math.sqrt(total)
