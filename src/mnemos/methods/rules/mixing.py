"""Mixing a round's updates before a robust rule is applied.

Rules that leave out unusual updates also lose honest clients with unusual data. Mixed updates differ less
from each other, so that a rule loses less of them and is harder to deceive.
"""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from pydantic import Field
from torch import Tensor

from mnemos.common import rng
from mnemos.common.registry import Part, Registry
from mnemos.methods.exchange import Occasion
from mnemos.vector import square_distances


class Mixing(Part):
    """A way to mix updates."""

    def fewest(self, rows: int) -> int:
        """The least number of updates from which this many rows are made."""
        return rows

    @abstractmethod
    def mix(
        self, deltas: Tensor, weights: Tensor, clients: list[int], occasion: Occasion
    ) -> tuple[Tensor, Tensor]:
        """Rows [R, P] and their weights, from updates [K, P] of `clients` with weights [K, P] or [K, 1]."""


mixings: Registry[Mixing] = Registry("mixing", Mixing, "mnemos.methods")


@mixings.register("none")
class Unmixed(Mixing):
    """Leaves updates as they are."""

    def mix(
        self, deltas: Tensor, weights: Tensor, clients: list[int], occasion: Occasion
    ) -> tuple[Tensor, Tensor]:
        """The updates and weights themselves."""
        return deltas, weights


@mixings.register("nearest")
class Nearest(Mixing):
    """Each update is replaced by the weighted mean of the K − f that are nearest to it, itself among them.

    Nearest-neighbour mixing (Allouah et al., 2023, arXiv 2302.01772), with f = ⌈bad · K⌉. A row has the
    weight of the client whose update it replaces.
    """

    bad: float = Field(0.2, ge=0, lt=0.5, description="f / K, the share of a round's clients that may be bad")

    def mix(
        self, deltas: Tensor, weights: Tensor, clients: list[int], occasion: Occasion
    ) -> tuple[Tensor, Tensor]:
        """The mean of each update's nearest ones; weights don't matter for distances."""
        count = len(deltas)
        near = count - min(largest_bad(self.bad, count), (count - 1) // 2)
        nearest = square_distances(deltas).sort(dim=-1, stable=True).indices[:, :near].to(deltas.device)
        # Sums run in the cohort's order, so that the same neighbours make exactly the same row.
        groups = nearest.sort(dim=-1).values
        return torch.stack([_mean(deltas[group], weights[group]) for group in groups]), weights


@mixings.register("bucketing")
class Bucketing(Mixing):
    """Updates are put into buckets of `size` at random, and each bucket is replaced by its weighted mean.

    Karimireddy, He, Jaggi, 2022, arXiv 2006.09365. The buckets of a round depend on the experiment's seed,
    the round and its clients, not on the order in which they answer; the last bucket may be smaller. A row
    has the weight of the bucket's clients together. With f bad clients at most f buckets are bad, so the rule
    uses the same f.
    """

    size: int = Field(2, ge=1, description="updates in a bucket")

    def fewest(self, rows: int) -> int:
        """Enough to fill all buckets but the last, and one more."""
        return self.size * (rows - 1) + 1

    def mix(
        self, deltas: Tensor, weights: Tensor, clients: list[int], occasion: Occasion
    ) -> tuple[Tensor, Tensor]:
        """The mean of each bucket; buckets are drawn at random."""
        generator = rng.generator(occasion.seed, "buckets", occasion.round)
        by_client = torch.tensor(clients).argsort(stable=True)
        order = by_client[torch.randperm(len(clients), generator=generator)]
        # Sums run in the cohort's order.
        buckets = [bucket.sort().values.to(deltas.device) for bucket in torch.split(order, self.size)]
        rows = torch.stack([_mean(deltas[bucket], weights[bucket]) for bucket in buckets])
        return rows, torch.stack([weights[bucket].sum(0) for bucket in buckets])


def largest_bad(share: float, count: int) -> int:
    """A share of `count` clients, rounded up to a whole number."""
    return math.ceil(share * count - 1e-9)


def _mean(rows: Tensor, weights: Tensor) -> Tensor:
    """The weighted mean of each parameter; 0 if no row has weight."""
    total = weights.sum(0)
    return torch.where(total > 0, (rows * (weights / total)).sum(0), 0.0)
