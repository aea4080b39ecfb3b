"""From points to shades: how often each pixel of a view is hit."""

from __future__ import annotations

import numpy as np

from mnemos.data.fractals.draws import Floats, between

BOX = 4
"""Numbers that a view needs."""
FLIP = 3
"""Numbers that flipping needs."""


def box(xs: Floats, ys: Floats, draws: Floats) -> tuple[Floats, Floats]:
    """A view near the points of each image: lower corner and extent, [B, 2] each.

    Its centre is off the points' by up to a fifth of their extent, and it is half to twice as large, in
    either direction.
    """
    low = np.stack([xs.min((0, 2)), ys.min((0, 2))], 1)
    high = np.stack([xs.max((0, 2)), ys.max((0, 2))], 1)
    extent = np.maximum(high - low, np.float32(1e-6))
    centre = (low + high) / 2 + extent * between(draws[:, :2], -0.2, 0.2)
    extent = extent * between(draws[:, 2:], 0.5, 2.0)
    return centre - extent / 2, extent


def shades(xs: Floats, ys: Floats, low: Floats, extent: Floats, size: int) -> Floats:
    """Hits of each pixel [B, size, size] as a share of the image's most hit one; rows are y."""
    count = len(low)
    columns, rows = (
        np.floor((points - low[:, None, axis]) * (size / extent[:, None, axis])).astype(np.int32)
        for axis, points in enumerate((xs, ys))
    )
    inside = (columns >= 0) & (columns < size) & (rows >= 0) & (rows < size)
    first = (np.arange(count, dtype=np.int32) * size * size)[:, None]
    pixels = (first + rows * size + columns)[inside]
    hits = np.bincount(pixels, minlength=count * size * size).astype(np.float32).reshape(count, size, size)
    found: Floats = hits / np.maximum(hits.max((1, 2), keepdims=True), np.float32(1))
    return found


def flip(images: Floats, draws: Floats) -> Floats:
    """Images [B, size, size] transposed, turned upside down, and mirrored: each or not, by a coin."""
    heads = (draws < 0.5)[:, :, None, None]
    images = np.where(heads[:, 0], images.swapaxes(1, 2), images)
    images = np.where(heads[:, 1], images[:, ::-1], images)
    return np.where(heads[:, 2], images[:, :, ::-1], images)


def place(images: Floats, side: Floats, centre: Floats, size: int) -> Floats:
    """Images as squares of other sides, around points (row, column) of empty ones [B, size, size].

    What lies between pixels is interpolated from four, and what lies outside is cut off.
    """
    for axis in (1, 2):
        scale = images.shape[axis] / side[:, None]
        positions = (np.arange(size, dtype=np.float32) + 0.5 - centre[:, axis - 1, None]) * scale
        images = _between(images, positions + np.float32(images.shape[axis] / 2 - 0.5), axis)
    return images


def _between(images: Floats, positions: Floats, axis: int) -> Floats:
    """Values at positions [B, n] along an axis, with nothing before the first and after the last."""
    length = images.shape[axis]
    padded = np.pad(images, [(1, 2) if axis == other else (0, 0) for other in range(3)])
    positions = np.expand_dims(positions.clip(-1, length), 3 - axis)
    below = np.floor(positions)
    first = below.astype(np.int64) + 1
    before, after = (np.take_along_axis(padded, which, axis) for which in (first, first + 1))
    return before + (after - before) * (positions - below)
