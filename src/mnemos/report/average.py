"""Means and standard deviations, mostly over seeds."""

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
    """The sample standard deviation; None for fewer than two values."""
    return statistics.stdev(values) if len(values) > 1 else None


def mean_of_known(values: Floats, axis: int) -> Floats:
    """Means along an axis of the values that aren't NaN; NaN where all are."""
    known = np.isfinite(values)
    count = known.sum(axis)
    total = np.where(known, values, 0.0).sum(axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def mean_curve(curves: Sequence[tuple[ArrayLike, Floats]]) -> tuple[Floats, Floats, Floats | None] | None:
    """Average curves, each given as (x, y): returns x, mean and standard deviation.

    The standard deviation is 0 where a single curve has a value, and None if there is one curve in all.
    Returns None without any curve.
    """
    if not curves:
        return None
    x = np.concatenate([np.asarray(xs, np.float64) for xs, _ in curves])
    y = np.concatenate([values for _, values in curves])
    if len(curves) == 1:
        return x, y, None
    xs, index = np.unique(x, return_inverse=True)
    count = np.bincount(index)
    mean = np.bincount(index, y) / count
    squares = np.bincount(index, (y - mean[index]) ** 2)
    return xs, mean, np.sqrt(squares / np.maximum(count - 1, 1))
