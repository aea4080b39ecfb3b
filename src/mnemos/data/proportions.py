"""Dirichlet proportions that survive concentrations from 1e-9 to 1e9."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from mnemos.data.partition import Floats, Ints

Concentration = Annotated[float, Field(ge=1e-9, le=1e9)]
"""A Dirichlet's α. Its bounds keep everything well inside a double, and at both ends the limit is reached."""


def log_dirichlet(alpha: float, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    """Unnormalised logarithms of Dir(α·1) draws along the last axis.

    Normalised Gamma(α) variables are Dirichlet, but below α ≈ 0.001 most of them are too small for a double.
    Since G(α) = G(α+1)·U^(1/α) in law and −log U is exponential, log G(α) = log G(α+1) − E/α, which is
    always finite.
    """
    gamma = np.maximum(rng.standard_gamma(alpha + 1.0, shape), np.finfo(np.float64).tiny)
    return np.asarray(np.log(gamma) - rng.standard_exponential(shape) / alpha, np.float64)


def cumulative(logs: Floats, available: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Floats:
    """Cumulative probabilities along the last axis, over the available entries only, ending in exactly 1.

    Renormalising logarithms can't divide by zero: however small the available entries are, the largest of
    them becomes 1 before the sum.
    """
    masked = np.where(available, logs, -np.inf)
    weights = np.exp(masked - masked.max(axis=-1, keepdims=True))
    sums = np.cumsum(weights, axis=-1)
    return np.asarray(sums / sums[..., -1:], np.float64)


def cut(shares: Floats, count: int | Ints) -> Ints:
    """How many of `count` samples fall to each, cutting them at the cumulative shares (rounded down)."""
    return np.asarray(np.diff((shares * count).astype(np.int64), prepend=0), np.int64)
