"""The chaos game and jitter against systems worked out by hand."""

import numpy as np
import pytest

from mnemos.data.fractals.chaos import STEPS, WARM_UP, draws_for, jitter, play, stack
from mnemos.data.fractals.systems import System

CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 1.0]])
TRIANGLE = System(
    np.stack([np.column_stack([np.eye(2) / 2, corner / 2]) for corner in CORNERS]), np.full((3, 2), 0.5)
)
"""Sierpinski's: each map goes half the way to a corner."""

STRIPS = System(
    np.array([[[0.75, 0, 0], [0, 0.5, 0]], [[0.25, 0, 0.75], [0, 0.5, 0.5]]]),
    np.array([[0.75, 0.5], [0.5, 0.25]]),
)
"""Areas 3/8 and 1/8: the first map is chosen three times out of four, and gives x < 3/4."""


def played(*systems, points=4096, seed=0):
    maps, _, _ = stack(systems)
    draws = np.random.default_rng(seed).random((len(systems), draws_for(points)), dtype=np.float32)
    xs, ys = play(maps, draws)
    assert xs.shape == ys.shape == (STEPS, len(systems), -(-points // STEPS))
    return xs, ys


def test_sierpinski_points_lie_in_its_three_triangles_in_equal_numbers():
    """A point after a map lies in the half-size triangle at the map's corner, and in none of the hole."""
    xs, ys = (points.ravel().astype(np.float64) for points in played(TRIANGLE, points=65_536))
    # Barycentric coordinates: one of them is at least ½ exactly in the triangle at its corner.
    third = ys
    second = xs - ys / 2
    first = 1 - second - third
    weights = np.stack([first, second, third])
    assert weights.min() > -1e-6
    assert weights.max(0).min() > 0.5 - 1e-6  # nothing is in the middle
    shares = np.bincount(weights.argmax(0), minlength=3) / len(xs)
    np.testing.assert_allclose(shares, 1 / 3, atol=0.01)


def test_maps_are_chosen_in_proportion_to_their_areas():
    xs, _ = played(STRIPS, points=65_536)
    assert (xs < 0.75).mean() == pytest.approx(0.75, abs=0.01)


def test_a_chain_follows_its_draws():
    """From the first map's fixed point (0, 0): the last of three maps, the second, the first, and so on."""
    maps, _, _ = stack([TRIANGLE])
    draws = np.full(
        (1, STEPS + WARM_UP), 0.1, np.float32
    )  # the first map, which leaves its fixed point alone
    draws[0, WARM_UP : WARM_UP + 4] = [0.9, 0.5, 0.1, 0.34]
    xs, ys = play(maps, draws)
    points = np.stack([xs.ravel(), ys.ravel()], 1)[:4]
    expected = [[0.25, 0.5], [0.625, 0.25], [0.3125, 0.125], [0.65625, 0.0625]]
    np.testing.assert_allclose(points, expected, atol=1e-7)


def test_systems_of_other_sizes_beside_it_change_nothing():
    alone = played(STRIPS)
    beside = played(STRIPS, TRIANGLE)
    np.testing.assert_array_equal(alone[0][:, 0], beside[0][:, 0])
    np.testing.assert_array_equal(alone[1][:, 0], beside[1][:, 0])


def test_jitter_by_hand():
    """The second map (⌊0.6 · 2⌋ = 1) by 0.8 + 0.3 · 0.5 = 0.95; the others and the given stay as they are."""
    systems = stack([STRIPS])
    tries = np.array([[0.6, 0.5, 0, 0, 0, 0, 0, 0]], np.float32)
    moved = jitter(*systems, tries)
    np.testing.assert_array_equal(moved[0, 0], systems[0][0, 0])
    np.testing.assert_allclose(moved[0, 1], 0.95 * systems[0][0, 1], rtol=1e-6)
    np.testing.assert_allclose(systems[0][0], STRIPS.maps, rtol=1e-6)


def test_jitter_never_makes_a_map_that_spreads():
    """σ₁ = 0.95: a factor of 1.1 is refused, a later try of 0.8 taken; four refusals leave it as it is."""
    wide = System(np.array([[[0.95, 0, 1], [0, 0.1, 1]]] * 2), np.array([[0.95, 0.1]] * 2))
    systems = stack([wide, wide])
    tries = np.array([[0, 1, 0, 0, 0, 1, 0, 1], [0, 1, 0.9, 1, 0, 1, 0.9, 1]], np.float32)
    moved = jitter(*systems, tries)
    np.testing.assert_allclose(moved[0, 0], 0.8 * wide.maps[0], rtol=1e-6)
    np.testing.assert_allclose(moved[0, 1], wide.maps[1], rtol=1e-6)
    np.testing.assert_allclose(moved[1], wide.maps, rtol=1e-6)
