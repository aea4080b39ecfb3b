"""Mean and standard deviation of stored samples, in their own units."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

_T = TypeVar("_T", bound=np.generic)

_CHUNK = 1 << 22
"""How many values are processed at once, which bounds the memory for float64 copies."""


def mean_std(samples: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel [N, C, H, W] or feature [N, D]; a deviation of 0 becomes 1."""
    mean, variance = moments(samples)
    return tuple(mean.tolist()), deviation(variance)


def moments(samples: Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and variance, per channel or feature."""
    # By numpy, on one thread: the last bits of torch's sums depend on the number of threads.
    values = samples.numpy()
    return _of_bytes(values) if values.dtype == np.uint8 else _of_floats(values)


def deviation(variance: NDArray[np.float64]) -> tuple[float, ...]:
    """The standard deviation that samples are divided by; 1 where the variance is 0."""
    std = np.sqrt(variance)
    std[std == 0] = 1.0
    return tuple(std.tolist())


def _of_bytes(values: NDArray[np.uint8]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Exact mean and variance, from the counts of the 256 values in each channel."""
    counts = np.zeros((values.shape[1], 256), dtype=np.int64)
    for chunk in _chunks(values):
        for channel in range(values.shape[1]):
            counts[channel] += np.bincount(chunk[:, channel].ravel(), minlength=256)
    levels = np.arange(256.0)
    total = counts.sum(axis=1)
    mean = counts @ levels / total
    variance = (counts * (levels - mean[:, None]) ** 2).sum(axis=1) / total
    return mean, variance


def _of_floats(values: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and variance in two passes, so that a large mean doesn't cancel a small deviation."""
    axes = (0, *range(2, values.ndim))
    total = values.size // values.shape[1]
    mean = sum(chunk.sum(axis=axes, dtype=np.float64) for chunk in _chunks(values)) / total
    centre = mean.reshape(-1, *[1] * (values.ndim - 2))
    variance = sum(((chunk - centre) ** 2).sum(axis=axes) for chunk in _chunks(values)) / total
    # Because the mean is rounded, a constant channel has a tiny deviation instead of 0.
    variance[np.sqrt(variance) <= 1e-12 * np.abs(mean)] = 0.0
    return mean, variance


def _chunks(values: NDArray[_T]) -> list[NDArray[_T]]:
    step = max(1, _CHUNK // max(1, values[0].size))
    return [values[start : start + step] for start in range(0, len(values), step)]
