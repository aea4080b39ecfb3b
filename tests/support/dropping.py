"""A model with dropout, of units and of whole channels."""

import math

from torch import Tensor, nn


class Dropping(nn.Module):
    """A convolution and two layers, with dropout after the first two of them."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        channels, *sides = shape
        self.convolution = nn.Conv2d(channels, 4, 3, padding=1)
        self.channels = nn.Dropout2d(0.25)
        self.hidden = nn.Linear(4 * math.prod(sides), 16)
        self.units = nn.Dropout(0.5)
        self.output = nn.Linear(16, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of images."""
        x = self.channels(self.convolution(x).relu()).flatten(1)
        return self.output(self.units(self.hidden(x).relu()))
