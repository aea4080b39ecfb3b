"""Clouds behind a fractal, by the diamond-square algorithm on a torus."""

from __future__ import annotations

import math

import numpy as np

from mnemos.data.fractals.colour import rgb
from mnemos.data.fractals.draws import Draws, Floats, over


def draws_for(size: int) -> int:
    """The number of random numbers for a background: one per pixel of the cloud, its decay, six colours."""
    return _side(size) ** 2 + 7


def clouds(size: int, draws: Draws) -> Floats:
    """Colours of cloudy backgrounds [B, 3, size, size]."""
    cloud = diamond_square(draws.take(_side(size) ** 2), draws.between(0.4, 0.8))[:, :size, :size]
    hue = cloud * over(draws.between(0.25, 1), 2) + over(draws.between(0, 1), 2)
    saturation = cloud * over(draws.between(0.1, 0.3), 2) + over(draws.between(0.4, 0.6), 2)
    value = cloud * over(draws.between(0.3, 0.6), 2) + over(draws.between(0.4, 0.6), 2)
    return rgb(hue, saturation.clip(0, 1), value.clip(0, 1))


def diamond_square(draws: Floats, decay: Floats) -> Floats:
    """Clouds [B, side, side] from side² draws each, side a power of two.

    It begins with four random values. Level k = 1, 2, … adds the means of every square's corners and of
    every diamond's, each moved by up to ±½ exp(decay (1 − k)).
    """
    count, total = draws.shape
    cloud, used = draws[:, :4].reshape(count, 2, 2), 4
    # `math.exp` of each number: `np.exp` may give other last bits in other batches.
    falling = over(np.array([math.exp(-rate) for rate in decay.tolist()], np.float32), 2)
    amplitude: Floats = np.full_like(falling, 0.5)
    while used < total:
        side = cloud.shape[1]
        new = side * side
        noise = (2 * draws[:, used : used + 3 * new] - 1).reshape(count, 3, side, side) * amplitude[:, None]
        right, below = np.roll(cloud, -1, 2), np.roll(cloud, -1, 1)
        centre = (cloud + right + below + np.roll(right, -1, 1)) / 4 + noise[:, 0]
        level = np.empty((count, 2 * side, 2 * side), np.float32)
        level[:, ::2, ::2], level[:, 1::2, 1::2] = cloud, centre
        level[:, ::2, 1::2] = (cloud + right + centre + np.roll(centre, 1, 1)) / 4 + noise[:, 1]
        level[:, 1::2, ::2] = (cloud + below + centre + np.roll(centre, 1, 2)) / 4 + noise[:, 2]
        cloud, used, amplitude = level, used + 3 * new, amplitude * falling
    return cloud


def _side(size: int) -> int:
    """The side of the cloud that an image is cut out of: a power of two."""
    return max(2, 1 << (size - 1).bit_length())
