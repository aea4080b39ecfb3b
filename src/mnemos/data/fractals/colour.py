"""Colours of fractals, and blurring."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from mnemos.data.fractals.draws import Draws, Floats, over

PAINT = 3
"""The number of random numbers for `paint`."""
BLUR = 2
"""The number of random numbers for `blur`."""


def rgb(hue: Floats, saturation: Floats, value: Floats) -> Floats:
    """Colours [B, 3, size, size] from hue (0 to 1 is once around the circle), saturation and value."""
    six = 6 * (hue - np.floor(hue))
    red = np.abs(six - 3) - 1
    green, blue = 2 - np.abs(six - 2), 2 - np.abs(six - 4)
    pure = np.clip(np.stack([red, green, blue], 1), 0, 1)
    saturation, value = saturation[:, None], value[:, None]
    colours: Floats = value * (1 - saturation * (1 - pure))
    return colours


def paint(shades: Floats, draws: Draws) -> Floats:
    """Shades [B, size, size] as hues from a random one on, with one saturation and value per image."""
    hue = shades + over(draws.between(0, 1), 2)
    saturation, value = draws.between(0.3, 1), draws.between(0.5, 1)
    return rgb(hue, over(saturation, 2), over(value, 2))


def lay_over(shades: Floats, colours: Floats, ground: Floats) -> Floats:
    """Colours where shades aren't 0, and the ground elsewhere."""
    return np.where(shades[:, None] > 0, colours, ground)


def blur(images: Floats, draws: Draws) -> Floats:
    """Images, each with probability ½ blurred by a 3×3 Gaussian of standard deviation 0.5 to 1."""
    coin, width = draws.between(0, 1), draws.between(0.5, 1)
    # `math.exp` of each number: `np.exp` may give other last bits in other batches.
    side = np.array([math.exp(-1 / (2 * sigma * sigma)) for sigma in width.tolist()], np.float32)
    side = over(np.where(coin < 0.5, side, np.float32(0)), 3)
    for axis in (2, 3):
        padded = np.pad(images, [(1, 1) if axis == other else (0, 0) for other in range(4)], mode="reflect")
        before, after = (np.moveaxis(padded, axis, 0)[where] for where in (slice(None, -2), slice(2, None)))
        around = np.moveaxis(before, 0, axis) + np.moveaxis(after, 0, axis)
        images = (images + side * around) / (1 + 2 * side)
    return images


def grey(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The luminance [B, 1, size, size] of colours (ITU-R BT.601)."""
    red, green, blue = images.astype(np.uint32).swapaxes(0, 1)
    luminance: NDArray[np.uint8] = ((299 * red + 587 * green + 114 * blue + 500) // 1000).astype(np.uint8)
    return luminance[:, None]
