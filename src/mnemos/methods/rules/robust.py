"""Robust rules for rounds in which some clients may send anything: medians, trimmed means, Krum, and others.

Each tolerates some bad updates, as long as they are fewer than the good ones. All need a whole round, so the
updates are kept until the last has come. They can be mixed before the rule is applied. Weights are those of
the method's weighting, and count as votes. What a client says about itself, such as its number of samples,
can be false; `weighting: uniform` doesn't depend on it.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated, ClassVar, Self

import torch
from pydantic import Field, PrivateAttr
from torch import Tensor

from mnemos.common.devices import send
from mnemos.methods.exchange import Aggregate, Fold, Occasion, TrainReply, Weight
from mnemos.methods.part import Rule, rules
from mnemos.methods.rules.mixing import Mixing, Unmixed, largest_bad, mixings
from mnemos.vector import Layout, square_distances, square_sums

_CHUNK = 1 << 20
"""The most numbers that are sorted at a time."""


class Together(Rule):
    """A rule for a whole round of K updates."""

    before: Annotated[Mixing, mixings] = Field(
        Unmixed(), description="how updates are mixed before the rule takes them"
    )

    _occasion: Occasion = PrivateAttr(Occasion({}, 0, 0))
    _clients: int | None = PrivateAttr(None)
    """K, if the rows that the rule gets were mixed from the clients' updates."""

    @property
    def fewest(self) -> int:
        """Enough updates for three rows: of two rows, neither can outvote the other."""
        return self.before.fewest(3)

    def during(self, occasion: Occasion) -> Self:
        """The rule for one round."""
        rule = self.model_copy()
        rule._occasion = occasion
        return rule

    def of(self, clients: int) -> Self:
        """The rule for rows that were mixed from the updates of `clients` clients."""
        rule = self.model_copy()
        rule._clients = clients
        return rule

    def bad_rows(self, share: float, rows: int) -> int:
        """f, the number of rows that may be bad; as many as clients that may be bad, ⌈share · K⌉."""
        return largest_bad(share, self._clients or rows)

    @abstractmethod
    def combine(self, deltas: Tensor, buffers: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
        """One update [P] and one set of buffers [Q], from deltas [K, P] and buffers [K, Q]."""

    def fold(self, layout: Layout) -> Fold:
        """A fold that keeps all updates until the round is over."""
        return _Kept(self)


class Weights:
    """Clients' weights for each parameter [K, P] and buffer entry [K, Q], or one for all of them [K, 1]."""

    def __init__(self, weights: list[Weight], device: torch.device) -> None:
        self.parameters = _columns([weight.parameters for weight in weights], device)
        self.buffers = _columns([weight.buffers for weight in weights], device)


def _columns(values: list[Tensor | float], device: torch.device) -> Tensor:
    rows = [torch.as_tensor(value, dtype=torch.float32).reshape(-1) for value in values]
    return torch.stack(send(rows, device))


class _Kept:
    """All updates of a round, for a rule."""

    def __init__(self, rule: Together) -> None:
        self._rule = rule
        self._deltas: list[Tensor] = []
        self._buffers: list[Tensor] = []
        self._weights: list[Weight] = []
        self._clients: list[int] = []

    def add(self, update: TrainReply, weight: Weight) -> None:
        """Keep one update."""
        self._deltas.append(update.delta)
        self._buffers.append(update.buffers)
        self._weights.append(weight)
        self._clients.append(update.client)

    def result(self) -> Aggregate:
        """The rule's aggregate. Buffers are never mixed, because an ordinary update may hide bad buffers."""
        rule, count = self._rule, len(self._deltas)
        deltas, buffers, weights = (
            torch.stack(self._deltas),
            torch.stack(self._buffers),
            Weights(self._weights, self._deltas[0].device),
        )
        deltas, weights.parameters = rule.before.mix(
            deltas, weights.parameters, self._clients, rule._occasion
        )
        delta, statistics = rule.of(count).combine(deltas, buffers, weights)
        return Aggregate(delta, statistics, {}, count)


class Coordinates(Together):
    """A rule that treats every parameter and buffer entry by itself."""

    @abstractmethod
    def along(self, values: Tensor, weights: Tensor) -> Tensor:
        """A number for each row of values [n, K], which are in ascending order, with weights [n, K]."""

    def combine(self, deltas: Tensor, buffers: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
        """The rule for parameters and for buffers."""
        return self.each(deltas, weights.parameters), self.each(buffers, weights.buffers)

    def each(self, rows: Tensor, weights: Tensor) -> Tensor:
        """A number for each column of rows [K, n], with weights [K, n] or [K, 1]."""
        count, size = rows.shape
        step = max(1, _CHUNK // count)
        found = rows.new_zeros(size)
        for start in range(0, size, step):
            values, order = rows[:, start : start + step].T.contiguous().sort(-1)
            some = weights if weights.shape[1] == 1 else weights[:, start : start + step]
            found[start : start + step] = self.along(values, some.T.expand_as(values).gather(-1, order))
        return found


@rules.register("median")
class Median(Coordinates):
    """The weighted median of each parameter (Yin et al., 2018, arXiv 1803.01498).

    The number with half of the weight on either side, or the mean of two such numbers.
    """

    def along(self, values: Tensor, weights: Tensor) -> Tensor:
        """The weighted median; 0 if all weights are 0."""
        passed = weights.double().cumsum(-1)
        half = passed[:, -1:] / 2
        lower = (passed < half).sum(-1, keepdim=True)
        upper = (passed <= half).sum(-1, keepdim=True).clamp(max=values.shape[1] - 1)
        # They are halved before they are added, because the sum of two huge numbers could overflow.
        middle = values.gather(-1, lower) / 2 + values.gather(-1, upper) / 2
        return torch.where(half > 0, middle, 0.0).squeeze(-1)


@rules.register("trimmed-mean")
class TrimmedMean(Coordinates):
    """The weighted mean of each parameter without its largest and smallest values.

    The weighted mean of each parameter without its ⌈βK⌉ largest and ⌈βK⌉ smallest values, of K
    (Yin et al., 2018, arXiv 1803.01498)."""

    trim: float = Field(0.2, ge=0, lt=0.5, description="β, the share of a round's clients that may be bad")

    def along(self, values: Tensor, weights: Tensor) -> Tensor:
        """The weighted mean of the values that aren't cut off; 0 if they have no weight."""
        count = values.shape[1]
        cut = min(self.bad_rows(self.trim, count), (count - 1) // 2)
        kept, counts = values[:, cut : count - cut], weights[:, cut : count - cut]
        total = counts.sum(-1)
        return torch.where(total > 0, (kept * (counts / total[:, None])).sum(-1), 0.0)


class Clients(Together):
    """A rule that computes a share for each client."""

    by_layer: ClassVar[bool] = False

    @abstractmethod
    def shares(self, deltas: Tensor, weights: Tensor) -> Tensor:
        """The shares of clients [K], which sum to one, from deltas [K, P] and weights [K] on the CPU."""

    def combine(self, deltas: Tensor, buffers: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
        """The mean with these shares; for buffers, on which shares aren't based, the weighted median."""
        shares = self.shares(deltas, weights.parameters.cpu().double().squeeze(1)).tolist()
        delta = deltas.new_zeros(deltas.shape[1])
        for share, change in zip(shares, deltas, strict=True):
            if share:  # an update without a share may be infinite, and 0 · ∞ is NaN
                delta.add_(change, alpha=share)
        return delta, Median().each(buffers, weights.buffers)


@rules.register("geometric-median")
class GeometricMedian(Clients):
    """The point with the smallest sum of distances to all updates.

    argmin_z Σ aₖ ‖z − Δₖ‖ by smoothed Weiszfeld steps (RFA; Pillutla et al., 2022, arXiv 1912.13445).

    Each step is the mean with weights aₖ / max(ν, ‖z − Δₖ‖). The first z is the median of each parameter:
    from the mean, the larger a bad update is, the more steps it would take.
    """

    iterations: int = Field(100, ge=1, description="steps at most; it ends where a step changes little")
    smoothing: float = Field(1e-6, gt=0, description="ν, as a share of the median of the updates' norms")

    def shares(self, deltas: Tensor, weights: Tensor) -> Tensor:
        """The shares of the last step."""
        least = self.smoothing * float(norms(deltas).median()) or self.smoothing
        centre = Median().each(deltas, weights[:, None].float().to(deltas.device))
        shares = torch.zeros_like(weights)
        for _ in range(self.iterations):
            before, shares = shares, weights / norms(deltas - centre).clamp(min=least)
            shares /= shares.sum()
            if float((shares - before).abs().max()) < 1e-9:
                break
            centre = shares.float().to(deltas.device) @ deltas
        return shares


@rules.register("krum")
class Krum(Clients):
    """The single update that is nearest to its neighbours (Blanchard et al., 2017, arXiv 1703.02757).

    Of K updates f = ⌈bad · K⌉ may be bad; an update's score is the sum of its squared distances from the
    K − f − 2 nearest others, and the lowest score wins. K ≥ 2f + 3 is needed; with fewer updates, f is the
    largest number for which that holds.
    """

    bad: float = Field(0.2, ge=0, lt=0.5, description="f / K, the share of a round's clients that may be bad")

    def shares(self, deltas: Tensor, weights: Tensor) -> Tensor:
        """1 for the update with the lowest score, 0 for all others."""
        return torch.eye(len(deltas), dtype=torch.float64)[self.scores(deltas).argmin()]

    def scores(self, deltas: Tensor) -> Tensor:
        """The score of each update [K]."""
        count = len(deltas)
        apart = square_distances(deltas)
        apart.fill_diagonal_(math.inf)  # an update isn't its own neighbour
        near = max(1, count - self.tolerated(count) - 2)
        return apart.sort(-1).values[:, : min(near, count - 1)].sum(-1)

    def tolerated(self, count: int) -> int:
        """f for `count` updates."""
        return max(0, min(self.bad_rows(self.bad, count), (count - 3) // 2))


@rules.register("multi-krum")
class MultiKrum(Krum):
    """The weighted mean of the K − f updates with the lowest scores of Krum (the same paper)."""

    def shares(self, deltas: Tensor, weights: Tensor) -> Tensor:
        """Shares by weight, with 0 for the f updates with the highest scores."""
        best = self.scores(deltas).argsort(stable=True)[: len(deltas) - self.tolerated(len(deltas))]
        kept = torch.zeros_like(weights)
        kept[best] = weights[best]
        total = kept.sum()
        return kept / total if total > 0 else torch.full_like(kept, 1 / len(kept))


@rules.register("norm-bounded")
class NormBounded(Together):
    """The weighted mean of updates that are shortened to a bound.

    Σ aₖ Δₖ min(1, M / ‖Δₖ‖) / Σ aₖ: no client moves the model further than M (Sun et al., 2019,
    arXiv 1911.07963). Buffers, whose length means nothing, are the weighted median."""

    bound: float | None = Field(None, gt=0, description="M; the median of a round's norms, if not given")

    @property
    def fewest(self) -> int:
        """One if the bound is given, which needs no other updates."""
        return super().fewest if self.bound is None else 1

    def combine(self, deltas: Tensor, buffers: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
        """The weighted mean of the shortened updates."""
        lengths = norms(deltas)
        bound = self.bound if self.bound is not None else float(lengths.median())
        total = deltas.new_zeros(deltas.shape[1])
        mass = deltas.new_zeros(weights.parameters.shape[1])
        for delta, length, weight in zip(deltas, lengths.tolist(), weights.parameters, strict=True):
            total += weight * (delta * (bound / length) if length > bound else delta)
            mass += weight
        mean = torch.where(mass > 0, total / mass, 0.0)
        return mean, Median().each(buffers, weights.buffers)


def norms(rows: Tensor) -> Tensor:
    """‖·‖ of each row [K], in double precision."""
    return square_sums(rows).sqrt()
