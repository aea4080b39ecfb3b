"""Data sets and their sources: samples, labels, natural owners, and the scale of the samples."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from mnemos.common.devices import free_memory
from mnemos.common.registry import Part, Registry
from mnemos.common.shapes import TokenShape
from mnemos.data.vocabulary import Vocabulary
from mnemos.errors import DataError


@dataclass(frozen=True)
class Split:
    """Samples that belong together, with their labels.

    Samples are uint8 or float32 images [N, C, H, W], float32 features [N, D], or texts: int32 token ids
    [N, length].
    """

    samples: Tensor
    labels: Tensor
    owners: Tensor | None = None
    """Index of each sample's natural owner (a writer, a hospital), where the data set has them."""

    _copies: WeakValueDictionary[torch.device, Split] = field(
        default_factory=WeakValueDictionary, init=False, repr=False, compare=False
    )

    def __len__(self) -> int:
        return len(self.labels)

    def on(self, device: torch.device) -> Split:
        """The same samples on a device, sent there once; labels always, samples unless they are too large.

        They leave the device when the last reference to the result is gone. Samples that would take more than
        half of what is free on the device stay where they are, and are sent client by client.
        """
        if self.labels.device == device:
            return self
        there = self._copies.get(device)
        if there is None:
            free = free_memory(device)
            fits = free is None or 2 * self.samples.numel() * self.samples.element_size() <= free
            # Copies from pinned memory don't hold up the program.
            host = self.samples.pin_memory() if device.type == "cuda" and not fits else self.samples
            samples = self.samples.to(device) if fits else host
            there = replace(self, samples=samples, labels=self.labels.to(device), owners=None)
            self._copies[device] = there
        return there


@dataclass(frozen=True)
class Dataset:
    """A data set held once in memory; clients are lists of indices into `train`."""

    name: str
    train: Split
    test: Split
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    """Per channel (images) or feature (vectors), in the units of the stored samples; empty for texts."""
    std: tuple[float, ...]
    owners: tuple[str, ...] = ()
    """Names of the natural owners, in the order of their indices."""
    remote: bool = False
    """Whether samples and labels stay with their owners; the tensors here only have their shapes."""
    vocabulary: Vocabulary | None = None
    """The words that token ids stand for, if samples are texts."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample; a `TokenShape` if samples are texts."""
        shape = tuple(self.train.samples.shape[1:])
        return shape if self.vocabulary is None else TokenShape(shape, self.vocabulary.ids)


class Source(Part):
    """The choice of a data set."""

    stays_with_owners: ClassVar[bool] = False
    """Whether a federation's server never sees samples and labels."""

    @property
    def texts(self) -> bool:
        """Whether its samples are texts, as far as its options say."""
        return False

    @property
    def title(self) -> str:
        """What run folders and reports call the data: the file or folder it is in, or the source's name."""
        path = getattr(self, "path", None)
        own = Path(path).stem if isinstance(path, str) else ""
        return own or type(self).name

    @abstractmethod
    def load(self) -> Dataset:
        """The data set, or a `DataError` that says which files are expected where."""

    @classmethod
    def is_there(cls) -> bool | None:
        """Whether its files are in the data folder, by their names; None if it has none there."""
        return None


sources: Registry[Source] = Registry("data source", Source, "mnemos.data.sources", "data")


def check(dataset: Dataset) -> Dataset:
    """The data set itself; raises a `DataError` for impossible labels or values."""
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
        ids = None if dataset.vocabulary is None else dataset.vocabulary.ids
        if (
            ids is not None
            and len(split)
            and not 0 <= int(split.samples.min()) <= int(split.samples.max()) < ids
        ):
            raise DataError(f"{dataset.name}: the {part} part has token ids outside 0 to {ids - 1}")
    if not len(dataset.train):
        raise DataError(f"{dataset.name}: there are no training samples")
    return dataset
