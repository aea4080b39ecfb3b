"""Fractals as a data set: any number of classes and images, of any size, with exact labels."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from pydantic import Field, field_validator

from mnemos.common.cores import cores
from mnemos.data.dataset import Dataset, Source, Split, sources
from mnemos.data.fractals import HELD_OUT, Fractals, Ground
from mnemos.data.fractals.systems import check_transforms
from mnemos.data.sources._arrays import finish


@sources.register("fractals")
class FractalSource(Source):
    """Images of iterated function systems, one system per class, computed when the data set is loaded."""

    classes: int = Field(10, ge=2)
    """Number of classes, each an iterated function system."""
    train: int = Field(200, ge=1, description="training images a class")
    test: int = Field(50, ge=0, description="test images a class")
    size: int = Field(32, ge=8, le=1024, description="pixels a side")
    channels: Literal[1, 3] = Field(3, description="3: colours, 1: their luminance")
    transforms: tuple[int, int] = Field((2, 4), description="the fewest and the most maps of a system")
    background: Ground = Field("clouds", description="what is behind the fractals")
    seed: int = Field(0, ge=0, lt=2**63, description="of systems and images; runs have seeds of their own")

    @field_validator("transforms")
    @classmethod
    def _in_order(cls, value: tuple[int, int]) -> tuple[int, int]:
        return check_transforms(value)

    def load(self) -> Dataset:
        """Compute all images."""
        fractals = Fractals(
            self.classes, self.size, self.seed, self.transforms, self.channels, self.background
        )
        names = [f"system {label}" for label in range(self.classes)]
        train, test = _split(fractals, self.train, 0), _split(fractals, self.test, HELD_OUT)
        return finish("fractals", train, test, names)


def _split(fractals: Fractals, each: int, first: int) -> Split:
    """`each` images of every class, class by class, from index `first` on."""
    labels = np.repeat(np.arange(fractals.classes), each)
    indices = first + np.tile(np.arange(each), fractals.classes)
    images = fractals.images(labels, indices, workers=cores())
    return Split(torch.from_numpy(images), torch.from_numpy(labels))
