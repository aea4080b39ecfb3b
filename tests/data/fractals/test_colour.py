"""Colours, clouds and blur, by hand."""

import colorsys
import math

import numpy as np
import pytest

from mnemos.data.fractals.background import clouds, diamond_square, draws_for
from mnemos.data.fractals.colour import blur, grey, lay_over, paint, rgb
from mnemos.data.fractals.draws import Draws


class Given(Draws):
    """Draws that somebody has chosen."""

    def __init__(self, *rows):
        self._numbers, self._taken = np.array(rows, np.float32), 0


def test_colours_are_those_of_the_standard_library():
    generator = np.random.default_rng(0)
    hue = generator.uniform(-1, 2, (50, 1, 1)).astype(np.float32)
    saturation, value = generator.random((2, 50, 1, 1), dtype=np.float32)
    found = rgb(hue, saturation, value)[:, :, 0, 0]
    for row, h, s, v in zip(found, hue.ravel(), saturation.ravel(), value.ravel(), strict=True):
        np.testing.assert_allclose(row, colorsys.hsv_to_rgb(h % 1, s, v), atol=1e-5)


def test_paint_by_hand():
    """Hue from ¼ on, saturation 0.3 + ½ · 0.7 = 0.65, value 0.5 + 0 = 0.5."""
    found = paint(np.array([[[0, 0.5]]], np.float32), Given([0.25, 0.5, 0.0]))
    for column, hue in ((0, 0.25), (1, 0.75)):
        np.testing.assert_allclose(found[0, :, 0, column], colorsys.hsv_to_rgb(hue, 0.65, 0.5), atol=1e-6)


def test_paint_stays_in_its_bounds():
    rows = np.random.default_rng(0).random((200, 3))
    found = paint(np.ones((200, 1, 1), np.float32), Given(*rows))[:, :, 0, 0]
    value = found.max(1)
    assert value.min() >= 0.5 - 1e-6
    assert value.max() <= 1
    saturation = 1 - found.min(1) / value
    assert saturation.min() >= 0.3 - 1e-5
    assert saturation.max() <= 1


def test_the_ground_shows_where_nothing_is():
    shades = np.array([[[0, 0.1]]], np.float32)
    found = lay_over(shades, np.full((1, 3, 1, 2), 0.7), np.full((1, 3, 1, 2), 0.2))
    assert found[0, :, 0].tolist() == [[0.2, 0.7]] * 3


def test_diamond_square_by_hand():
    """Corners ¼, ½, ¾, 1 and no noise (draws ½) but +½ on one centre: means, on a torus."""
    draws = np.full((1, 16), 0.5, np.float32)
    draws[0, :4] = [0.25, 0.5, 0.75, 1.0]
    draws[0, 4] = 1.0
    (cloud,) = diamond_square(draws, np.array([0.7], np.float32))
    mean = 0.625
    np.testing.assert_allclose(cloud[::2, ::2], [[0.25, 0.5], [0.75, 1.0]])
    np.testing.assert_allclose(cloud[1::2, 1::2], [[mean + 0.5, mean], [mean, mean]])
    # Above the pixel (0, 1) is, around the torus, the centre (3, 1); below it (1, 1).
    assert cloud[0, 1] == pytest.approx((0.25 + 0.5 + (mean + 0.5) + mean) / 4)
    assert cloud[1, 0] == pytest.approx((0.25 + 0.75 + (mean + 0.5) + mean) / 4)


def test_noise_falls_from_level_to_level():
    """With draws of 1, levels add ½ and ½ e^−decay."""
    draws = np.ones((1, 64), np.float32)
    (cloud,) = diamond_square(draws, np.array([0.5], np.float32))
    assert cloud[0, 0] == 1
    assert cloud[2, 2] == pytest.approx(1.5)
    corners = cloud[0, 0] + cloud[0, 2] + cloud[2, 0] + cloud[2, 2]
    assert cloud[1, 1] == pytest.approx(corners / 4 + 0.5 * math.exp(-0.5))


@pytest.mark.parametrize("size", [8, 28, 33])
def test_backgrounds_of_any_size_are_colours(size):
    found = clouds(size, Draws(0, "test", [(0,), (1,)], draws_for(size)))
    assert found.shape == (2, 3, size, size)
    assert 0 <= found.min() < found.max() <= 1


def test_blur_by_hand():
    """σ = 1: weights e^−½ beside 1. A constant stays, and an image whose coin says no stays, too."""
    image = np.zeros((3, 1, 3, 3), np.float32)
    image[:2, 0, 1, 1] = 1
    image[2] = 0.4
    found = blur(image, Given([0.1, 1.0], [0.9, 1.0], [0.1, 0.5]))
    side = math.exp(-0.5)
    # At the border the row next to it counts twice, as in a mirror.
    across = np.array([2 * side, 1, 2 * side]) / (1 + 2 * side)
    np.testing.assert_allclose(found[0, 0], across[:, None] * across, rtol=1e-5)
    np.testing.assert_array_equal(found[1], image[1])
    np.testing.assert_allclose(found[2], 0.4, rtol=1e-6)


def test_luminance_by_hand():
    colours = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]], np.uint8)
    assert grey(colours[:, :, None, None]).ravel().tolist() == [76, 150, 29, 255]
