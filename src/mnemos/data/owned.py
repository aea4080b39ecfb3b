"""Data of several owners: what each owner describes, and the classes and scale that all of them use.

In a simulation one process reads the data of all owners; in a real federation each owner reads its own, and
the server only knows the descriptions. These functions give both the same classes and the same scale.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field, model_validator

from mnemos.common.registry import Options
from mnemos.data.dataset import Dataset, Split
from mnemos.data.partition import Ints
from mnemos.data.sources._scale import deviation, moments
from mnemos.errors import ConfigError, DataError

Size = Annotated[int, Field(ge=1, le=1_000_000)]
_MOST_SAMPLES, _MOST_NUMBERS = 10_000_000, 100_000_000
"""The most samples of an owner, and numbers of a sample: the server allocates tables of this size."""
Kind = Literal["uint8", "float32", "int32"]
"""The number type of samples; int32 are token ids, which have no mean and variance."""
Run = tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=1)]]
"""A run of consecutive samples with the same label: (label, number of samples)."""


class Described(Options):
    """An owner's description of its data, validated: impossible values are refused."""

    shape: tuple[Size, ...] = Field(min_length=1, max_length=3)
    kind: Kind
    classes: tuple[Annotated[str, Field(max_length=200)], ...] = Field(
        min_length=1, max_length=100_000, description="names of those that it holds"
    )
    train: int = Field(ge=1, le=_MOST_SAMPLES, description="samples for training and validation")
    test: int = Field(ge=0, le=_MOST_SAMPLES)
    # In single precision no number is beyond these.
    mean: tuple[Annotated[float, Field(ge=-1e39, le=1e39)], ...] = Field(
        description="of its training samples, for each channel or feature"
    )
    variance: tuple[Annotated[float, Field(ge=0, le=1e78)], ...]
    counts: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (), description="training samples of each of `classes`, if the owner has agreed to that; else empty"
    )

    @model_validator(mode="after")
    def _possible(self) -> Described:
        if math.prod(self.shape) > _MOST_NUMBERS:
            raise ValueError(
                f"found samples of shape {list(self.shape)}; allowed: up to {_MOST_NUMBERS} numbers"
            )
        if not all(name.isprintable() for name in self.classes):
            raise ValueError("found a class whose name can't be printed")
        if self.counts and (len(self.counts) != len(self.classes) or sum(self.counts) != self.train):
            raise ValueError("found counts that aren't those of its classes and training samples")
        # Bytes have a mean of at most 255 and a standard deviation of at most 127.5.
        if self.kind == "uint8" and not (
            all(0 <= mean <= 255 for mean in self.mean)
            and all(variance <= 127.5**2 * (1 + 1e-6) for variance in self.variance)
        ):
            raise ValueError("found a mean or variance that bytes can't have")
        return self


@dataclass(frozen=True)
class Agreement:
    """The classes and the scale that all owners use."""

    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]


def describe(dataset: Dataset, *, counts: bool = False) -> Described:
    """The description of an owner's data set; with `counts`, also how many samples of each class it has."""
    samples = dataset.train.samples
    mean, variance = (np.zeros(0),) * 2 if dataset.vocabulary is not None else moments(samples)
    held = sorted(_held(dataset))
    labels = Counter(dataset.classes[label] for label in dataset.train.labels.tolist()) if counts else {}
    values = {
        "shape": dataset.shape,
        "kind": str(samples.dtype).removeprefix("torch."),
        "classes": tuple(held),
        "train": len(dataset.train),
        "test": len(dataset.test),
        "mean": tuple(mean.tolist()),
        "variance": tuple(variance.tolist()),
        "counts": tuple(labels[name] for name in held) if counts else (),
    }
    try:
        return Described.parse(values)
    except ConfigError as error:
        raise DataError(f"{dataset.name} can't be one owner's: {error}") from None


def agree(owners: Mapping[str, Described], classes: tuple[str, ...] | None = None) -> Agreement:
    """The classes and scale of all owners' data; by default, the classes are those that any owner holds.

    With n_k samples, mean m_k and variance v_k of owner k: m = Σ n_k m_k / n and
    v = Σ n_k (v_k + (m_k − m)²) / n.
    """
    (first, pattern), *_ = owners.items()
    for name, owner in owners.items():
        if (owner.shape, owner.kind) != (pattern.shape, pattern.kind):
            raise DataError(
                f"{name} has samples of shape {list(owner.shape)} ({owner.kind}), and {first} of shape "
                f"{list(pattern.shape)} ({pattern.kind}); all need the same"
            )
        channels = 0 if pattern.kind == "int32" else pattern.shape[0]
        if len(owner.mean) != channels or len(owner.variance) != channels:
            raise DataError(f"{name} has a mean of {len(owner.mean)} numbers; {channels} are expected")
        unknown = set(owner.classes) - set(owner.classes if classes is None else classes)
        if unknown:
            raise DataError(f"{name} holds the class '{min(unknown)}', which is none of data.classes")
    if classes is None:
        classes = _ordered({name for owner in owners.values() for name in owner.classes})
    counts = np.array([owner.train for owner in owners.values()], np.float64)[:, None]
    means = np.array([owner.mean for owner in owners.values()])
    variances = np.array([owner.variance for owner in owners.values()])
    mean = (counts * means).sum(0) / counts.sum()
    variance = (counts * (variances + (means - mean) ** 2)).sum(0) / counts.sum()
    return Agreement(classes, tuple(mean.tolist()), deviation(variance))


def arranged(dataset: Dataset, agreement: Agreement) -> Dataset:
    """An owner's data with labels by the common classes, samples sorted by class, and the common scale.

    Sorted by class, so that the order of samples reveals no more than the number of samples of each class.
    """
    index = {name: label for label, name in enumerate(agreement.classes)}
    if unknown := _held(dataset) - index.keys():
        raise DataError(f"{dataset.name} holds the class '{min(unknown)}', which is none of data.classes")
    labels = torch.tensor([index.get(name, -1) for name in dataset.classes])
    train, test = (_by_class(split, labels) for split in (dataset.train, dataset.test))
    return replace(
        dataset, train=train, test=test, classes=agreement.classes, mean=agreement.mean, std=agreement.std
    )


def _by_class(split: Split, common: torch.Tensor) -> Split:
    """The samples sorted by their labels in the common numbering [classes of the owner]."""
    labels = common[split.labels]
    order = torch.argsort(labels, stable=True)
    return Split(split.samples[order], labels[order])


def _held(dataset: Dataset) -> set[str]:
    """The names of the classes that have samples."""
    labels = np.union1d(dataset.train.labels.numpy(), dataset.test.labels.numpy())
    return {dataset.classes[label] for label in labels.tolist()}


def runs(labels: Ints) -> tuple[Run, ...]:
    """Labels as runs of equal labels."""
    return tuple((label, sum(1 for _ in equal)) for label, equal in groupby(labels.tolist()))


def _ordered(names: set[str]) -> tuple[str, ...]:
    """Sorted names; by value if all are numbers, so that class 10 comes after class 9."""
    numbers = all(name.isdecimal() for name in names)
    return tuple(sorted(names, key=lambda name: (int(name) if numbers else 0, name)))
