"""Random changes to batches of images, and the scaling that follows them.

Drawing random numbers and applying them are separate: a client draws from its own generator, and the batches
of many clients can be changed in one call with the same result as one by one. Images are changed before they
are normalised, as in the papers' code: pixels from outside the image are 0, so black.
"""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from mnemos.common.registry import Part, Registry
from mnemos.errors import ConfigError


class Augmentation(Part):
    """One random change of images."""

    @abstractmethod
    def draw(self, count: int, shape: tuple[int, int, int], generator: torch.Generator) -> Tensor:
        """The random numbers [count, …] for `count` images of a shape (channels, height, width)."""

    @abstractmethod
    def apply(self, images: Tensor, draws: Tensor) -> Tensor:
        """Changed copies of images [B, C, H, W], of the same type (uint8 or float)."""


augmentations: Registry[Augmentation] = Registry("augmentation", Augmentation, "mnemos.data.augment")


@augmentations.register("crop")
class Crop(Augmentation):
    """Pads an image with black on all sides and cuts out the original size at a random position."""

    pad: int = Field(4, ge=0)
    """Pixels of padding on each side."""

    def draw(self, count: int, shape: tuple[int, int, int], generator: torch.Generator) -> Tensor:
        """Row and column of the upper left corner in the padded image."""
        return torch.randint(2 * self.pad + 1, (count, 2), generator=generator)

    def apply(self, images: Tensor, draws: Tensor) -> Tensor:
        """Copy each row of the result as one piece of the padded images' memory."""
        count, channels, height, width = images.shape
        if not count:
            return images.clone()
        padded = F.pad(images, (self.pad,) * 4)
        plane = torch.arange(count * channels, device=images.device).view(count, channels, 1)
        row = draws[:, 0, None, None] + torch.arange(height, device=images.device)
        start = (plane * padded.shape[2] + row) * padded.shape[3] + draws[:, 1, None, None]
        pieces = padded.flatten().unfold(0, width, 1)
        return pieces.index_select(0, start.flatten()).view(images.shape)


@augmentations.register("flip")
class Flip(Augmentation):
    """Swaps left and right with probability p."""

    p: float = Field(0.5, ge=0, le=1)
    """Probability that an image is mirrored."""

    def draw(self, count: int, shape: tuple[int, int, int], generator: torch.Generator) -> Tensor:
        """1 for an image that is swapped, 0 for one that isn't."""
        return (torch.rand(count, generator=generator) < self.p).long()

    def apply(self, images: Tensor, draws: Tensor) -> Tensor:
        """Gather the columns in one order or the other."""
        width = images.shape[3]
        column = torch.arange(width, device=images.device)
        column = torch.where(draws[:, None] == 1, width - 1 - column, column)
        return images.gather(3, column[:, None, None, :].expand(images.shape))


@augmentations.register("cutout")
class Cutout(Augmentation):
    """Blackens a square around a random pixel, as far as it lies in the image (DeVries and Taylor, 2017)."""

    size: int = Field(16, ge=1)
    """Side of the square in pixels."""

    def draw(self, count: int, shape: tuple[int, int, int], generator: torch.Generator) -> Tensor:
        """Row and column of the centre."""
        _, height, width = shape
        rows = torch.randint(height, (count,), generator=generator)
        columns = torch.randint(width, (count,), generator=generator)
        return torch.stack([rows, columns], 1)

    def apply(self, images: Tensor, draws: Tensor) -> Tensor:
        """Fill the square with zeros."""
        rows, columns = (
            self._inside(draws[:, axis, None], torch.arange(images.shape[2 + axis], device=images.device))
            for axis in (0, 1)
        )
        return images.masked_fill((rows[:, :, None] & columns[:, None, :])[:, None], 0)

    def _inside(self, centre: Tensor, position: Tensor) -> Tensor:
        first = centre - self.size // 2
        return (position >= first) & (position < first + self.size)


@augmentations.register("rotation")
class Rotation(Augmentation):
    """Turns an image counter-clockwise around its centre, by up to ±degrees or by quarter turns."""

    degrees: float = Field(15.0, ge=0, le=180)
    """Largest angle of a turn."""
    quarter: bool = False
    """Turn by 0, 90, 180 or 270 degrees instead, which moves pixels without changing them."""

    def draw(self, count: int, shape: tuple[int, int, int], generator: torch.Generator) -> Tensor:
        """Angles in degrees, or numbers of quarter turns."""
        if not self.quarter:
            return (torch.rand(count, generator=generator) * 2 - 1) * self.degrees
        _, height, width = shape
        if height != width:
            raise ConfigError(
                f"a quarter turn takes square images; the data's are {height}×{width}", "quarter"
            )
        return torch.randint(4, (count,), generator=generator)

    def apply(self, images: Tensor, draws: Tensor) -> Tensor:
        """Move pixels (quarter turns), or interpolate between four of them, with black outside."""
        return self._quarters(images, draws) if self.quarter else self._angles(images, draws)

    @staticmethod
    def _quarters(images: Tensor, turns: Tensor) -> Tensor:
        turned, turns = images, turns.view(-1, 1, 1, 1)
        for quarters in (1, 2, 3):
            # Of all images: which of them are turned isn't known without waiting for a GPU.
            turned = torch.where(turns == quarters, images.rot90(quarters, (2, 3)), turned)
        return turned.contiguous()

    @staticmethod
    def _angles(images: Tensor, degrees: Tensor) -> Tensor:
        exact = images if images.is_floating_point() else images.float()
        turned = F.grid_sample(exact, _turned_grid(exact, degrees), align_corners=False)
        return turned if images.is_floating_point() else turned.round_().to(images.dtype)


def _turned_grid(images: Tensor, degrees: Tensor) -> Tensor:
    """Where each pixel of a turned image comes from, in `grid_sample`'s coordinates from −1 to 1."""
    height, width = images.shape[2:]
    angle = degrees.to(images.dtype) * (math.pi / 180)
    cos, sin = angle.cos()[:, None, None], angle.sin()[:, None, None]
    y = (torch.arange(height, device=images.device, dtype=images.dtype) - (height - 1) / 2)[:, None]
    x = torch.arange(width, device=images.device, dtype=images.dtype) - (width - 1) / 2
    return torch.stack([(cos * x - sin * y) * (2 / width), (sin * x + cos * y) * (2 / height)], 3)


def to_channels_last(images: Tensor) -> Tensor:
    """Images [B, C, H, W] with all channels of a pixel side by side in memory.

    Through a flat view, because with one channel PyTorch can't tell the two orders apart, and a convolution
    would then use the wrong strides.
    """
    count, channels, height, width = images.shape
    rows = images.permute(0, 2, 3, 1).flatten(1)
    return rows.view(count, height, width, channels).permute(0, 3, 1, 2)


def normalise(samples: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """(x − mean) / std as float32, per channel of images [B, C, H, W] or feature of vectors [B, D].

    Token ids have no scale (`mean` is empty), and are returned as they are.
    """
    if not len(mean):
        return samples
    sizes = (-1,) + (1,) * (samples.dim() - 2)
    # The subtraction makes a float tensor of its own, so the division can be done in place.
    return torch.sub(samples, mean.view(sizes)).div_(std.view(sizes)).float()
