"""Images: always the same, alike within a class and different between classes; and the data source."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from sklearn.linear_model import RidgeClassifier

from mnemos.data.fractals import HELD_OUT, Fractals
from mnemos.data.fractals.systems import System
from mnemos.data.load import load
from mnemos.experiment.experiment import Experiment

LABELS, INDICES = np.arange(12) % 5, np.arange(12)


@pytest.mark.parametrize("size", [8, 28, 32])
def test_an_image_is_the_same_alone_in_any_batch_and_on_any_number_of_threads(size):
    fractals = Fractals(5, size, seed=1)
    alone = [fractals.images(LABELS[i : i + 1], INDICES[i : i + 1]) for i in range(12)]
    together = fractals.images(LABELS, INDICES)
    assert together.shape == (12, 3, size, size)
    np.testing.assert_array_equal(np.concatenate(alone), together)
    np.testing.assert_array_equal(fractals.images(LABELS[::-1], INDICES[::-1])[::-1], together)
    many = np.arange(300)
    np.testing.assert_array_equal(fractals.images(many % 5, many, workers=3), fractals.images(many % 5, many))
    with ThreadPoolExecutor(2) as pool:  # engines' threads
        for found in pool.map(lambda _: fractals.images(LABELS, INDICES), range(2)):
            np.testing.assert_array_equal(found, together)


def test_scenes_are_the_same_alone_and_in_any_batch():
    fractals = Fractals(5, 32)
    images, present = fractals.scenes(INDICES, workers=2)
    for index in INDICES:
        (image,), (labels,) = fractals.scenes(INDICES[index : index + 1])
        np.testing.assert_array_equal(image, images[index])
        np.testing.assert_array_equal(labels, present[index])


def test_seed_class_and_index_each_matter():
    image = Fractals(5, seed=1).images(np.array([2]), np.array([7]))
    for seed, label, index in ((2, 2, 7), (1, 3, 7), (1, 2, 8), (1, 2, 7 + HELD_OUT)):
        other = Fractals(5, seed=seed).images(np.array([label]), np.array([index]))
        assert (other != image).mean() > 0.5


def test_the_number_of_classes_changes_no_image():
    few, many = Fractals(3), Fractals(50)
    np.testing.assert_array_equal(few.images(LABELS % 3, INDICES), many.images(LABELS % 3, INDICES))


def test_a_committed_image():
    """Another result means other encoders from the same options: `_FORMAT` of pretraining.py goes up then."""
    image = Fractals(2, 8, seed=0).images(np.array([1]), np.array([3]))
    # A pixel may differ where a processor's sine has another last bit.
    assert image.astype(np.int64).sum() == pytest.approx(27_427, rel=2e-3)


def test_the_fractal_in_an_image_is_its_system():
    """Maps that keep to a diagonal give points on a line, in whatever view."""
    diagonal = np.array([[[0.5, 0, 0], [0, 0.5, 0]], [[0.5, 0, 0.5], [0, 0.5, 0.5]]])
    fractals = Fractals(1, 32)
    vars(fractals)["systems"] = (System(diagonal, np.full((2, 2), 0.5)),)
    for image in fractals.shades(np.zeros(20, np.int64), np.arange(20)):
        pixels = np.argwhere(image > 0)
        assert len(pixels) > 10
        along, across = np.linalg.svd(pixels - pixels.mean(0), compute_uv=False)
        assert across / np.sqrt(len(pixels)) < 0.5 < along / np.sqrt(len(pixels))


def test_classes_look_alike_within_and_differ_between():
    """A linear probe on pixels of ten classes, each image moved, stretched and flipped: chance is 10 %."""
    fractals, labels = Fractals(10), np.repeat(np.arange(10), 100)
    train = fractals.shades(labels, np.tile(np.arange(100), 10)).reshape(1000, -1) > 0
    test = fractals.shades(labels, HELD_OUT + np.tile(np.arange(100), 10)).reshape(1000, -1) > 0
    assert RidgeClassifier(alpha=1000).fit(train, labels).score(test, labels) > 0.28


def test_scenes_have_one_to_five_fractals():
    _, present = Fractals(1000).scenes(np.arange(300))
    numbers = present.sum(1)
    assert set(numbers.tolist()) == {1, 2, 3, 4, 5}
    assert 2.7 < numbers.mean() < 3.3


def test_luminance_is_of_the_same_images():
    colours = Fractals(5).images(LABELS, INDICES).astype(np.int64)
    shades = Fractals(5, channels=1).images(LABELS, INDICES)
    assert shades.shape == (12, 1, 32, 32)
    expected = (299 * colours[:, 0] + 587 * colours[:, 1] + 114 * colours[:, 2] + 500) // 1000
    np.testing.assert_array_equal(shades[:, 0], expected)


def test_a_black_ground_is_behind_the_same_fractals():
    shades = Fractals(5).shades(LABELS, INDICES)
    clear, clouds = (Fractals(5, background=one).images(LABELS, INDICES) for one in ("black", "clouds"))
    assert (clear[:, 0][shades > 0].mean()) > (clear[:, 0][shades == 0].mean())
    sharp = [image for image in range(12) if not clear[image][:, shades[image] == 0].any()]
    assert 1 < len(sharp) < 11  # others are blurred, by a coin
    for image in sharp:
        inside = shades[image] > 0
        np.testing.assert_array_equal(clear[image][:, inside], clouds[image][:, inside])


def test_no_images_are_no_mistake():
    nothing = np.zeros(0, np.int64)
    assert Fractals(3).images(nothing, nothing).shape == (0, 3, 32, 32)
    images, present = Fractals(3, channels=1).scenes(nothing)
    assert (images.shape, present.shape) == ((0, 1, 32, 32), (0, 3))


def test_the_source_by_its_options():
    options = {"name": "fractals", "classes": 3, "train": 4, "test": 2, "size": 16, "channels": 1, "seed": 5}
    dataset = load(Experiment.parse({"data": options}).data)
    assert dataset.shape == (1, 16, 16)
    assert dataset.train.labels.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    assert dataset.test.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert dataset.train.samples.dtype == torch.uint8
    everything = torch.cat([dataset.train.samples, dataset.test.samples]).flatten(1)
    assert len(everything.unique(dim=0)) == 18  # no image twice, neither within a part nor in both
    larger = load(Experiment.parse({"data": {**options, "train": 9}}).data)
    assert torch.equal(larger.test.samples, dataset.test.samples)
    assert torch.equal(larger.train.samples[:4], dataset.train.samples[:4])
