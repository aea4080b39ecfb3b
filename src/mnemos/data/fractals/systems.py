"""Iterated function systems, drawn by their singular values (Anderson and Farrell, 2022).

A system is N affine maps of the plane, x ↦ A x + b. How its fractal looks is mostly a matter of the singular
values σ₁ ≥ σ₂ of its matrices: too small, and there are a few specks; too large, and there is a blot. The sum
Σ (σ₁ + 2 σ₂) over the maps, between (5 + N)/2 and (6 + N)/2, leaves what is worth looking at.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mnemos import rng

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class System:
    """N maps of the plane."""

    maps: Doubles
    """[N, 2, 3]: a matrix A and, in the last column, b."""
    singular: Doubles
    """[N, 2]: σ₁ ≥ σ₂ of each matrix."""


def check_transforms(value: tuple[int, int]) -> tuple[int, int]:
    """Bounds of the number of maps, or a `ValueError` where there are no systems of so many."""
    fewest, most = value
    if not 2 <= fewest <= most <= 16:
        raise ValueError(f"found {fewest} to {most}; allowed: from 2 to 16, the smaller first")
    return value


def draw_system(seed: int, label: int, transforms: tuple[int, int]) -> System:
    """The system of a class, with as many maps as lie between two bounds."""
    generator = rng.numpy_generator(seed, "fractal system", label)
    count = int(generator.integers(transforms[0], transforms[1], endpoint=True))
    factor = generator.uniform((5 + count) / 2, (6 + count) / 2)
    singular = draw_singular_values(count, factor, generator)
    left, right = _orthogonal(count, generator), _orthogonal(count, generator)
    offsets = generator.uniform(-1, 1, (count, 2, 1))
    return System(np.concatenate([(left * singular[:, None, :]) @ right, offsets], 2), singular)


def draw_singular_values(count: int, factor: float, generator: np.random.Generator) -> Doubles:
    """Pairs 0 ≤ σ₂ ≤ σ₁ ≤ 1 [count, 2] with Σ (σ₁ + 2 σ₂) = factor, one after the other.

    `left` is what is still to be given away; `least` is what must be given now, as the maps that follow can't
    take more than 3 each.
    """
    pairs = np.empty((count, 2))
    left, least = factor, factor - 3 * (count - 1)
    for pair in pairs[:-1]:
        first = generator.uniform(max(0.0, least / 3), min(1.0, left))
        left, least = left - first, least - first
        second = generator.uniform(max(0.0, least / 2), min(first, left / 2))
        left, least = left - 2 * second, least - 2 * second + 3
        pair[:] = first, second
    second = generator.uniform(max(0.0, (left - 1) / 2), left / 3)
    pairs[-1] = left - 2 * second, second
    return pairs


def _orthogonal(count: int, generator: np.random.Generator) -> Doubles:
    """Matrices [count, 2, 2] that turn by any angle and then mirror, or don't, along each axis."""
    angles = generator.uniform(-np.pi, np.pi, count)
    cos, sin = np.cos(angles), np.sin(angles)
    turned = np.stack([cos, -sin, sin, cos], 1).reshape(count, 2, 2)
    signs: Doubles = generator.choice([-1.0, 1.0], (count, 1, 2))
    found: Doubles = turned * signs
    return found
