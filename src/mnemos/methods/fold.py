"""Weighted means of updates that are added one at a time."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mnemos.methods.exchange import Aggregate, State, TrainReply, Weight
from mnemos.methods.replies import TrainReplies
from mnemos.vector import Layout


class WeightedMean:
    """Σ aₖ Δₖ / Σ aₖ as two running sums, so memory doesn't grow with the cohort.

    Updates are added in the order of the cohort, not as clients finish, so the last bits don't depend on the
    number of workers.
    """

    def __init__(self, layout: Layout) -> None:
        # On the CPU until the first update shows on which device updates are.
        self._delta = layout.zeros()
        self._weight: Tensor | float = 0.0
        self._buffers = torch.zeros(layout.buffer_size)
        self._buffer_weight: Tensor | float = 0.0
        self._change: State = {}
        self._clients = 0

    def add(self, update: TrainReply, weight: Weight) -> None:
        """Add an update."""
        self._add(update, update.delta, weight)

    def add_together(self, updates: Sequence[TrainReply], weights: Sequence[float]) -> None:
        """Add updates with one weight each as wᵀ Δ: faster for many small ones, with other last bits."""
        found = TrainReplies.of(updates).columns
        delta, buffers = found.delta, found.buffers
        if not self._clients:
            self._delta, self._buffers = torch.zeros_like(delta[0]), torch.zeros_like(buffers[0])
        a = torch.tensor(weights, device=delta.device)
        self._delta += a @ delta
        self._buffers += a @ buffers
        self._weight, self._buffer_weight = self._weight + sum(weights), self._buffer_weight + sum(weights)
        for name, change in found.change.items():
            total = self._change.setdefault(name, torch.zeros_like(change[0]))
            total += change.sum(0)
        self._clients += len(updates)

    def result(self) -> Aggregate:
        """The aggregate of all updates so far (at least one)."""
        return Aggregate(
            delta=self._mean(self._delta),
            buffers=self._buffers / self._buffer_weight,
            change={name: total / self._clients for name, total in self._change.items()},
            clients=self._clients,
            mass=self._weight / self._clients,
        )

    def _add(self, update: TrainReply, delta: Tensor, weight: Weight) -> None:
        if not self._clients:
            self._delta, self._buffers = torch.zeros_like(delta), torch.zeros_like(update.buffers)
        _accumulate(self._delta, delta, weight.parameters)
        self._weight = self._weight + weight.parameters
        _accumulate(self._buffers, update.buffers, weight.buffers)
        self._buffer_weight = self._buffer_weight + weight.buffers
        for name, change in update.change.items():
            total = self._change.setdefault(name, torch.zeros_like(change))
            total.add_(change)
        self._clients += 1

    def _mean(self, total: Tensor) -> Tensor:
        """Divide a weighted sum over the cohort by the sum of weights."""
        mean = total / self._weight
        if isinstance(self._weight, Tensor):
            mean = torch.where(self._weight > 0, mean, 0.0)  # a parameter without any weight isn't changed
        return mean


def _accumulate(total: Tensor, value: Tensor, weight: Tensor | float) -> None:
    if isinstance(weight, Tensor):
        total.addcmul_(value, weight)
    else:
        total.add_(value, alpha=weight)
