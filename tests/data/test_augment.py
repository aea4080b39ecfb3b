"""Augmentations on small images worked out by hand, and on stacked batches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from mnemos.common.rng import generator
from mnemos.data.augment import Augmentation, Crop, Cutout, Flip, Rotation, augmentations, normalise
from mnemos.errors import ConfigError

ALL: list[dict[str, Any]] = [
    {"name": "crop"},
    {"name": "crop", "pad": 0},
    {"name": "flip"},
    {"name": "cutout", "size": 5},
    {"name": "rotation", "degrees": 30},
    {"name": "rotation", "quarter": True},
]
DTYPES = [torch.uint8, torch.float32, torch.float64]
TINY = torch.tensor([[[[1, 2, 3], [4, 5, 6]]]], dtype=torch.uint8)  # one image of 2×3


def images(count: int, dtype: torch.dtype, shape: tuple[int, int, int] = (3, 9, 9)) -> Tensor:
    return torch.randint(256, (count, *shape), generator=generator(count, "images")).to(dtype)


def test_names() -> None:
    assert augmentations.names() == ["crop", "cutout", "flip", "rotation"]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("config", ALL, ids=str)
def test_together_is_the_same_as_one_by_one(config: dict[str, Any], dtype: torch.dtype) -> None:
    augmentation = augmentations.parse(config)
    batches = [images(count, dtype) for count in (1, 2, 5, 8, 13)]
    draws = [
        augmentation.draw(len(batch), (3, 9, 9), generator(0, "augment", k))
        for k, batch in enumerate(batches)
    ]
    before = [batch.clone() for batch in batches]
    together = augmentation.apply(torch.cat(batches), torch.cat(draws))
    apart = torch.cat([augmentation.apply(b, d) for b, d in zip(batches, draws, strict=True)])
    assert torch.equal(together, apart)
    assert together.dtype == dtype
    assert together.shape == (29, 3, 9, 9)
    assert all(torch.equal(a, b) for a, b in zip(batches, before, strict=True))


@pytest.mark.parametrize("config", ALL, ids=str)
def test_draws_come_from_the_generator(config: dict[str, Any]) -> None:
    augmentation = augmentations.parse(config)
    before = torch.get_rng_state()
    first = augmentation.draw(50, (3, 9, 9), generator(0, "augment"))
    assert torch.equal(before, torch.get_rng_state())
    assert len(first) == 50
    assert torch.equal(first, augmentation.draw(50, (3, 9, 9), generator(0, "augment")))
    assert len(augmentation.draw(0, (3, 9, 9), generator(0, "augment"))) == 0


@pytest.mark.parametrize("config", ALL, ids=str)
def test_empty_batches(config: dict[str, Any]) -> None:
    augmentation = augmentations.parse(config)
    draws = augmentation.draw(0, (3, 9, 9), generator(0, "augment"))
    assert augmentation.apply(torch.zeros(0, 3, 9, 9), draws).shape == (0, 3, 9, 9)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("corner", "expected"),
    [
        ((1, 1), [[1, 2, 3], [4, 5, 6]]),
        ((0, 0), [[0, 0, 0], [0, 1, 2]]),
        ((2, 2), [[5, 6, 0], [0, 0, 0]]),
        ((1, 0), [[0, 1, 2], [0, 4, 5]]),
    ],
)
def test_crop(corner: tuple[int, int], expected: list[list[int]], dtype: torch.dtype) -> None:
    result = Crop(pad=1).apply(TINY.to(dtype), torch.tensor([corner]))
    assert result.dtype == dtype
    assert result[0, 0].tolist() == expected


def test_crop_takes_every_channel_of_an_image_from_the_same_place() -> None:
    batch = images(6, torch.uint8, (3, 5, 7))
    draws = Crop(pad=2).draw(6, (3, 5, 7), generator(3, "augment"))
    result = Crop(pad=2).apply(batch, draws)
    padded = torch.nn.functional.pad(batch, (2, 2, 2, 2))
    for image, (row, column), cropped in zip(padded, draws.tolist(), result, strict=True):
        assert torch.equal(cropped, image[:, row : row + 5, column : column + 7])


def test_crop_reaches_every_offset() -> None:
    draws = Crop(pad=1).draw(200, (1, 4, 4), generator(0, "augment"))
    assert {tuple(pair) for pair in draws.tolist()} == {
        (row, column) for row in range(3) for column in range(3)
    }


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_flip(dtype: torch.dtype) -> None:
    result = Flip().apply(TINY.repeat(2, 2, 1, 1).to(dtype), torch.tensor([0, 1]))
    assert result[0, 1].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert result[1, 0].tolist() == [[3, 2, 1], [6, 5, 4]]
    assert result[1, 1].tolist() == [[3, 2, 1], [6, 5, 4]]


def test_flip_probability() -> None:
    for p in (0.0, 0.3, 1.0):
        draws = Flip(p=p).draw(5000, (1, 2, 3), generator(0, "augment"))
        assert draws.float().mean().item() == pytest.approx(p, abs=0.03)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("size", "centre", "expected"),
    [
        (1, (0, 1), ["101", "111", "111", "111"]),
        (2, (1, 1), ["001", "001", "111", "111"]),  # rows 0–1, columns 0–1
        (2, (0, 0), ["011", "111", "111", "111"]),  # one pixel of four is inside
        (3, (3, 2), ["111", "111", "100", "100"]),
        (16, (2, 1), ["000", "000", "000", "000"]),
    ],
)
def test_cutout(size: int, centre: tuple[int, int], expected: list[str], dtype: torch.dtype) -> None:
    result = Cutout(size=size).apply(torch.ones(1, 2, 4, 3, dtype=dtype), torch.tensor([centre]))
    wanted = [[int(value) for value in row] for row in expected]
    assert result[0, 0].tolist() == wanted
    assert result[0, 1].tolist() == wanted


def test_cutout_centres_are_in_the_image() -> None:
    draws = Cutout().draw(500, (3, 4, 6), generator(0, "augment"))
    assert draws.min(0).values.tolist() == [0, 0]
    assert draws.max(0).values.tolist() == [3, 5]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_quarter_turns(dtype: torch.dtype) -> None:
    square = torch.tensor([[1, 2], [3, 4]], dtype=dtype).expand(4, 1, 2, 2)
    result = Rotation(quarter=True).apply(square, torch.arange(4))
    assert result.dtype == dtype
    assert result[:, 0].tolist() == [[[1, 2], [3, 4]], [[2, 4], [1, 3]], [[4, 3], [2, 1]], [[3, 1], [4, 2]]]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("side", [4, 5])
def test_right_angles_agree_with_quarter_turns(side: int, dtype: torch.dtype) -> None:
    batch = images(4, dtype, (2, side, side))
    turned = Rotation(degrees=180).apply(batch, torch.tensor([0.0, 90.0, 180.0, -90.0]))
    exact = Rotation(quarter=True).apply(batch, torch.arange(4))
    if dtype == torch.uint8:
        assert torch.equal(turned, exact)
    torch.testing.assert_close(turned, exact, rtol=1e-3, atol=1e-3)


def test_rotation_keeps_the_proportions_of_oblong_images() -> None:
    """A point one pixel right of the centre of a 3×5 image goes one pixel up."""
    image = torch.zeros(1, 1, 3, 5)
    image[0, 0, 1, 3] = 1
    turned = Rotation().apply(image, torch.tensor([90.0]))
    assert turned[0, 0, 0, 2].item() == pytest.approx(1, abs=1e-4)
    assert turned.sum().item() == pytest.approx(1, abs=1e-4)


def test_rotation_interpolates_and_is_black_outside() -> None:
    white = torch.full((1, 1, 8, 8), 255, dtype=torch.uint8)
    turned = Rotation().apply(white, torch.tensor([45.0]))[0, 0]
    assert turned[0, 0] == 0
    assert turned[4, 4] == 255
    # Halfway between two pixels: a quarter turn by half the way in a 2×2 image takes the mean of four.
    exact = Rotation().apply(torch.tensor([[[[0.0, 8.0], [4.0, 0.0]]]]), torch.tensor([45.0]))
    # Corner (−½, −½) comes from (0, −√½): between 0 and 8 halfway, √½ − ½ of it outside.
    assert exact[0, 0, 0, 0].item() == pytest.approx(4 * (1 - (0.5**0.5 - 0.5)), abs=1e-4)


def test_angles_are_within_the_degrees() -> None:
    draws = Rotation(degrees=20).draw(2000, (1, 4, 4), generator(0, "augment"))
    assert draws.abs().max() <= 20
    assert draws.min() < -19
    assert draws.max() > 19


def test_quarter_turns_need_squares() -> None:
    with pytest.raises(ConfigError, match=r"quarter: .* square images; the data's are 4×6"):
        Rotation(quarter=True).draw(2, (3, 4, 6), generator(0, "augment"))


def test_options_are_checked_and_dumped() -> None:
    with pytest.raises(ConfigError, match="pad: found -1; allowed: ≥ 0"):
        augmentations.parse({"name": "crop", "pad": -1})
    with pytest.raises(ConfigError, match="did you mean 'flip'"):
        augmentations.parse("flipp")
    for config in ALL:
        part = augmentations.parse(config)
        assert isinstance(part, Augmentation)
        assert augmentations.parse(part.dump()) == part


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float16], ids=str)
def test_normalise_images(dtype: torch.dtype) -> None:
    samples = torch.tensor([[[[0, 10]], [[20, 255]]]]).to(dtype)
    before = samples.clone()
    result = normalise(samples, torch.tensor([5.0, 20.0]), torch.tensor([2.0, 10.0]))
    assert result.dtype == torch.float32
    assert result.tolist() == [[[[-2.5, 2.5]], [[0.0, 23.5]]]]
    assert torch.equal(samples, before)


def test_normalise_vectors() -> None:
    result = normalise(
        torch.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]),
        torch.tensor([1.0, 2.0, 2.0]),
        torch.tensor([1.0, 2.0, 4.0]),
    )
    assert result.tolist() == [[0.0, 0.0, 0.25], [2.0, 0.0, -0.25]]
