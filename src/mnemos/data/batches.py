"""A client's batches: which samples in which order, augmented and scaled.

Everything random about a round is drawn here, from generators of the client's own, before any arithmetic:
so one client at a time and a hundred at once see the same batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from mnemos import rng
from mnemos.data.augment import Augmentation, normalise
from mnemos.data.dataset import Dataset


@dataclass(frozen=True)
class Draw:
    """One batch before it is loaded: its samples and everything random about it."""

    indices: Tensor
    augment: tuple[Tensor, ...] = ()
    noise: Tensor | None = None

    def __len__(self) -> int:
        return len(self.indices)


@dataclass(frozen=True)
class Ration:
    """How much of which samples a client trains on in a round."""

    samples: Tensor
    batch: int
    epochs: int
    steps: int | None
    noise: float
    drop_single: bool
    """Leave out a last batch of one sample, in which batch-norm has no variance to measure."""

    @cached_property
    def epoch(self) -> list[int]:
        """The sizes of the batches of one pass over the samples."""
        full, rest = divmod(len(self.samples), self.batch)
        single = rest == 1 and self.drop_single and full > 0
        return [self.batch] * full + ([rest] if rest and not single else [])

    @cached_property
    def total(self) -> int:
        """Steps in the round."""
        return self.epochs * len(self.epoch) if self.steps is None else self.steps


def draws(
    ration: Ration, augment: Sequence[Augmentation], shape: tuple[int, ...], key: tuple[int, int, int]
) -> Iterator[Draw]:
    """The batches of one round; `key` is (seed, round, client)."""
    seed, *where = key
    batches = _shuffled(ration, rng.generator(seed, "batches", *where))
    if not augment and not ration.noise:
        yield from map(Draw, batches)
        return
    jitter = rng.generator(seed, "augment", *where)
    static = rng.generator(seed, "noise", *where)
    for indices in batches:
        count = len(indices)
        yield Draw(
            indices,
            tuple(part.draw(count, _image(shape), jitter) for part in augment),
            torch.randn(count, *shape, generator=static) * ration.noise if ration.noise else None,
        )


def _shuffled(ration: Ration, generator: torch.Generator) -> Sequence[Tensor]:
    """The samples of each batch: every epoch in an order of its own."""
    count, used = len(ration.samples), sum(ration.epoch)
    epochs = -(-ration.total // len(ration.epoch))
    orders = [torch.randperm(count, generator=generator)[:used] for _ in range(epochs)]
    batches = torch.split(ration.samples[torch.cat(orders)], ration.epoch * epochs)
    return batches[: ration.total]


class Loader:
    """Turns drawn batches into model input."""

    def __init__(self, dataset: Dataset, augment: Sequence[Augmentation], channels_last: bool) -> None:
        self.split = dataset.train
        self.shape = dataset.shape
        self.augment = augment
        self.mean = torch.tensor(dataset.mean)
        self.std = torch.tensor(dataset.std)
        self.channels_last = channels_last and len(dataset.shape) == 3

    def __call__(self, batch: Draw) -> tuple[Tensor, Tensor]:
        """Input [B, …] and labels [B]."""
        samples = self.split.samples[batch.indices]
        for part, drawn in zip(self.augment, batch.augment, strict=True):
            samples = part.apply(samples, drawn)
        if self.channels_last:
            # On the stored bytes, before they become four times as many.
            samples = samples.contiguous(memory_format=torch.channels_last)
        x = normalise(samples, self.mean, self.std)
        if batch.noise is not None:
            x = x + batch.noise
        return x, self.split.labels[batch.indices]


def join(batches: Sequence[Draw]) -> Draw:
    """Several clients' batches as one, to be loaded at once."""
    noisy = [batch.noise for batch in batches if batch.noise is not None]
    shape = noisy[0].shape[1:] if noisy else ()
    return Draw(
        torch.cat([batch.indices for batch in batches]),
        tuple(torch.cat(parts) for parts in zip(*(batch.augment for batch in batches), strict=True)),
        torch.cat([torch.zeros(len(b), *shape) if b.noise is None else b.noise for b in batches])
        if noisy
        else None,
    )


def _image(shape: tuple[int, ...]) -> tuple[int, int, int]:
    channels, height, width = shape
    return channels, height, width
