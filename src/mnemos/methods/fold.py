"""Weighted means that are built up one update at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from mnemos.methods.exchange import Aggregate, State, Update
from mnemos.vector import Layout


class WeightedMean:
    """Σ aₖ Δₖ / Σ aₖ as two running sums, so memory doesn't grow with the cohort.

    The sums run in the order of the cohort, whoever finishes first, so the last bits don't depend on the
    number of workers.
    """

    def __init__(self, layout: Layout) -> None:
        self._delta = layout.zeros()
        self._weight: Tensor | float = 0.0
        self._buffers = torch.zeros(layout.buffer_size)
        self._buffer_weight = 0.0
        self._change: State = {}
        self._clients = 0

    def add(self, update: Update, weight: Tensor | float) -> None:
        """Take in one update."""
        self._add(update, update.delta, weight)

    def result(self) -> Aggregate:
        """The aggregate of all updates so far (at least one)."""
        return Aggregate(
            delta=self._mean(self._delta),
            buffers=self._buffers / self._buffer_weight,
            change={name: total / self._clients for name, total in self._change.items()},
            clients=self._clients,
        )

    def _add(self, update: Update, delta: Tensor, weight: Tensor | float) -> None:
        if isinstance(weight, Tensor):
            self._delta.addcmul_(delta, weight)
        else:
            self._delta.add_(delta, alpha=weight)
        self._weight = self._weight + weight
        # Buffers are statistics of samples: a weight for each parameter says nothing about them.
        scalar = float(update.samples) if isinstance(weight, Tensor) else weight
        self._buffers.add_(update.buffers, alpha=scalar)
        self._buffer_weight += scalar
        for name, change in update.change.items():
            total = self._change.setdefault(name, torch.zeros_like(change))
            total.add_(change)
        self._clients += 1

    def _mean(self, total: Tensor) -> Tensor:
        """A weighted sum over the cohort as a mean."""
        mean = total / self._weight
        if isinstance(self._weight, Tensor):
            mean = torch.where(self._weight > 0, mean, 0.0)  # nobody has a say in it: it stays as it is
        return mean
