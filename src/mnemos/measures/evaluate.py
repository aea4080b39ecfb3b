"""Predictions of one model on many samples, in one pass."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mnemos.common.cores import cores
from mnemos.common.devices import CPU
from mnemos.common.pools import compute_pool
from mnemos.data.augment import normalise, to_channels_last
from mnemos.data.dataset import Dataset, Split
from mnemos.measures.measure import Scores
from mnemos.models.memory import channels_last_is_safe
from mnemos.models.norm import use_batch_statistics
from mnemos.vector import Bound

_CHUNK = 512


class Judge(Protocol):
    """Evaluates models: a replica in this process, or the owners of the samples."""

    def __call__(self, model: Tensor, buffers: Tensor, split: Split, indices: Tensor | None = None) -> Scores:
        """Scores of a model on (some samples of) a split."""

    def close(self) -> None:
        """Release threads and other resources."""


class Evaluator:
    """A replica in evaluation mode, on a device or shared by a few threads.

    Samples are evaluated in chunks of a fixed size on one intra-op thread each, so a result depends neither
    on the engine nor on the number of cores.
    """

    def __init__(
        self,
        module: nn.Module,
        dataset: Dataset,
        in_batches: bool = False,
        read: Callable[[Tensor], Tensor] | None = None,
        device: torch.device = CPU,
    ) -> None:
        """`module` is moved to the device. `in_batches`: batch-norm uses each chunk's own statistics.

        `read` turns a model's outputs into logits of the classes, if these aren't the same.
        """
        self._bound, self._device = Bound(module.to(device)), device
        self._dataset = dataset
        self._there: dict[str, Split] = {}
        """The data set's parts that have been evaluated, on the device: they stay there until the end."""
        self._module = module.eval()
        self._in_batches, self._read = in_batches, read
        if in_batches:
            use_batch_statistics(module)
        self._mean = torch.tensor(dataset.mean, device=device)
        self._std = torch.tensor(dataset.std, device=device)
        safe = device.type != "mps" and channels_last_is_safe(module)
        self._channels_last = len(dataset.shape) == 3 and safe
        # A device does one thing after the other, and needs no threads to be kept busy.
        threads = cores() if device == CPU else 1
        self._pool = compute_pool(threads, "evaluate")

    def __call__(self, model: Tensor, buffers: Tensor, split: Split, indices: Tensor | None = None) -> Scores:
        """Scores of a model on (some samples of) a split, on the host."""
        self._bound.load(model, buffers)
        known = split.labels if indices is None else split.labels[indices]
        there, where = self._on_device(split), None if indices is None else indices.to(self._device)
        labels = there.labels if where is None else there.labels[where]
        if there.samples.device != self._device:  # too large for it: they are sent chunk by chunk
            where = indices

        def predict(chunk: slice) -> Tensor:
            samples = there.samples[chunk] if where is None else there.samples[where[chunk]]
            return self._predict(samples.to(self._device), labels[chunk])

        # Logits and losses side by side, so that they come back in one piece.
        found = torch.cat(list(self._pool.map(predict, self._chunks(len(known))))).cpu()
        return Scores(found[:, :-1].contiguous(), known, found[:, -1].contiguous())

    def _on_device(self, split: Split) -> Split:
        there = split.on(self._device)
        if split is self._dataset.train or split is self._dataset.test:
            self._there["train" if split is self._dataset.train else "test"] = there
        return there

    def _chunks(self, count: int) -> list[slice]:
        starts = list(range(0, count, _CHUNK))
        if self._in_batches and len(starts) > 1 and count - starts[-1] == 1:
            starts.pop()  # a single sample has no statistics: it joins the chunk before
        return [slice(a, b) for a, b in pairwise([*starts, count])]

    @torch.no_grad()
    def _predict(self, samples: Tensor, labels: Tensor) -> Tensor:
        """Logits, and in the last column losses, of some samples [B, C + 1]."""
        x = normalise(samples, self._mean, self._std)
        alone = self._in_batches and len(x) == 1  # one sample has no statistics: it is doubled
        x = torch.cat([x, x]) if alone else x
        logits = self._module(to_channels_last(x) if self._channels_last else x)[: len(labels)]
        if self._read is not None:
            logits = self._read(logits)
        return torch.cat([logits, F.cross_entropy(logits, labels, reduction="none")[:, None]], 1)

    def close(self) -> None:
        """End the threads, and let go of the samples on the device."""
        self._pool.shutdown()
        self._there.clear()
