"""Views, flips and placing, by hand."""

import numpy as np

from mnemos.data.fractals.view import box, flip, place, shades


def points(*pairs):
    xs, ys = np.array(pairs, np.float32).T
    return xs[:, None, None], ys[:, None, None]


def test_a_view_by_hand():
    """Points from (0, 0) to (2, 4); draws ½ mean: not moved, 1.25 times as large."""
    low, extent = box(*points((0, 0), (2, 4)), np.full((1, 4), 0.5, np.float32))
    np.testing.assert_allclose(extent, [[2.5, 5.0]], rtol=1e-6)
    np.testing.assert_allclose(low, [[1 - 1.25, 2 - 2.5]], rtol=1e-6)


def test_views_stay_in_their_bounds():
    draws = np.random.default_rng(0).random((1000, 4), dtype=np.float32)
    xs, ys = (np.repeat(one, 1000, 1) for one in points((0, 0), (1, 1)))
    low, extent = box(xs, ys, draws)
    assert extent.min() >= 0.5
    assert extent.max() <= 2
    centre = low + extent / 2
    assert centre.min() >= 0.3 - 1e-6
    assert centre.max() <= 0.7 + 1e-6


def test_shades_by_hand():
    """Three hits in one pixel, one in another, one outside: 1, ⅓ and nothing. Rows are y."""
    xs, ys = points((0.1, 0.6), (0.2, 0.7), (0.3, 0.9), (0.9, 0.1), (1.5, 0.5))
    found = shades(xs, ys, np.zeros((1, 2), np.float32), np.ones((1, 2), np.float32), 2)
    np.testing.assert_allclose(found, [[[0, 1 / 3], [1, 0]]], rtol=1e-6)


def test_a_view_without_points_is_empty():
    xs, ys = points((5, 5), (6, 6))
    assert not shades(xs, ys, np.zeros((1, 2), np.float32), np.ones((1, 2), np.float32), 4).any()


def test_flips_by_hand():
    image = np.array([[1, 2], [3, 4]], np.float32)
    coins = np.array([[0.9, 0.9, 0.9], [0.1, 0.9, 0.9], [0.9, 0.1, 0.9], [0.9, 0.9, 0.1]], np.float32)
    plain, transposed, upside_down, mirrored = flip(np.stack([image] * 4), coins).tolist()
    assert plain == [[1, 2], [3, 4]]
    assert transposed == [[1, 3], [2, 4]]
    assert upside_down == [[3, 4], [1, 2]]
    assert mirrored == [[2, 1], [4, 3]]


def test_a_square_is_placed_where_it_belongs():
    """Twice its size around (3, 3) of 8×8: ones from 2 to 3, less around them, nothing elsewhere."""
    side, centre = np.array([4], np.float32), np.array([[3, 3]], np.float32)
    (found,) = place(np.ones((1, 2, 2), np.float32), side, centre, 8)
    weights = np.array([0.25, 0.75, 1, 1, 0.75, 0.25, 0, 0])
    np.testing.assert_allclose(found, weights[:, None] * weights, atol=1e-6)


def test_rows_and_columns_are_not_confused_and_the_rest_is_cut_off():
    image = np.array([[[1, 2], [3, 4]]], np.float32)
    side = np.array([2], np.float32)
    (inside,) = place(image, side, np.array([[1, 3]], np.float32), 4)
    assert inside.tolist() == [[0, 0, 1, 2], [0, 0, 3, 4], [0, 0, 0, 0], [0, 0, 0, 0]]
    (cut,) = place(image, side, np.array([[0, 0]], np.float32), 4)
    assert cut.tolist() == [[4, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
