"""Clients whose label proportions change over time."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from pydantic import Field

from mnemos.common import rng
from mnemos.data.partition import Floats, Ints
from mnemos.data.proportions import Concentration, log_dirichlet
from mnemos.data.stream import Flow, Setting, Stream, streams


@streams.register("drift")
class Drift(Stream):
    """A client holds a part of its samples at a time, with label proportions that follow a path.

    Client k draws q_k0, …, q_k(P−1) ~ Dir(α·1) over the labels of its training samples, with P = `points`,
    and in round r of R wants its labels in the proportions

        p_k(r) = (1 − t) q_ki + t q_k(i+1),  i + t = (P − 1)(r − 1)/(R − 1),  0 ≤ t ≤ 1

    Of its n_k training samples it holds m_k = max(1, ⌊`share` · n_k⌉) at a time, of which label c has

        min(n_kc, λ p_kc),  with λ such that they sum to m_k

    to the nearest integers (largest remainders): the wanted proportions, as far as it has enough samples. Of
    each label it holds the first samples in a fixed order, so a few are exchanged from round to round.
    """

    paced: ClassVar[bool] = True
    simulated: ClassVar[bool] = True

    alpha: Concentration = 0.3
    """Concentration α of the proportions that a client's path leads to: small is heterogeneous."""
    points: int = Field(5, ge=2, le=10_000, description="proportions drawn for each client: where paths turn")
    share: float = Field(
        0.5, gt=0, le=1, description="of a client's training samples that it holds at a time"
    )

    def open(self, setting: Setting) -> Flow:
        """The flow of these options, all of which are valid."""
        return Drifting(self, setting)


class Drifting(Flow):
    """The clients' paths through label proportions, computed when they are needed."""

    def __init__(self, options: Drift, setting: Setting) -> None:
        super().__init__(setting)
        self._options = options

    def samples(self, client: int, round: int) -> Ints:
        """The first samples of each label, in the numbers of the round's proportions."""
        own = self.assignment.train(client)
        if not len(own):
            return own
        _, label, stock = np.unique(self.setting.labels[own], return_inverse=True, return_counts=True)
        size = int(self._sizes(np.array([len(own)]))[0])
        held = filled(self.proportions(client, round, len(stock)), stock, size)
        order = np.argsort(label, kind="stable")
        rank = np.empty(len(own), np.int64)
        rank[order] = np.arange(len(own)) - np.repeat(np.cumsum(stock) - stock, stock)
        return own[rank < held[label]]

    def loads(self) -> Ints:
        """The number of samples that a client holds at a time, the same in all rounds."""
        return self._sizes(super().loads())

    def proportions(self, client: int, round: int, labels: int) -> Floats:
        """The wanted proportions in a round, of a client that has this number of labels."""
        steps, last = max(self.setting.rounds - 1, 1), self._options.points - 1
        along = last * min(max(round - 1, 0) / steps, 1.0)
        corner = min(math.floor(along), last - 1)
        before, after = (self._corner(client, index, labels) for index in (corner, corner + 1))
        return before + (along - corner) * (after - before)

    def _corner(self, client: int, index: int, labels: int) -> Floats:
        """q_ki of client k, for i = `index`."""
        generator = rng.numpy_generator(self.setting.seed, "stream.drift", client, index)
        logs = log_dirichlet(self._options.alpha, (labels,), generator)
        weights = np.exp(logs - logs.max())
        return np.asarray(weights / weights.sum(), np.float64)

    def _sizes(self, sizes: Ints) -> Ints:
        held = np.floor(self._options.share * sizes + 0.5).astype(np.int64)
        return np.where(sizes > 0, np.maximum(held, 1), 0)


def filled(wanted: Floats, stock: Ints, size: int) -> Ints:
    """The number of samples of each label, `size` in all, as near to the proportions as the stock allows."""
    wanted = np.maximum(wanted, 1e-12)  # labels of proportion 0 are used when all others have run out
    order = np.argsort(stock / wanted, kind="stable")
    left = size - (np.cumsum(stock[order]) - stock[order])
    weight = np.cumsum(wanted[order][::-1])[::-1]
    # As λ grows, labels run out in this order; the solution is the first λ at which the next one doesn't.
    level = left / weight
    enough = np.flatnonzero(level <= stock[order] / wanted[order])
    exact = np.minimum(stock, level[enough[0]] * wanted) if len(enough) else stock.astype(np.float64)
    held = np.floor(exact + 1e-9).astype(np.int64)
    more = np.argsort(np.where(held < stock, held - exact, np.inf), kind="stable")
    held[more[: size - int(held.sum())]] += 1
    return held
