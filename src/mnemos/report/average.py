"""Means and deviations, over seeds as a rule."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from mnemos.data.partition import Floats


def mean_of(values: Sequence[float]) -> float:
    """The mean of at least one value."""
    return statistics.fmean(values)


def std_of(values: Sequence[float]) -> float | None:
    """The standard deviation of a sample; None of fewer than two values, which have none."""
    return statistics.stdev(values) if len(values) > 1 else None


def mean_of_known(values: Floats, axis: int) -> Floats:
    """Means along an axis of what is a number; not a number where nothing is."""
    known = np.isfinite(values)
    count = known.sum(axis)
    total = np.where(known, values, 0.0).sum(axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def mean_curve(curves: Sequence[tuple[ArrayLike, Floats]]) -> tuple[Floats, Floats, Floats | None] | None:
    """Places, mean and standard deviation (0 where there is one value) of curves given as (x, y).

    A deviation of None says that there is one curve; None says that there is no point at all.
    """
    if not curves:
        return None
    x = np.concatenate([np.asarray(places, np.float64) for places, _ in curves])
    y = np.concatenate([values for _, values in curves])
    if len(curves) == 1:
        return x, y, None
    places, of = np.unique(x, return_inverse=True)
    count = np.bincount(of)
    mean = np.bincount(of, y) / count
    squares = np.bincount(of, (y - mean[of]) ** 2)
    return places, mean, np.sqrt(squares / np.maximum(count - 1, 1))
