"""Data that stays with its owners, as the server of a real federation knows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field

from mnemos.common.registry import Options
from mnemos.data.dataset import Dataset, Source, Split, sources
from mnemos.data.owned import Agreement, Kind, Run, Size
from mnemos.data.sources.owners import Owners, ReadingOptions
from mnemos.errors import DataError


class Owner(Options):
    """An owner of data, and the number of its samples."""

    owner: str = Field(min_length=1, description="its name")
    train: int = Field(ge=1, description="samples for training and validation")
    test: int = Field(0, ge=0, description="samples for testing")
    tasks: tuple[Run, ...] = Field(
        (), description="which tasks they are of, each by one of its classes, in runs; empty: not said"
    )
    counts: tuple[Run, ...] = Field(
        (), description="how many of `train` are of each class, in the classes' order; empty: not said"
    )


@sources.register("elsewhere")
class Elsewhere(Source):
    """Names and numbers without any samples; 'mnemos federate serve' writes it when owners have joined."""

    stays_with_owners: ClassVar[bool] = True

    shape: tuple[Size, ...] = Field(min_length=1, max_length=3)
    """Shape of a sample."""
    kind: Kind
    """Whether samples are images or features."""
    classes: tuple[str, ...] = Field(min_length=1)
    """Names of the classes."""
    mean: tuple[float, ...]
    """Mean of each channel, which is subtracted."""
    std: tuple[float, ...]
    """Standard deviation of each channel, which samples are divided by."""
    reading: ReadingOptions = ReadingOptions()
    """How owners read their data."""
    owners: tuple[Owner, ...] = ()
    """The owners that have joined."""

    @property
    def agreement(self) -> Agreement:
        """The classes and the scale that all owners use."""
        return Agreement(self.classes, self.mean, self.std)

    @property
    def asked(self) -> Owners:
        """The data source of the experiment before owners had joined."""
        return Owners(**{name: getattr(self.reading, name) for name in ReadingOptions.model_fields})

    @property
    def texts(self) -> bool:
        """Whether owners have texts."""
        return self.reading.text is not None

    def load(self) -> Dataset:
        """A data set of the right size and shape whose samples are all 0."""
        if not self.owners:
            raise DataError("data.owners is empty: no owner has joined")
        labels = [_labels(owner) for owner in self.owners]
        return Dataset(
            "elsewhere",
            self._split([owner.train for owner in self.owners], torch.cat(labels)),
            self._split([owner.test for owner in self.owners]),
            self.classes,
            self.mean,
            self.std,
            tuple(owner.owner for owner in self.owners),
            remote=True,
            vocabulary=None if self.reading.text is None else self.reading.text.vocabulary,
        )

    def _split(self, sizes: list[int], labels: torch.Tensor | None = None) -> Split:
        total = sum(sizes)
        nothing = torch.zeros(1, dtype=getattr(torch, self.kind)).expand(total, *self.shape)
        owners = torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes))
        return Split(nothing, torch.zeros(total, dtype=torch.int64) if labels is None else labels, owners)


def with_counted_labels(dataset: Dataset, owners: Sequence[Owner]) -> Dataset:
    """The data set that `Elsewhere.load` returns, with the classes of training samples as owners count them.

    Owners number their samples by class, so these are the labels that their samples have. A DataError if an
    owner hasn't agreed to share its counts.
    """
    silent = [owner.owner for owner in owners if not owner.counts]
    if silent:
        raise DataError(
            f"data: {', '.join(silent[:5])}{' and others' if len(silent) > 5 else ''} "
            f"({len(silent)} of {len(owners)} owners) have not agreed to share how many samples they have of "
            "each class (mnemos federate join --share-counts)"
        )
    labels = [_repeated(owner, owner.counts, "counts") for owner in owners]
    return replace(dataset, train=replace(dataset.train, labels=torch.cat(labels)))


def _labels(owner: Owner) -> torch.Tensor:
    """A label for each sample: one class of its task, or 0 if its task isn't known."""
    if not owner.tasks:
        return torch.zeros(owner.train, dtype=torch.int64)
    return _repeated(owner, owner.tasks, "tasks")


def _repeated(owner: Owner, runs: tuple[Run, ...], what: str) -> torch.Tensor:
    """The label of each run, as often as it says."""
    labels, counts = zip(*runs, strict=True)
    if sum(counts) != owner.train:
        raise DataError(f"{owner.owner} has {owner.train} training samples, and says {what} of {sum(counts)}")
    return torch.tensor(np.repeat(labels, counts), dtype=torch.int64)
