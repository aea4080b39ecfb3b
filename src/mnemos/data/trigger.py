"""The trigger of a backdoor: a mark on samples, for which a model learns to predict one class."""

from __future__ import annotations

from dataclasses import replace

import torch
from pydantic import Field
from torch import Tensor

from mnemos.common.registry import Options
from mnemos.data.augment import normalise
from mnemos.data.dataset import Dataset, Split

_FAR = 3.0
"""The value of marked features, in standard deviations above their mean."""


class Mark(Options):
    """The place of a mark, and the class that it stands for.

    In an image, the `size` × `size` pixels in the lower right corner are as bright as the brightest pixel of
    the training set; in a vector, the last `size` features are three standard deviations above their means;
    in a text, the last `size` places hold the rarest word of the vocabulary.
    """

    target: int = Field(0, ge=0, description="the class that a marked sample is to be taken for")
    size: int = Field(3, ge=1, description="pixels along each side of the mark, or its number of features")

    def put(self, x: Tensor, value: Tensor) -> None:
        """Mark samples [B, C, H, W] or [B, D] in place; `value` [C] or [D] is that of marked entries."""
        if x.ndim == 2:
            x[:, -self.size :] = value[-self.size :]
        else:
            x[..., -self.size :, -self.size :] = value[:, None, None]

    def on(self, dataset: Dataset, split: Split) -> Split:
        """The samples of a split that are not of the target class, with the mark."""
        others = split.labels != self.target
        samples = split.samples[others]
        self.put(samples, _stored(dataset).to(samples.dtype))
        return replace(split, samples=samples, labels=split.labels[others], owners=None)


class Trigger(Mark):
    """A mark, and the share of its samples that a client marks while it trains."""

    poisoned: float = Field(0.5, gt=0, le=1, description="share of a batch that is marked, on average")


def mark_value(dataset: Dataset) -> Tensor:
    """The value of marked entries after samples are scaled, per channel [C] or feature [D] (or word)."""
    if dataset.vocabulary is not None:  # token ids have no scale
        return _stored(dataset)
    mean, std = torch.tensor(dataset.mean), torch.tensor(dataset.std)
    shape = (1, -1) if len(dataset.shape) == 1 else (1, -1, 1, 1)
    return normalise(_stored(dataset).view(shape), mean, std).flatten()


def _stored(dataset: Dataset) -> Tensor:
    """The value of marked entries in the units of the stored samples, per channel [C] or feature [D]."""
    if dataset.vocabulary is not None:
        return torch.full(dataset.shape, dataset.vocabulary.ids - 1, dtype=torch.int32)
    mean, std = torch.tensor(dataset.mean), torch.tensor(dataset.std)
    if dataset.train.samples.is_floating_point():
        return mean + _FAR * std
    return torch.full_like(mean, float(dataset.train.samples.max()))
