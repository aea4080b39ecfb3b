"""The random numbers of images, drawn before anything is computed.

An image's numbers come from a generator of its own, and the arithmetic on them treats every image alike. So
an image is the same alone and in any batch, on any number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mnemos.common import rng

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


class Draws:
    """Random numbers between 0 and 1, one row per image, which are taken from left to right."""

    def __init__(self, seed: int, purpose: str, keys: Sequence[tuple[int, ...]], count: int) -> None:
        """`count` numbers for each key; an image's key is its class and index, or another unique one."""
        self._numbers = np.empty((len(keys), count), np.float32)
        self._taken = 0
        for row, key in zip(self._numbers, keys, strict=True):
            rng.numpy_generator(seed, purpose, *key).random(out=row, dtype=np.float32)

    def take(self, count: int) -> Floats:
        """The next `count` numbers of every image [B, count]."""
        start, self._taken = self._taken, self._taken + count
        return self._numbers[:, start : self._taken]

    def between(self, low: float, high: float) -> Floats:
        """The next number of every image [B], scaled to lie between two bounds."""
        return between(self.take(1)[:, 0], low, high)


def between(share: Floats, low: float, high: float) -> Floats:
    """low + (high − low) · share."""
    return np.float32(low) + np.float32(high - low) * share


def over(values: Floats, axes: int) -> Floats:
    """One value per image [B] with `axes` axes of length 1 appended, for products with larger arrays."""
    return values.reshape(-1, *(1,) * axes)
