"""Clients whose label proportions move."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from pydantic import Field

from mnemos import rng
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

    to the nearest integers (largest remainders): as wanted, as far as it has samples enough. Of a label it
    holds always the first samples in an order of their own, so from a round to the next a few are exchanged.
    """

    paced: ClassVar[bool] = True

    alpha: Concentration = 0.3
    points: int = Field(5, ge=2, le=10_000, description="proportions drawn for each client: where paths turn")
    share: float = Field(
        0.5, gt=0, le=1, description="of a client's training samples that it holds at a time"
    )

    def open(self, setting: Setting) -> Flow:
        """Any numbers will do."""
        return Drifting(self, setting)


class Drifting(Flow):
    """Everybody's own way through label proportions; worked out for those who are asked about."""

    def __init__(self, options: Drift, setting: Setting) -> None:
        super().__init__(setting)
        self._options = options

    def samples(self, client: int, round: int) -> Ints:
        """The first of each label."""
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
        """The same in all rounds."""
        return self._sizes(super().loads())

    def proportions(self, client: int, round: int, labels: int) -> Floats:
        """What a client that has so many labels wants of each in a round."""
        steps, last = max(self.setting.rounds - 1, 1), self._options.points - 1
        along = last * min(max(round - 1, 0) / steps, 1.0)
        corner = min(math.floor(along), last - 1)
        before, after = (self._corner(client, which, labels) for which in (corner, corner + 1))
        return before + (along - corner) * (after - before)

    def _corner(self, client: int, which: int, labels: int) -> Floats:
        generator = rng.numpy_generator(self.setting.seed, "stream.drift", client, which)
        logs = log_dirichlet(self._options.alpha, (labels,), generator)
        weights = np.exp(logs - logs.max())
        return np.asarray(weights / weights.sum(), np.float64)

    def _sizes(self, sizes: Ints) -> Ints:
        held = np.floor(self._options.share * sizes + 0.5).astype(np.int64)
        return np.where(sizes > 0, np.maximum(held, 1), 0)


def filled(wanted: Floats, stock: Ints, size: int) -> Ints:
    """`size` samples of those in stock, as near to the wanted proportions as the stock allows."""
    wanted = np.maximum(wanted, 1e-12)  # a label nobody wants is what is left when the others have run out
    order = np.argsort(stock / wanted, kind="stable")
    left = size - (np.cumsum(stock[order]) - stock[order])
    weight = np.cumsum(wanted[order][::-1])[::-1]
    # Labels run out in this order as λ grows: the right one is the first at which the next doesn't.
    level = left / weight
    enough = np.flatnonzero(level <= stock[order] / wanted[order])
    exact = np.minimum(stock, level[enough[0]] * wanted) if len(enough) else stock.astype(np.float64)
    held = np.floor(exact + 1e-9).astype(np.int64)
    more = np.argsort(np.where(held < stock, held - exact, np.inf), kind="stable")
    held[more[: size - int(held.sum())]] += 1
    return held
