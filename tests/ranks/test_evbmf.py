"""EVBMF: what was planted is found, noise is not, and the free energy's minimum is the global one."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from mnemos.ranks.evbmf import evbmf, threshold


def singular_values(matrix):
    """Of a matrix with at most as many rows as columns, several times as fast as by a decomposition."""
    matrix = matrix.double()
    return torch.linalg.eigvalsh(matrix @ matrix.mT).flip(-1).clamp_min(0).sqrt()


def planted(rows, columns, rank, noise, seed, strength=3.0):
    """A matrix of a rank whose values are `strength` to twice that times what noise of this size hides."""
    generator = torch.Generator().manual_seed(seed)

    def orthonormal(size):
        return torch.linalg.qr(torch.randn(size, rank, generator=generator, dtype=torch.float64)).Q

    hidden = noise * math.sqrt(columns * threshold(rows, columns))
    values = torch.linspace(2 * strength, strength, rank, dtype=torch.float64) * hidden
    signal = orthonormal(rows) * values @ orthonormal(columns).T
    return signal + noise * torch.randn(rows, columns, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("noise", [1e-4, 0.02, 3.0])
@pytest.mark.parametrize(
    ("shape", "ranks"),
    [
        ((16, 144), range(1, 9)),  # of 16 values, more than half can't be told from noise that strong
        ((64, 64), range(1, 21)),
        ((64, 576), range(1, 21)),
        ((128, 1152), range(1, 21)),
        ((512, 4608), (1, 20)),
    ],
)
def test_a_planted_rank_is_found(shape, ranks, noise):
    for rank in ranks:
        kept, variance = evbmf(singular_values(planted(*shape, rank, noise, seed=rank)), shape[1])
        assert int((kept > 0).sum()) == rank
        assert math.sqrt(variance) == pytest.approx(noise, rel=0.2)


@pytest.mark.parametrize(
    ("shape", "draws"), [((16, 144), 100), ((64, 576), 100), ((64, 64), 100), ((256, 2304), 100)]
)
def test_pure_noise_has_rank_zero(shape, draws):
    """In at least 95 of 100 draws.

    The singular values of Gaussian noise, L × M, are those of Bartlett's L × L triangle: independent normal
    numbers below the diagonal, and on it the roots of χ² with M, M − 1, … degrees of freedom.
    """
    rows, columns = shape
    draw = np.random.default_rng(0)
    triangles = np.tril(draw.standard_normal((draws, rows, rows)), -1)
    triangles[:, range(rows), range(rows)] = np.sqrt(draw.chisquare(columns - np.arange(rows), (draws, rows)))
    triangles = torch.from_numpy(triangles)
    squares = torch.linalg.eigvalsh(triangles @ triangles.mT).flip(-1).clamp_min(0)
    kept, _ = evbmf(squares.sqrt(), columns)
    assert int((kept > 0).any(-1).sum()) <= draws * 5 / 100


def slow_free_energy(variance, values, columns):
    """The free energy as the paper writes it, a singular value at a time."""
    rows = len(values)
    alpha = rows / columns
    lowest_tau = 2.5129 * math.sqrt(alpha)
    limit = (1 + lowest_tau) * (1 + alpha / lowest_tau)
    total = 0.0
    for value in values:
        x = value**2 / (columns * variance)
        if x <= limit:
            total += x - math.log(x)
        else:
            tau = 0.5 * (x - (1 + alpha) + math.sqrt((x - (1 + alpha)) ** 2 - 4 * alpha))
            total += x - tau + math.log((tau + 1) / x) + alpha * math.log(tau / alpha + 1)
    return total


def slow_evbmf(values, columns):
    """The least free energy of a fine grid, refined, and the values that it keeps."""
    rows = len(values)
    alpha = rows / columns
    lowest_tau = 2.5129 * math.sqrt(alpha)
    limit = (1 + lowest_tau) * (1 + alpha / lowest_tau)
    e = min(math.ceil(rows / (1 + alpha)) - 1, rows) - 1
    high = sum(value**2 for value in values) / (rows * columns)
    low = max(
        values[e + 1] ** 2 / (columns * limit), np.mean([value**2 for value in values[e + 1 :]]) / columns
    )
    grid = np.exp(np.linspace(math.log(low), math.log(high), 3000))
    energies = [slow_free_energy(variance, values, columns) for variance in grid]
    best = math.inf, 0.0
    for place in np.argsort(energies)[:12]:
        around = grid[max(place - 1, 0)], grid[min(place + 1, len(grid) - 1)]
        found = minimize_scalar(
            slow_free_energy,
            bounds=around,
            args=(values, columns),
            method="bounded",
            options={"xatol": 1e-12 * around[1]},
        )
        best = min(best, (found.fun, found.x))
    variance = best[1]
    kept = []
    for value in values:
        if value > math.sqrt(columns * variance * limit):
            b = 1 - (rows + columns) * variance / value**2
            kept.append(value / 2 * (b + math.sqrt(b**2 - 4 * rows * columns * variance**2 / value**4)))
    return kept, variance


def spectrum(kind, rows, columns):
    generator = torch.Generator().manual_seed(rows + columns)
    matrix = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    if kind == "planted":
        matrix = planted(rows, columns, 5, 0.3, seed=1, strength=1.2)
    if kind == "fading":  # a hundred local minima and more, in larger ones
        matrix = torch.linspace(3, 0.1, rows, dtype=torch.float64)[:, None] * matrix
    if kind == "heavy tail":
        matrix = torch.randn(rows, 1, generator=generator, dtype=torch.float64).exp() * matrix
    return singular_values(matrix)


@pytest.mark.parametrize("kind", ["noise", "planted", "fading", "heavy tail"])
@pytest.mark.parametrize("shape", [(12, 12), (16, 144), (40, 200)])
def test_it_agrees_with_a_slow_evaluation_of_the_free_energy(kind, shape):
    values = spectrum(kind, *shape)
    kept, variance = evbmf(values, shape[1])
    expected, expected_variance = slow_evbmf(values.tolist(), shape[1])
    assert float(variance) == pytest.approx(expected_variance, rel=1e-6)
    assert kept[kept > 0].tolist() == pytest.approx(expected, rel=1e-6)


def test_many_matrices_at_once_are_the_same_as_one_by_one():
    spectra = torch.stack([spectrum(kind, 16, 144) for kind in ("noise", "planted", "fading", "heavy tail")])
    together, variances = evbmf(spectra.view(2, 2, 16), 144)
    for values, kept, variance in zip(spectra, together.flatten(0, 1), variances.flatten(), strict=True):
        alone, alone_variance = evbmf(values, 144)
        assert torch.allclose(kept, alone, rtol=1e-12)
        assert float(variance) == pytest.approx(float(alone_variance), rel=1e-12)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e6])
def test_scaling_a_matrix_scales_what_is_kept(scale):
    values = spectrum("planted", 16, 144)
    kept, variance = evbmf(values, 144)
    scaled, scaled_variance = evbmf(scale * values, 144)
    assert torch.allclose(scaled, scale * kept, rtol=1e-9, atol=0)
    assert float(scaled_variance) == pytest.approx(scale**2 * float(variance), rel=1e-9)


def test_without_noise_everything_is_kept_as_it_is():
    """Exactly low rank: the free energy falls without end as σ² → 0, and nothing is shrunk."""
    values = torch.tensor([5.0, 3.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    kept, _ = evbmf(values, 20)
    assert kept.tolist() == pytest.approx(values.tolist(), rel=1e-6)


def test_a_matrix_of_zeros_has_rank_zero():
    kept, variance = evbmf(torch.zeros(3, 8), 20)
    assert torch.equal(kept, torch.zeros(3, 8, dtype=torch.float64))
    assert torch.isfinite(variance).all()


@pytest.mark.parametrize("columns", [1, 7])
def test_one_row_is_noise(columns):
    """σ² = s²/M explains a single value without any signal: both bounds of the variance are there."""
    kept, variance = evbmf(torch.tensor([4.0]), columns)
    assert kept.tolist() == [0.0]
    assert float(variance) == pytest.approx(16 / columns)
