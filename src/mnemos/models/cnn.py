"""A small convolutional network for quick experiments."""

from __future__ import annotations

from pydantic import Field
from torch import nn

from mnemos.models.model import Classifier, Model, image_shape, models
from mnemos.models.norm import Norm, make_norm, scaled


@models.register("cnn")
class CNN(Model):
    """Two 3×3 convolutions of 32 and 64 channels, each pooled, then 128 hidden units."""

    width: float = Field(1.0, gt=0)
    """Multiplies the number of channels and hidden units; with group norm, to multiples of `groups`."""
    norm: Norm = "none"
    """The normalisation after each convolution."""
    groups: int = Field(2, ge=1)
    """Groups of channels, with group norm."""

    def build(self, shape: tuple[int, ...], classes: int) -> Classifier:
        """For images of at least 8×8."""
        channels, height, width = image_shape(shape, 8)
        multiple = self.groups if self.norm == "group" else 1
        first, second = (scaled(size, self.width, multiple) for size in (32, 64))
        hidden = scaled(128, self.width)
        body = nn.Sequential(
            *self._block(channels, first),
            *self._block(first, second),
            nn.Flatten(),
            nn.Linear(second * (height // 4) * (width // 4), hidden),
            nn.ReLU(inplace=True),
        )
        return Classifier(body, hidden, classes)

    def _block(self, before: int, after: int) -> list[nn.Module]:
        # ReLU after max-pooling: they commute, and it then has a quarter of the elements.
        return [
            nn.Conv2d(before, after, 3, padding=1, bias=self.norm == "none"),
            make_norm(self.norm, after, self.groups),
            nn.MaxPool2d(2),
            nn.ReLU(inplace=True),
        ]
