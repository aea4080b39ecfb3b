"""Effects over paired seeds, their confidence intervals, and verdicts by rules fixed before the runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Literal

from scipy.stats import t

Rule = Literal["above", "within", "at least"]
"""What a claim says of an effect: it is above 0, it is 0 within a margin, or it isn't below −margin."""


class Verdict(StrEnum):
    """The answer to a claim."""

    HOLDS = "holds"
    FAILS = "doesn't hold"
    OPEN = "not decided at this scale"
    RUNNING = "running"


@dataclass(frozen=True)
class Estimate:
    """The mean of an effect over seeds, with its confidence interval."""

    mean: float
    low: float
    high: float

    @property
    def half(self) -> float:
        """Half of the interval's length."""
        return (self.high - self.low) / 2


def estimate(values: Sequence[float], confidence: float = 0.95) -> Estimate:
    """The t interval of the mean of one value per seed: mean ± t · s / √n, with n − 1 degrees of freedom."""
    if len(values) < 2:
        raise ValueError(f"found {len(values)} value(s); an interval takes at least 2")
    mean = statistics.fmean(values)
    quantile = float(t.ppf((1 + confidence) / 2, len(values) - 1))
    half = quantile * statistics.stdev(values) / math.sqrt(len(values))
    return Estimate(mean, mean - half, mean + half)


def verdict(found: Estimate, rule: Rule, margin: float) -> Verdict:
    """By the interval alone.

    - above: holds if the interval is above 0; doesn't hold if it is below the margin, the smallest effect
      that would be worth having.
    - within: holds if the interval lies between −margin and margin; doesn't hold if it lies outside.
    - at least: holds if the interval is above −margin; doesn't hold if it is below −margin.

    Anything else is not decided.
    """
    if rule == "above":
        holds, fails = found.low > 0, found.high < margin
    elif rule == "within":
        holds = -margin < found.low and found.high < margin
        fails = found.low > margin or found.high < -margin
    else:
        holds, fails = found.low > -margin, found.high < -margin
    return Verdict.HOLDS if holds else Verdict.FAILS if fails else Verdict.OPEN


def together(verdicts: Sequence[Verdict]) -> Verdict:
    """Of a claim with several parts: it holds if all do, and doesn't if one doesn't."""
    for one in (Verdict.FAILS, Verdict.RUNNING, Verdict.OPEN):
        if one in verdicts:
            return one
    return Verdict.HOLDS


def decades(accuracies: Mapping[float, float], share: float = 0.9) -> float:
    """The range of good learning rates, in powers of ten.

    Around the best rate, as far as the accuracy is at least `share` of the best one. Between two rates of the
    grid accuracy is taken to be linear in the logarithm of the rate; the range ends where the grid does.
    """
    points = sorted((math.log10(rate), accuracy) for rate, accuracy in accuracies.items())
    best = max(range(len(points)), key=lambda index: points[index][1])
    bar = share * points[best][1]
    ends = (_end(points[best::-1], bar), _end(points[best:], bar))
    return ends[1] - ends[0]


def _end(points: Sequence[tuple[float, float]], bar: float) -> float:
    """Where accuracy falls below the bar, going from the best rate outwards."""
    for (x, y), (further, lower) in pairwise(points):
        if lower < bar:
            return x + (further - x) * (y - bar) / (y - lower)
    return points[-1][0]
