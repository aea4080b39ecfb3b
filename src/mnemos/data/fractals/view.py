"""Shades of fractals: how many points fall on each pixel of a view."""

from __future__ import annotations

import numpy as np

from mnemos.data.fractals.draws import Floats, between

BOX = 4
"""The number of random numbers for `box`."""
FLIP = 3
"""The number of random numbers for `flip`."""


def box(xs: Floats, ys: Floats, draws: Floats) -> tuple[Floats, Floats]:
    """A view of the points of each image: lower corner and extent, [B, 2] each.

    Along each axis, its centre differs from the points' by up to a fifth of their extent, and it is half to
    twice as large.
    """
    low = np.stack([xs.min((0, 2)), ys.min((0, 2))], 1)
    high = np.stack([xs.max((0, 2)), ys.max((0, 2))], 1)
    extent = np.maximum(high - low, np.float32(1e-6))
    centre = (low + high) / 2 + extent * between(draws[:, :2], -0.2, 0.2)
    extent = extent * between(draws[:, 2:], 0.5, 2.0)
    return centre - extent / 2, extent


def shades(xs: Floats, ys: Floats, low: Floats, extent: Floats, size: int) -> Floats:
    """The points on each pixel [B, size, size], divided by the largest number in the image; rows are y."""
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
    """Images [B, size, size], each transposed, turned upside down and mirrored with probability ½ each."""
    heads = (draws < 0.5)[:, :, None, None]
    images = np.where(heads[:, 0], images.swapaxes(1, 2), images)
    images = np.where(heads[:, 1], images[:, ::-1], images)
    return np.where(heads[:, 2], images[:, :, ::-1], images)


def place(images: Floats, side: Floats, centre: Floats, size: int) -> Floats:
    """Images resized to squares of sides [B], around centres (row, column) of empty images [B, size, size].

    Values between pixels are interpolated from four, and what lies outside is cut off.
    """
    for axis in (1, 2):
        scale = images.shape[axis] / side[:, None]
        positions = (np.arange(size, dtype=np.float32) + 0.5 - centre[:, axis - 1, None]) * scale
        images = _between(images, positions + np.float32(images.shape[axis] / 2 - 0.5), axis)
    return images


def _between(images: Floats, positions: Floats, axis: int) -> Floats:
    """Interpolated values at positions [B, n] along an axis, with 0 before the first and after the last."""
    length = images.shape[axis]
    padded = np.pad(images, [(1, 2) if axis == other else (0, 0) for other in range(3)])
    positions = np.expand_dims(positions.clip(-1, length), 3 - axis)
    below = np.floor(positions)
    first = below.astype(np.int64) + 1
    before, after = (np.take_along_axis(padded, index, axis) for index in (first, first + 1))
    return before + (after - before) * (positions - below)
