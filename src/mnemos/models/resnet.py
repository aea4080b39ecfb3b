"""ResNet-10, -18 and -34 for small images (He et al., 2016): 3×3 stem, no max-pooling."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from mnemos.errors import ConfigError
from mnemos.models.model import Classifier, Model, image_shape, models
from mnemos.models.norm import Norm, make_norm, scaled


class ResNet(Model):
    """Basic blocks in four stages of 64, 128, 256 and 512 channels, then global average pooling."""

    depths: ClassVar[tuple[int, int, int, int]]

    width: float = Field(1.0, gt=0)
    """Multiplies the number of channels; with group norm, to the nearest multiple of `groups`."""
    norm: Literal["batch", "group", "layer", "instance", "none", "mixed"] = "batch"
    """`mixed` (Legate, 2022, appendix B): batch norm in the stem and first in a block, group norm second
    and on the shortcut. (The batch norms printed there with fewer channels than the convolution before
    them can't run; here each has its convolution's.)"""
    groups: int = Field(2, ge=1)
    """Groups of channels, with group norm."""
    conv_bias: bool = False
    """A bias in convolutions although a norm follows, as in Legate's code."""

    def build(self, shape: tuple[int, ...], classes: int) -> Classifier:
        """For images of at least 8×8, which the last stage sees at an eighth of the side."""
        channels, height, width = image_shape(shape, 8)
        if self.norm == "instance" and math.ceil(height / 8) * math.ceil(width / 8) == 1:
            raise ConfigError(
                "found 'instance'; on 8×8 images the last stage has one pixel, normalised to a constant",
                "norm",
            )
        multiple = self.groups if self.norm in ("group", "mixed") else 1
        widths = [scaled(base, self.width, multiple) for base in (64, 128, 256, 512)]
        layers: list[nn.Module] = [*self._conv(channels, widths[0], 3, 1, self._first), nn.ReLU(inplace=True)]
        before = widths[0]
        for stage, (depth, after) in enumerate(zip(self.depths, widths, strict=True)):
            for index in range(depth):
                layers.append(self._block(before, after, stride=2 if stage and not index else 1))
                before = after
        return Classifier(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), before, classes)

    @property
    def _first(self) -> Norm:
        """The norm of the stem, and the first in a block."""
        return "batch" if self.norm == "mixed" else self.norm

    @property
    def _second(self) -> Norm:
        """The second norm in a block, and the shortcut's."""
        return "group" if self.norm == "mixed" else self.norm

    def _conv(self, before: int, after: int, size: int, stride: int, norm: Norm) -> list[nn.Module]:
        bias = self.conv_bias or norm == "none"
        conv = nn.Conv2d(before, after, size, stride, padding=size // 2, bias=bias)
        return [conv, make_norm(norm, after, self.groups)]

    def _block(self, before: int, after: int, stride: int) -> BasicBlock:
        residual = nn.Sequential(
            *self._conv(before, after, 3, stride, self._first),
            nn.ReLU(inplace=True),
            *self._conv(after, after, 3, 1, self._second),
        )
        if stride == 1 and before == after:
            return BasicBlock(residual, nn.Identity())
        return BasicBlock(residual, nn.Sequential(*self._conv(before, after, 1, stride, self._second)))


class BasicBlock(nn.Module):
    """Two convolutions with a shortcut around them."""

    def __init__(self, residual: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.residual = residual
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        """relu(residual(x) + shortcut(x))."""
        total: Tensor = self.residual(x) + self.shortcut(x)
        return total.relu_()


@models.register("resnet10")
class ResNet10(ResNet):
    """One basic block per stage."""

    depths = (1, 1, 1, 1)


@models.register("resnet18")
class ResNet18(ResNet):
    """Two basic blocks per stage."""

    depths = (2, 2, 2, 2)


@models.register("resnet34")
class ResNet34(ResNet):
    """Three, four, six and three basic blocks."""

    depths = (3, 4, 6, 3)
