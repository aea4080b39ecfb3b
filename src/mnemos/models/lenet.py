"""LeNet-5 with max-pooling and ReLU (LeCun et al., 1998)."""

from __future__ import annotations

from pydantic import Field
from torch import nn

from mnemos.models.model import Classifier, Model, image_shape, models
from mnemos.models.norm import scaled


@models.register("lenet")
class LeNet(Model):
    """Two unpadded 5×5 convolutions of 6 and 16 channels, then 120 and 84 hidden units."""

    width: float = Field(1.0, gt=0)
    """Multiplies the number of channels and hidden units."""

    def build(self, shape: tuple[int, ...], classes: int) -> Classifier:
        """For images of at least 16×16, the smallest that leave a pixel after the second pooling."""
        channels, height, width = image_shape(shape, 16)
        first, second, third, last = (scaled(size, self.width) for size in (6, 16, 120, 84))
        height, width = (((side - 4) // 2 - 4) // 2 for side in (height, width))
        # ReLU after max-pooling: they commute, and it then has a quarter of the elements.
        body = nn.Sequential(
            nn.Conv2d(channels, first, 5),
            nn.MaxPool2d(2),
            nn.ReLU(inplace=True),
            nn.Conv2d(first, second, 5),
            nn.MaxPool2d(2),
            nn.ReLU(inplace=True),
            nn.Flatten(),
            nn.Linear(second * height * width, third),
            nn.ReLU(inplace=True),
            nn.Linear(third, last),
            nn.ReLU(inplace=True),
        )
        return Classifier(body, last, classes)
