"""Multinomial logistic regression."""

from __future__ import annotations

import math
from typing import ClassVar

from torch import nn

from mnemos.models.model import Classifier, Model, models


@models.register("logistic")
class Logistic(Model):
    """One linear layer on flattened samples: a convex problem."""

    convolutions: ClassVar[bool] = False

    def build(self, shape: tuple[int, ...], classes: int) -> Classifier:
        """For samples of any shape."""
        return Classifier(nn.Flatten(), math.prod(shape), classes)
