"""The models of the benchmark in plain PyTorch; their parameters are in the order of Mnemos's own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn


def build(options: dict[str, Any], shape: Sequence[int], classes: int) -> nn.Module:
    """The model that a work names, for samples of a shape."""
    name = options["name"]
    if name == "mlp":
        return mlp(math.prod(shape), options["hidden"], classes)
    if name == "lenet":
        return lenet(shape[0], classes)
    if name == "resnet18":
        return resnet(shape[0], classes, depth=2)
    if name == "resnet10":
        return resnet(shape[0], classes, depth=1)
    raise ValueError(f"there is no model {name!r} here")


def mlp(size: int, hidden: Sequence[int], classes: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Flatten()]
    for units in hidden:
        layers += [nn.Linear(size, units), nn.ReLU(inplace=True)]
        size = units
    return nn.Sequential(*layers, nn.Linear(size, classes))


def lenet(channels: int, classes: int) -> nn.Module:
    """For images of 32×32."""
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5),
        nn.MaxPool2d(2),
        nn.ReLU(inplace=True),
        nn.Conv2d(6, 16, 5),
        nn.MaxPool2d(2),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(inplace=True),
        nn.Linear(120, 84),
        nn.ReLU(inplace=True),
        nn.Linear(84, classes),
    )


def resnet(channels: int, classes: int, depth: int) -> nn.Module:
    """With a 3×3 stem for small images, and `depth` blocks in each of four stages."""
    layers: list[nn.Module] = [*convolution(channels, 64, 3, 1), nn.ReLU(inplace=True)]
    before = 64
    for stage, after in enumerate((64, 128, 256, 512)):
        for index in range(depth):
            layers.append(Block(before, after, 2 if stage and not index else 1))
            before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


def convolution(before: int, after: int, size: int, stride: int) -> list[nn.Module]:
    conv = nn.Conv2d(before, after, size, stride, padding=size // 2, bias=False)
    return [conv, nn.BatchNorm2d(after)]


class Block(nn.Module):
    """Two convolutions with a shortcut around them."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            *convolution(before, after, 3, stride), nn.ReLU(inplace=True), *convolution(after, after, 3, 1)
        )
        same = stride == 1 and before == after
        self.shortcut = nn.Identity() if same else nn.Sequential(*convolution(before, after, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = self.residual(x) + self.shortcut(x)
        return total.relu_()
