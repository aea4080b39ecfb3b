"""The numbers of a spectrum, against hand-worked values."""

import math

import pytest
import torch

from mnemos.ranks.quantities import (
    condition_number,
    effective_rank,
    entropy,
    knowledge_gain,
    rank,
    stable_quality,
    stable_rank,
)


def spectrum(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_by_hand():
    """σ = 2, 1, 1, 0: p = ½, ¼, ¼, so H = ½ ln 2 + 2 · ¼ ln 4 = 1.5 ln 2.

    Σσ²/σ₁² = 1 + ¼ + ¼; Σσ/σ₁ over 4 rows = 2/4; κ = 2; stable quality = arctan2(½, 1 − ½) = π/4.
    """
    values = spectrum(2, 1, 1, 0)
    assert float(rank(values)) == 3
    assert float(entropy(values)) == pytest.approx(1.5 * math.log(2))
    assert float(effective_rank(values)) == pytest.approx(2**1.5)
    assert float(stable_rank(values)) == pytest.approx(1.5)
    assert float(knowledge_gain(values, 4)) == pytest.approx(0.5)
    assert float(condition_number(values)) == pytest.approx(2)
    assert float(stable_quality(values, 4)) == pytest.approx(math.pi / 4)


@pytest.mark.parametrize("size", [1, 2, 10, 300])
def test_the_effective_rank_of_an_identity_is_the_logarithm_of_its_size(size):
    values = torch.ones(size, dtype=torch.float64)
    assert float(entropy(values)) == pytest.approx(math.log(size))
    assert float(effective_rank(values)) == pytest.approx(size)
    assert float(stable_rank(values)) == pytest.approx(size)


def test_a_spectrum_without_values_is_zero_in_every_respect():
    values = torch.zeros(2, 5, dtype=torch.float64)
    for quantity in (rank, entropy, effective_rank, stable_rank, condition_number):
        assert quantity(values).tolist() == [0, 0]
    assert knowledge_gain(values, 5).tolist() == [0, 0]
    assert stable_quality(values, 5).tolist() == [0, 0]


def test_one_value_has_no_entropy():
    values = spectrum(3, 0, 0)
    assert float(entropy(values)) == 0
    assert float(effective_rank(values)) == 1
    assert float(stable_quality(values, 3)) == pytest.approx(math.pi / 2)  # κ = 1: arctan2(⅓, 0)
