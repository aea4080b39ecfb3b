"""Iterated function systems, drawn by their singular values (Anderson and Farrell, 2022).

A system is N affine maps of the plane, x ↦ A x + b. The shape of its fractal depends mostly on the singular
values σ₁ ≥ σ₂ of its matrices: with small ones it is a few specks, with large ones a blot. A sum
Σ (σ₁ + 2 σ₂) over the maps between (5 + N)/2 and (6 + N)/2 avoids both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mnemos.common import rng

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class System:
    """N maps of the plane."""

    maps: Doubles
    """[N, 2, 3]: a matrix A and, in the last column, b."""
    singular: Doubles
    """[N, 2]: σ₁ ≥ σ₂ of each matrix."""


def check_transforms(value: tuple[int, int]) -> tuple[int, int]:
    """The bounds of the number of maps, or a `ValueError` if they aren't in order and from 2 to 16."""
    fewest, most = value
    if not 2 <= fewest <= most <= 16:
        raise ValueError(f"found {fewest} to {most}; allowed: from 2 to 16, the smaller first")
    return value


def draw_system(seed: int, label: int, transforms: tuple[int, int]) -> System:
    """The system of a class, with a random number of maps within the bounds `transforms`."""
    generator = rng.numpy_generator(seed, "fractal system", label)
    count = int(generator.integers(transforms[0], transforms[1], endpoint=True))
    factor = generator.uniform((5 + count) / 2, (6 + count) / 2)
    singular = draw_singular_values(count, factor, generator)
    left, right = _orthogonal(count, generator), _orthogonal(count, generator)
    offsets = generator.uniform(-1, 1, (count, 2, 1))
    return System(np.concatenate([(left * singular[:, None, :]) @ right, offsets], 2), singular)


def draw_singular_values(count: int, factor: float, generator: np.random.Generator) -> Doubles:
    """Pairs 0 ≤ σ₂ ≤ σ₁ ≤ 1 [count, 2] with Σ (σ₁ + 2 σ₂) = factor, drawn one after the other.

    `left` is the part of the sum that isn't distributed yet; `least` is the part that this pair must take,
    as each of the following pairs takes at most 3.
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
    """Matrices [count, 2, 2] that rotate by a random angle and mirror each axis with probability ½."""
    angles = generator.uniform(-np.pi, np.pi, count)
    cos, sin = np.cos(angles), np.sin(angles)
    turned = np.stack([cos, -sin, sin, cos], 1).reshape(count, 2, 2)
    signs: Doubles = generator.choice([-1.0, 1.0], (count, 1, 2))
    found: Doubles = turned * signs
    return found
