"""Predictions of one model on many samples, in one pass."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mnemos.common.cores import cores
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
    """A replica in evaluation mode, shared by a few threads.

    Samples are evaluated in chunks of a fixed size on one intra-op thread each, so a result depends neither
    on the engine nor on the number of cores.
    """

    def __init__(
        self,
        module: nn.Module,
        dataset: Dataset,
        in_batches: bool = False,
        read: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        """`in_batches`: batch-norm uses each chunk's own statistics instead of the buffers.

        `read` turns a model's outputs into logits of the classes, if these aren't the same.
        """
        self._bound = Bound(module)
        self._module = module.eval()
        self._in_batches, self._read = in_batches, read
        if in_batches:
            use_batch_statistics(module)
        self._mean = torch.tensor(dataset.mean)
        self._std = torch.tensor(dataset.std)
        self._channels_last = len(dataset.shape) == 3 and channels_last_is_safe(module)
        self._pool = ThreadPoolExecutor(cores(), "evaluate", torch.set_num_threads, (1,))

    def __call__(self, model: Tensor, buffers: Tensor, split: Split, indices: Tensor | None = None) -> Scores:
        """Scores of a model on (some samples of) a split."""
        self._bound.load(model, buffers)
        labels = split.labels if indices is None else split.labels[indices]

        def predict(where: slice) -> tuple[Tensor, Tensor]:
            samples = split.samples[where] if indices is None else split.samples[indices[where]]
            return self._predict(samples, labels[where])

        parts = list(self._pool.map(predict, self._chunks(len(labels))))
        logits, losses = (torch.cat(column) for column in zip(*parts, strict=True))
        return Scores(logits, labels, losses)

    def _chunks(self, count: int) -> list[slice]:
        starts = list(range(0, count, _CHUNK))
        if self._in_batches and len(starts) > 1 and count - starts[-1] == 1:
            starts.pop()  # a single sample has no statistics: it joins the chunk before
        return [slice(a, b) for a, b in pairwise([*starts, count])]

    @torch.no_grad()
    def _predict(self, samples: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        x = normalise(samples, self._mean, self._std)
        alone = self._in_batches and len(x) == 1  # one sample has no statistics: it is doubled
        x = torch.cat([x, x]) if alone else x
        logits = self._module(to_channels_last(x) if self._channels_last else x)[: len(labels)]
        if self._read is not None:
            logits = self._read(logits)
        return logits, F.cross_entropy(logits, labels, reduction="none")

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()
