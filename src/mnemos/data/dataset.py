"""What a source gives: samples, labels, who they naturally belong to, and how to scale them."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from mnemos.errors import DataError
from mnemos.registry import Part, Registry


@dataclass(frozen=True)
class Split:
    """Samples that belong together: uint8 images [N, C, H, W] (or float32 features [N, D]) and labels."""

    samples: Tensor
    labels: Tensor
    owners: Tensor | None = None
    """Index of each sample's natural owner (a writer, a hospital), where the data set has them."""

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Dataset:
    """A data set held once in memory; clients are lists of indices into `train`."""

    name: str
    train: Split
    test: Split
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    """Per channel (images) or feature (vectors), in the units of the stored samples."""
    std: tuple[float, ...]
    owners: tuple[str, ...] = ()
    """Names of the natural owners, in the order of their indices."""
    remote: bool = False
    """Whether samples and labels are with their owners: what is here has their shape alone."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return tuple(self.train.samples.shape[1:])


class Source(Part):
    """Where samples come from."""

    @abstractmethod
    def load(self) -> Dataset:
        """Read the data set, or raise a `DataError` that says what to put where."""


sources: Registry[Source] = Registry("data source", Source, "mnemos.data.sources")


def check(dataset: Dataset) -> Dataset:
    """The data set itself, if its labels and values make sense."""
    count = len(dataset.classes)
    for part, split in (("training", dataset.train), ("test", dataset.test)):
        if len(split.samples) != len(split.labels):
            raise DataError(
                f"{dataset.name}: the {part} part has {len(split.samples)} samples "
                f"and {len(split.labels)} labels"
            )
        if len(split) and not (int(split.labels.min()) >= 0 and int(split.labels.max()) < count):
            raise DataError(f"{dataset.name}: the {part} part has labels outside 0 to {count - 1}")
        if split.samples.is_floating_point() and not bool(torch.isfinite(split.samples).all()):
            raise DataError(f"{dataset.name}: the {part} part has values that are not finite")
    if not len(dataset.train):
        raise DataError(f"{dataset.name}: there are no training samples")
    return dataset
