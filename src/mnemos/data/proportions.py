"""Dirichlet proportions, computed stably for concentrations from 1e-9 to 1e9."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from mnemos.data.partition import Floats, Ints

Available = np.ndarray[tuple[int], np.dtype[np.bool_]]
"""Which entries of the last axis may have a positive probability."""
Concentration = Annotated[float, Field(ge=1e-9, le=1e9)]
"""A Dirichlet's α. Within its bounds nothing overflows; at both ends, the limit distribution is reached."""


def log_dirichlet(alpha: float, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    """Unnormalised logarithms of Dir(α·1) draws along the last axis.

    Normalised Gamma(α) variables are Dirichlet, but below α ≈ 0.001 most of them are too small for a double.
    Since G(α) = G(α+1)·U^(1/α) in law and −log U is exponential, log G(α) = log G(α+1) − E/α, which is
    always finite.
    """
    gamma = np.maximum(rng.standard_gamma(alpha + 1.0, shape), np.finfo(np.float64).tiny)
    return np.asarray(np.log(gamma) - rng.standard_exponential(shape) / alpha, np.float64)


def cumulative(logs: Floats, available: Available) -> Floats:
    """Cumulative probabilities along the last axis, over the available entries only, ending in exactly 1."""
    sums = np.cumsum(_weights(logs, available), axis=-1)
    return np.asarray(sums / sums[..., -1:], np.float64)


def proportions(logs: Floats, available: Available) -> Floats:
    """Probabilities along the last axis, over the available entries only; 0 for the others."""
    weights = _weights(logs, available)
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True), np.float64)


def _weights(logs: Floats, available: Available) -> Floats:
    """Weights relative to the largest available entry, whose weight is 1, so that their sum isn't 0."""
    masked = np.where(available, logs, -np.inf)
    return np.asarray(np.exp(masked - masked.max(axis=-1, keepdims=True)), np.float64)


def cut(shares: Floats, count: int | Ints) -> Ints:
    """The sizes of the parts of `count` samples that are cut at cumulative shares (rounded down)."""
    return np.asarray(np.diff((shares * count).astype(np.int64), prepend=0), np.int64)
