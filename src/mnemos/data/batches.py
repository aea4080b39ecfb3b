"""Batches as model input: samples augmented, scaled, noisy and marked as they were drawn.

What is random about a batch has been drawn before (`client/workload.py`): so one client at a time and a
hundred at once see the same batches.
"""

from __future__ import annotations

import copy
import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from mnemos.common.devices import CPU, send
from mnemos.data.augment import Augmentation, normalise, to_channels_last
from mnemos.data.dataset import Dataset, Split
from mnemos.data.trigger import Trigger, mark_value

_KEEP_LIMIT = 256_000_000
"""Bytes of one client's scaled samples that are kept for its round."""


_AHEAD_LIMIT = 64_000_000
"""Bytes of the batches that are loaded at once, ahead of their steps."""

_CHUNK = 512
"""Samples that a server learns from at a time."""


def even(samples: Tensor) -> tuple[Tensor, ...]:
    """Samples in as few chunks as need be, all of about the same size: batch-norm has no use for a few."""
    return samples.tensor_split(-(-len(samples) // _CHUNK))


class Draw(NamedTuple):
    """One batch before it is loaded: its samples and everything random about it."""

    indices: Tensor
    """Samples of the data set."""
    positions: Tensor
    """The same samples by their places among the client's own."""
    augment: tuple[Tensor, ...] = ()
    noise: Tensor | None = None
    trigger: Trigger | None = None
    marked: Tensor | None = None
    """Which of the samples get the trigger's mark [B]; None: none does."""

    @property
    def size(self) -> int:
        """The number of samples."""
        return len(self.indices)


class Loader:
    """Turns drawn batches into model input."""

    def __init__(
        self,
        dataset: Dataset,
        augment: Sequence[Augmentation],
        channels_last: bool,
        device: torch.device = CPU,
    ) -> None:
        """`device`: where the input is made, and where the tensors of drawn batches have to be."""
        self._dataset, self.device = dataset, device
        self._split = dataset.train.on(device)
        self._indices: Callable[[Draw], Tensor] = lambda batch: batch.indices
        self.augment = augment
        self._mean = torch.tensor(dataset.mean, device=device)
        self._std = torch.tensor(dataset.std, device=device)
        self.channels_last = channels_last and len(dataset.shape) == 3

    def __call__(self, batch: Draw) -> tuple[Tensor, Tensor]:
        """Input [B, …] and labels [B]."""
        indices = self._indices(batch)
        samples = self._split.samples[indices]
        for part, drawn in zip(self.augment, batch.augment, strict=True):
            samples = part.apply(samples, drawn)
        x = self._noisy(self._normalised(samples), batch)
        return self._marked(x, self._split.labels[indices], batch)

    def of(self, samples: Tensor) -> Loader:
        """A loader for batches of these samples, which batches name by their positions among them.

        It is this one if the whole data set is on the device; if not, the samples are sent there. `samples`
        are on the CPU.
        """
        if self._split.samples.device == self.device:
            return self
        loader, train = copy.copy(self), self._dataset.train
        own = send((train.samples[samples], train.labels[samples]), self.device)
        loader._split = Split(*own)
        loader._indices = lambda batch: batch.positions
        return loader

    def keep(self, samples: Tensor, passes: int) -> Callable[[Draw], tuple[Tensor, Tensor]]:
        """A loader for one client that passes over its samples several times, where keeping them pays.

        It scales each sample once instead of once a pass; batches name samples by their positions.
        """
        size = 4 * len(samples) * math.prod(self._split.samples.shape[1:])
        if self.augment or passes == 1 or size > _KEEP_LIMIT:
            return self
        places = self._indices(Draw(samples, torch.arange(len(samples), device=self.device)))
        kept = self._normalised(self._split.samples[places])
        labels = self._split.labels[places]
        # Rows as they lie in memory, so that a batch is a copy of whole rows whatever the order of axes.
        lying = kept.permute(0, 2, 3, 1) if self.channels_last else kept
        rows, shape = lying.flatten(1), lying.shape[1:]

        def load(batch: Draw) -> tuple[Tensor, Tensor]:
            x = rows.index_select(0, batch.positions).view(-1, *shape)
            x = x.permute(0, 3, 1, 2) if self.channels_last else x
            return self._marked(self._noisy(x, batch), labels.index_select(0, batch.positions), batch)

        return load

    def _normalised(self, samples: Tensor) -> Tensor:
        if not self.channels_last:
            return normalise(samples, self._mean, self._std)
        # Moved as stored bytes, before they become four times as many.
        return to_channels_last(normalise(to_channels_last(samples), self._mean, self._std))

    def _noisy(self, x: Tensor, batch: Draw) -> Tensor:
        if batch.noise is None:
            return x
        return to_channels_last(x + batch.noise) if self.channels_last else x + batch.noise

    @cached_property
    def _mark(self) -> Tensor:
        return mark_value(self._dataset).to(self.device)

    def _marked(self, x: Tensor, labels: Tensor, batch: Draw) -> tuple[Tensor, Tensor]:
        """With the trigger's mark on some samples, and its class for their label."""
        if batch.trigger is None or batch.marked is None:
            return x, labels
        marked = x.clone()
        batch.trigger.put(marked, self._mark)
        # Not x[marked] = …: how many samples are marked isn't known without waiting for the device.
        x = torch.where(batch.marked.view(-1, *[1] * (x.ndim - 1)), marked, x)
        return x, labels.masked_fill(batch.marked, batch.trigger.target)


def load_ahead(
    load: Callable[[Draw], tuple[Tensor, Tensor]], batches: Sequence[Draw], shape: Sequence[int]
) -> Iterator[tuple[Tensor, Tensor]]:
    """The input and labels of each batch, of samples of this shape, with few kernels for many batches.

    Several batches are loaded as if they were one, which is then cut up without a copy.
    """
    fitting = max(1, _AHEAD_LIMIT // (4 * math.prod(shape)))
    while batches:
        sizes = list(accumulate(batch.size for batch in batches))
        count = max(1, bisect_right(sizes, fitting))
        some, batches = batches[:count], batches[count:]
        if count == 1:
            yield load(some[0])
            continue
        x, labels = load(join(some))
        cuts = [batch.size for batch in some]
        yield from zip(torch.split(x, cuts), torch.split(labels, cuts), strict=True)


def join(batches: Sequence[Draw]) -> Draw:
    """Several clients' batches as one, to be loaded at once."""
    return Draw(
        torch.cat([batch.indices for batch in batches]),
        torch.cat([batch.positions for batch in batches]),
        tuple(torch.cat(parts) for parts in zip(*(batch.augment for batch in batches), strict=True)),
        _joined([(batch.size, batch.noise) for batch in batches]),
        next((batch.trigger for batch in batches if batch.trigger is not None), None),
        _joined([(batch.size, batch.marked) for batch in batches]),
    )


def _joined(parts: Sequence[tuple[int, Tensor | None]]) -> Tensor | None:
    """Tensors of batches of these sizes as one, with zeros for batches that have none; None: none has."""
    example = next((part for _, part in parts if part is not None), None)
    if example is None:
        return None
    zeros = (example.new_zeros(size, *example.shape[1:]) for size, _ in parts)
    return torch.cat([zero if part is None else part for zero, (_, part) in zip(zeros, parts, strict=True)])
