"""Systems: their singular values keep to the rules, and their maps have these singular values."""

import numpy as np
import pytest

from mnemos.data.fractals.systems import draw_singular_values, draw_system


def test_singular_values_keep_to_the_rules():
    """20,000 draws: 0 ≤ σ₂ ≤ σ₁ ≤ 1, and Σ (σ₁ + 2 σ₂) is what was asked for."""
    generator = np.random.default_rng(0)
    for draw in range(20_000):
        count = 2 + draw % 7
        factor = generator.uniform((5 + count) / 2, (6 + count) / 2)
        first, second = draw_singular_values(count, factor, generator).T
        assert (second >= 0).all()
        assert (second <= first + 1e-12).all()
        assert (first <= 1 + 1e-12).all()
        assert (first + 2 * second).sum() == pytest.approx(factor, abs=1e-9)


def test_maps_have_the_singular_values_they_were_drawn_with():
    for label in range(200):
        system = draw_system(3, label, (2, 7))
        count = len(system.maps)
        assert 2 <= count <= 7
        found = np.linalg.svd(system.maps[:, :, :2], compute_uv=False)
        np.testing.assert_allclose(found, system.singular, atol=1e-12)
        assert (5 + count) / 2 <= system.singular @ [1, 2] @ np.ones(count) <= (6 + count) / 2
        assert (np.abs(system.maps[:, :, 2]) <= 1).all()


def test_all_numbers_of_maps_and_reflections_occur():
    systems = [draw_system(0, label, (2, 4)) for label in range(200)]
    assert {len(system.maps) for system in systems} == {2, 3, 4}
    signs = np.concatenate([np.sign(np.linalg.det(system.maps[:, :, :2])) for system in systems])
    assert 0.4 < (signs > 0).mean() < 0.6


def test_a_system_is_a_matter_of_seed_and_class():
    one = draw_system(1, 5, (2, 4))
    np.testing.assert_array_equal(one.maps, draw_system(1, 5, (2, 4)).maps)
    others = [draw_system(1, 6, (2, 4)), draw_system(2, 5, (2, 4))]
    assert all(other.maps.shape != one.maps.shape or (other.maps != one.maps).any() for other in others)
