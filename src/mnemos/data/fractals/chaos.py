"""The chaos game: the points of a fractal, by applying its system's maps at random.

Many images are computed at once, each by many chains: a step is then a few operations on long arrays.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mnemos.data.fractals.draws import Floats, Ints
from mnemos.data.fractals.systems import System

STEPS = 128
"""The number of points of a chain."""
WARM_UP = 16
"""Steps before the first point: all chains begin at the same one, where points would accumulate."""

JITTER = 8
"""The number of random numbers for `jitter`: four tries."""

_NEVER = np.float32(2.0)
"""A limit above all random numbers."""


def chains(points: int) -> int:
    """The number of chains for at least this many points."""
    return -(-points // STEPS)


def draws_for(points: int) -> int:
    """The number of random numbers for this many points."""
    return chains(points) * (STEPS + WARM_UP)


def stack(systems: Sequence[System]) -> tuple[Floats, Floats, Ints]:
    """Systems as arrays: maps [B, N, 2, 3] and σ₁ [B, N], zero after a system's last map; and sizes [B]."""
    sizes = np.array([len(system.maps) for system in systems])
    maps = np.zeros((len(systems), sizes.max(), 2, 3), np.float32)
    largest = np.zeros((len(systems), sizes.max()), np.float32)
    for row, system in enumerate(systems):
        maps[row, : sizes[row]] = system.maps
        largest[row, : sizes[row]] = system.singular[:, 0]
    return maps, largest, sizes


def jitter(maps: Floats, largest: Floats, sizes: Ints, tries: Floats) -> Floats:
    """Each image's system with one of its maps, matrix and offset, scaled by 0.8 to 1.1.

    `tries` are pairs of random numbers, which choose the map and the scale. The first pair that leaves the
    map's σ₁ at most 1 is used; if there is none, the system stays unchanged.
    """
    maps, rows = maps.copy(), np.arange(len(maps))
    done = np.zeros(len(maps), bool)
    for choice, share in zip(tries[:, ::2].T, tries[:, 1::2].T, strict=True):
        chosen = (choice * sizes).astype(np.int64)
        scale = np.float32(0.8) + np.float32(0.3) * share
        taken = ~done & (largest[rows, chosen] * scale <= 1)
        maps[rows[taken], chosen[taken]] *= scale[taken, None, None]
        done |= taken
    return maps


def play(maps: Floats, draws: Floats) -> tuple[Floats, Floats]:
    """Points (x and y, [STEPS, B, chains] each) of systems [B, N, 2, 3], from draws [B, draws_for(points)].

    A map is chosen with a probability proportional to |det A|, the area that it covers. Every chain begins at
    the fixed point of its system's first map, which is a point of the fractal.
    """
    count = len(maps)
    table = maps.reshape(-1, 6).T.copy()
    chosen = (
        _choose(maps, draws).reshape(count, STEPS + WARM_UP, -1).swapaxes(0, 1).reshape(STEPS + WARM_UP, -1)
    )
    x, y = np.repeat(_fixed_point(maps[:, 0]), chosen.shape[1] // count, axis=1)
    points = np.empty((2, STEPS, len(x)), np.float32)
    for step, choice in enumerate(chosen, -WARM_UP):
        a, b, c, d, e, f = table[:, choice]
        x, y = a * x + b * y + c, d * x + e * y + f
        if step >= 0:
            points[:, step] = x, y
    xs, ys = points.reshape(2, STEPS, count, -1)
    return xs, ys


def _choose(maps: Floats, draws: Floats) -> Ints:
    """The map that each random number chooses, as an index through the maps of all systems."""
    a, b, d, e = (maps[:, :, row, column] for row in (0, 1) for column in (0, 1))
    ends = np.abs(a * e - b * d).cumsum(1)  # a sum in one order, whatever the batch
    # Entries after a system's last map equal its total: no random number reaches them.
    limits = np.where(ends < ends[:, -1:], ends / ends[:, -1:], _NEVER)
    chosen = np.repeat(np.arange(len(maps)) * maps.shape[1], draws.shape[1]).reshape(draws.shape)
    for limit in limits.T:
        chosen += draws >= limit[:, None]
    return chosen


def _fixed_point(maps: Floats) -> Floats:
    """The point with x = A x + b for one map per image [B, 2, 3]: its coordinates [2, B]."""
    (a, b, c), (d, e, f) = maps.astype(np.float64).transpose(1, 2, 0)
    scaled = np.stack([(1 - e) * c + b * f, d * c + (1 - a) * f])
    point: Floats = (scaled / ((1 - a) * (1 - e) - b * d)).astype(np.float32)
    return point
