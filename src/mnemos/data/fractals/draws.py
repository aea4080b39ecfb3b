"""All that is random about an image, drawn before anything is computed.

An image's numbers come from a generator of its own, and what is made of them is arithmetic that treats every
image alike. So an image is the same alone and in any batch, on any number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mnemos import rng

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


class Draws:
    """Numbers between 0 and 1, a row an image, which are taken from left to right."""

    def __init__(self, seed: int, purpose: str, keys: Sequence[tuple[int, ...]], count: int) -> None:
        """`count` numbers for each key; an image's key is its class and index, or what else tells it."""
        self._numbers = np.empty((len(keys), count), np.float32)
        self._taken = 0
        for row, key in zip(self._numbers, keys, strict=True):
            rng.numpy_generator(seed, purpose, *key).random(out=row, dtype=np.float32)

    def take(self, count: int) -> Floats:
        """The next numbers of every image [B, count]."""
        start, self._taken = self._taken, self._taken + count
        return self._numbers[:, start : self._taken]

    def between(self, low: float, high: float) -> Floats:
        """One number of every image [B], between two bounds."""
        return between(self.take(1)[:, 0], low, high)


def between(share: Floats, low: float, high: float) -> Floats:
    """What lies at a share of the way from low to high."""
    return np.float32(low) + np.float32(high - low) * share


def over(values: Floats, axes: int) -> Floats:
    """One value an image [B], to be multiplied with arrays that have so many axes more."""
    return values.reshape(-1, *(1,) * axes)
