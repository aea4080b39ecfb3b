"""Predictions of one model on many samples, in one pass."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mnemos.data.augment import normalise, to_channels_last
from mnemos.data.dataset import Dataset, Split
from mnemos.measures.measure import Scores
from mnemos.models.memory import channels_last_is_safe
from mnemos.vector import Bound

_CHUNK = 512


class Evaluator:
    """A replica in evaluation mode, shared by a few threads.

    Samples go through in chunks of a fixed size on one intra-op thread each, so a result depends neither on
    the engine nor on the number of cores.
    """

    def __init__(self, module: nn.Module, dataset: Dataset, in_batches: bool = False) -> None:
        """`in_batches`: batch-norm takes each chunk's own statistics instead of the buffers."""
        self._bound = Bound(module)
        self._module = module.eval()
        if in_batches:
            for part in module.modules():
                if isinstance(part, _BatchNorm):
                    part.train().momentum = 0.0  # it measures, and leaves the buffers as they are
        self._mean = torch.tensor(dataset.mean)
        self._std = torch.tensor(dataset.std)
        self._channels_last = len(dataset.shape) == 3 and channels_last_is_safe(module)
        workers = os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(workers, "evaluate", torch.set_num_threads, (1,))

    def __call__(self, model: Tensor, buffers: Tensor, split: Split, indices: Tensor | None = None) -> Scores:
        """Scores of a model on (some samples of) a split."""
        self._bound.load(model, buffers)
        labels = split.labels if indices is None else split.labels[indices]

        def predict(start: int) -> tuple[Tensor, Tensor]:
            where = slice(start, start + _CHUNK)
            samples = split.samples[where] if indices is None else split.samples[indices[where]]
            return self._predict(samples, labels[where])

        parts = list(self._pool.map(predict, range(0, len(labels), _CHUNK)))
        logits, losses = (torch.cat(column) for column in zip(*parts, strict=True))
        return Scores(logits, labels, losses)

    @torch.no_grad()
    def _predict(self, samples: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        x = normalise(samples, self._mean, self._std)
        logits = self._module(to_channels_last(x) if self._channels_last else x)
        return logits, F.cross_entropy(logits, labels, reduction="none")

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()
