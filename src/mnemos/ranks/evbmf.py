"""Empirical variational Bayesian matrix factorisation, by its global analytic solution.

Nakajima, Sugiyama, Babacan, Tomioka, 2013, Journal of Machine Learning Research 14. The solution for a matrix
Y = B Aᵀ + noise of L rows and M ≥ L columns depends only on its singular values s: those above the noise are
kept and shrunk, the others are noise, and the noise's variance minimises the free energy. It separates what a
layer has learnt from its random initialisation.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_GRID = 64
"""Grid points in the range of variances, in addition to those where a singular value begins to be kept."""
_CANDIDATES = 8
"""How many intervals between such points are searched: those with the least energy in the middle."""
_BISECTIONS = 48


def evbmf(singular: Tensor, columns: int) -> tuple[Tensor, Tensor]:
    """(the kept and shrunk singular values, with zeros in place of the others; the noise's variance σ²).

    `singular` [..., L] are non-negative and in descending order, L at most `columns`. A value is kept if
    s > √(M σ² x̲), with α = L/M, τ̲ = 2.5129 √α and x̲ = (1 + τ̲)(1 + α/τ̲), and becomes
    (s/2) [1 − (L+M) σ²/s² + √((1 − (L+M) σ²/s²)² − 4 L M σ⁴/s⁴)].
    """
    squares = singular.double().square()
    rows = squares.shape[-1]
    variance = noise_variance(squares, columns)
    noise = variance[..., None]
    kept = squares > columns * noise * threshold(rows, columns)
    ratio = noise / torch.where(kept, squares, 1.0)
    linear = 1 - (rows + columns) * ratio
    root = (linear.square() - 4 * rows * columns * ratio.square()).clamp_min(0).sqrt()
    return torch.where(kept, singular.double() / 2 * (linear + root), 0.0), variance


def threshold(rows: int, columns: int) -> float:
    """x̲, the threshold of s²/(M σ²) above which a singular value is kept."""
    alpha = rows / columns
    tau = 2.5129 * math.sqrt(alpha)
    return (1 + tau) * (1 + alpha / tau)


def noise_variance(squares: Tensor, columns: int) -> Tensor:
    """The σ² of least free energy, from squared singular values [..., L] in descending order.

    The free energy has a kink wherever a value begins to be kept, and often a local minimum between two
    kinks. A minimum is searched in each of the most promising intervals, and the least of them is returned.
    """
    energy = _FreeEnergy(squares, columns)
    low, high = (bound[..., None] for bound in _bounds(squares, columns))
    kinks = (squares / (columns * threshold(squares.shape[-1], columns))).log()  # −∞ for a value of zero
    grid = low + (high - low) * torch.linspace(0, 1, _GRID, dtype=squares.dtype)
    edges = torch.cat([grid, kinks.clamp(low, high)], -1).sort(-1).values
    left, right = edges[..., :-1], edges[..., 1:]
    pieces = energy((left + right) / 2).topk(_CANDIDATES, largest=False).indices
    left, right = left.gather(-1, pieces), right.gather(-1, pieces)
    for _ in range(_BISECTIONS):
        middle = (left + right) / 2
        rising = energy.slope(middle) > 0
        left, right = torch.where(rising, left, middle), torch.where(rising, middle, right)
    return left.gather(-1, energy(left).argmin(-1, keepdim=True))[..., 0].exp()


class _FreeEnergy:
    """The free energy of squared singular values [..., L], as a function of t = ln σ² [..., G].

    With x = s²/(M σ²) it is Σ (x − ln x) + Σ_{x > x̲} [ln(τ + 1) + α ln(τ/α + 1) − τ], up to a constant,
    where τ is the greater solution of x = (1 + τ)(1 + α/τ). Of ln x only −ln σ² depends on the variance;
    without the rest, singular values of zero do no harm. For a kept value x − τ = 1 + α + α/τ, without the
    difference of large numbers.
    """

    def __init__(self, squares: Tensor, columns: int) -> None:
        self._squares = squares
        self._columns = columns
        self._rows = squares.shape[-1]
        self._alpha = self._rows / columns
        self._limit = threshold(self._rows, columns)
        # Sums of the squares from each index to the end, added up from the smallest value on.
        sums = squares.flip(-1).cumsum(-1).flip(-1)
        self._behind = torch.cat([sums, torch.zeros_like(sums[..., :1])], -1)

    def __call__(self, log_variances: Tensor) -> Tensor:
        kept, _, tau, noise = self._parts(log_variances)
        alpha = self._alpha
        signal = 1 + alpha + alpha / tau + torch.log1p(tau) + alpha * torch.log1p(tau / alpha)
        return noise + self._rows * log_variances + torch.where(kept, signal, 0.0).sum(-1)

    def slope(self, log_variances: Tensor) -> Tensor:
        """Its derivative; dx/dτ = 1 − α/τ², and dx/dt = −x."""
        kept, x, tau, noise = self._parts(log_variances)
        alpha = self._alpha
        bend = alpha / tau.square()
        steepness = 1 / (1 + tau) + alpha / (alpha + tau) - bend
        return self._rows - noise + torch.where(kept, -x * steepness / (1 - bend), 0.0).sum(-1)

    def _parts(self, log_variances: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(which values are kept, their x, their τ; Σ x of the others)."""
        scale = self._columns * log_variances.exp()
        # Values are in descending order: those that are kept at no variance are skipped.
        most = int((self._squares > self._limit * scale.amin(-1, keepdim=True)).sum(-1).max())
        ratios = self._squares[..., None, :most] / scale[..., None]
        kept = ratios > self._limit
        x = torch.where(kept, ratios, self._limit)
        shifted = x - (1 + self._alpha)
        tau = (shifted + (shifted.square() - 4 * self._alpha).sqrt()) / 2
        return kept, x, tau, self._behind.gather(-1, kept.sum(-1)) / scale


def _bounds(squares: Tensor, columns: int) -> tuple[Tensor, Tensor]:
    """The logarithms of the least and the greatest variance that the global solution can have."""
    rows = squares.shape[-1]
    first = min(math.ceil(rows / (1 + rows / columns)) - 1, rows - 1)
    rest = squares[..., first:]
    highest = squares.mean(-1) / columns
    lowest = torch.maximum(rest[..., 0] / (columns * threshold(rows, columns)), rest.mean(-1) / columns)
    # A matrix of exactly low rank, or of zeros, has no noise: its variance is kept above 0.
    limits = torch.finfo(squares.dtype)
    lowest = torch.maximum(lowest, highest * limits.eps).clamp_min(limits.tiny)
    return lowest.log(), torch.maximum(highest, lowest).log()
