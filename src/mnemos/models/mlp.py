"""Fully connected layers on flattened samples."""

from __future__ import annotations

import math
from typing import ClassVar

from pydantic import Field, PositiveInt
from torch import nn

from mnemos.models.model import Classifier, Model, models
from mnemos.models.norm import VectorNorm, make_vector_norm


@models.register("mlp")
class MLP(Model):
    """Hidden layers of ReLU units."""

    convolutions: ClassVar[bool] = False

    hidden: tuple[PositiveInt, ...] = (200,)
    """Units of each hidden layer."""
    norm: VectorNorm = "none"
    """The normalisation after each hidden layer."""
    groups: int = Field(2, ge=1)
    """Groups of units, with group norm."""

    def build(self, shape: tuple[int, ...], classes: int) -> Classifier:
        """For samples of any shape."""
        size = math.prod(shape)
        layers: list[nn.Module] = [nn.Flatten()]
        for units in self.hidden:
            norm = make_vector_norm(self.norm, units, self.groups)
            layers += [nn.Linear(size, units), norm, nn.ReLU(inplace=True)]
            size = units
        return Classifier(nn.Sequential(*layers), size, classes)
