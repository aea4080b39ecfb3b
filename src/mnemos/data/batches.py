"""A client's batches: which samples in which order, augmented and scaled.

Everything random about a round is drawn here, from generators of the client's own, before any arithmetic:
so one client at a time and a hundred at once see the same batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from mnemos import rng
from mnemos.data.augment import Augmentation, normalise, to_channels_last
from mnemos.data.dataset import Dataset

_KEEP_LIMIT = 256_000_000
"""Bytes of one client's scaled samples that are kept for its round."""


_CHUNK = 512
"""Samples that a server learns from at a time."""


def even(samples: Tensor) -> tuple[Tensor, ...]:
    """Samples in as few chunks as need be, all of about the same size: batch-norm has no use for a few."""
    return samples.tensor_split(-(-len(samples) // _CHUNK))


@dataclass(frozen=True)
class Draw:
    """One batch before it is loaded: its samples and everything random about it."""

    indices: Tensor
    """Samples of the data set."""
    positions: Tensor
    """The same samples by their places among the client's own."""
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
    fill: bool = False
    """Make the last batch as large as the others, with samples that are there once more."""
    relabel: Tensor | None = None
    """Which class the client takes each class for; None: it knows its labels."""

    @cached_property
    def epoch(self) -> list[int]:
        """The sizes of the batches of one pass over the samples."""
        full, rest = divmod(len(self.samples), self.batch)
        if self.fill:
            return [self.batch] * (full + (rest > 0))
        single = rest == 1 and self.drop_single and full > 0
        return [self.batch] * full + ([rest] if rest and not single else [])

    @cached_property
    def total(self) -> int:
        """Steps in the round."""
        return self.epochs * len(self.epoch) if self.steps is None else self.steps

    @cached_property
    def passes(self) -> int:
        """Epochs begun."""
        return -(-self.total // len(self.epoch))

    @cached_property
    def ends(self) -> list[int]:
        """The steps made when an epoch is over: a whole pass, or a round that is too short for one."""
        size = len(self.epoch)
        return [size * (number + 1) for number in range(self.total // size)] or [self.total]


def believed(labels: Tensor, relabel: Tensor | None) -> Tensor:
    """Labels as a client has them."""
    return labels if relabel is None else relabel[labels]


Key = tuple[int, int, int]
"""(seed, round, client): where everything random about a client's round comes from."""


def order(ration: Ration, key: Key) -> Tensor:
    """The places among the client's samples that its batches have one after the other, epoch after epoch."""
    seed, *where = key
    generator = rng.generator(seed, "batches", *where)
    count, used = len(ration.samples), sum(ration.epoch)

    def one_pass() -> Tensor:
        # All samples before any is there again: more than once only where batches are filled.
        rounds = [torch.randperm(count, generator=generator) for _ in range(-(-used // count))]
        return torch.cat(rounds)[:used]

    return torch.cat([one_pass() for _ in range(ration.passes)])


def draws(
    ration: Ration, augment: Sequence[Augmentation], shape: tuple[int, ...], key: Key
) -> Iterator[Draw]:
    """The batches of one round."""
    seed, *where = key
    jitter = rng.generator(seed, "augment", *where)
    static = rng.generator(seed, "noise", *where)
    batches = torch.split(order(ration, key), ration.epoch * ration.passes)
    for positions in batches[: ration.total]:
        count = len(positions)
        yield Draw(
            ration.samples[positions],
            positions,
            tuple(part.draw(count, _image(shape), jitter) for part in augment),
            torch.randn(count, *shape, generator=static) * ration.noise if ration.noise else None,
        )


class Loader:
    """Turns drawn batches into model input."""

    def __init__(self, dataset: Dataset, augment: Sequence[Augmentation], channels_last: bool) -> None:
        self.split = dataset.train
        self.augment = augment
        self.mean = torch.tensor(dataset.mean)
        self.std = torch.tensor(dataset.std)
        self.channels_last = channels_last and len(dataset.shape) == 3

    def __call__(self, batch: Draw) -> tuple[Tensor, Tensor]:
        """Input [B, …] and labels [B]."""
        samples = self.split.samples[batch.indices]
        for part, drawn in zip(self.augment, batch.augment, strict=True):
            samples = part.apply(samples, drawn)
        return self._noisy(self._normalised(samples), batch), self.split.labels[batch.indices]

    def keep(self, ration: Ration) -> Callable[[Draw], tuple[Tensor, Tensor]]:
        """A loader for one client that scales each sample once instead of once an epoch, where that pays."""
        size = 4 * len(ration.samples) * math.prod(self.split.samples.shape[1:])
        if self.augment or ration.passes == 1 or size > _KEEP_LIMIT:
            return self
        kept = self._normalised(self.split.samples[ration.samples])
        labels = self.split.labels[ration.samples]
        # Rows as they lie in memory, so that a batch is a copy of whole rows whatever the order of axes.
        lying = kept.permute(0, 2, 3, 1) if self.channels_last else kept
        rows, shape = lying.flatten(1), lying.shape[1:]

        def load(batch: Draw) -> tuple[Tensor, Tensor]:
            x = rows.index_select(0, batch.positions).view(-1, *shape)
            x = x.permute(0, 3, 1, 2) if self.channels_last else x
            return self._noisy(x, batch), labels.index_select(0, batch.positions)

        return load

    def _normalised(self, samples: Tensor) -> Tensor:
        if not self.channels_last:
            return normalise(samples, self.mean, self.std)
        # Moved as stored bytes, before they become four times as many.
        return to_channels_last(normalise(to_channels_last(samples), self.mean, self.std))

    def _noisy(self, x: Tensor, batch: Draw) -> Tensor:
        if batch.noise is None:
            return x
        return to_channels_last(x + batch.noise) if self.channels_last else x + batch.noise


def join(batches: Sequence[Draw]) -> Draw:
    """Several clients' batches as one, to be loaded at once."""
    noisy = [batch.noise for batch in batches if batch.noise is not None]
    shape = noisy[0].shape[1:] if noisy else ()
    return Draw(
        torch.cat([batch.indices for batch in batches]),
        torch.cat([batch.positions for batch in batches]),
        tuple(torch.cat(parts) for parts in zip(*(batch.augment for batch in batches), strict=True)),
        torch.cat([torch.zeros(len(b), *shape) if b.noise is None else b.noise for b in batches])
        if noisy
        else None,
    )


def _image(shape: tuple[int, ...]) -> tuple[int, int, int]:
    channels, height, width = shape
    return channels, height, width
