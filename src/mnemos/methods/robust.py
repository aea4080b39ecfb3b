"""Rules for rounds in which some clients may send anything: medians, trimmed means, Krum, bounded norms.

Each takes up to so many bad updates for what they are, as long as they are fewer than the good ones. All
look at whole rounds, so a round's updates are kept until the last is back. Weights are the method's, and
count as votes: what a client says of itself, such as its number of samples, is a claim like any other.
`weighting: uniform` doesn't go by it.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from mnemos.methods.exchange import Aggregate, Fold, Update, Weight
from mnemos.methods.part import Rule, rules
from mnemos.vector import Layout, square_sum

_CHUNK = 1 << 20
"""Numbers that are sorted at a time."""


class Together(Rule):
    """A rule for a whole round of K updates."""

    @property
    def fewest(self) -> int:
        """Two can't outvote each other."""
        return 3

    @abstractmethod
    def combine(self, deltas: Tensor, buffers: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
        """One update and one set of buffers, of deltas [K, P] and buffers [K, Q]."""

    def fold(self, layout: Layout) -> Fold:
        """Keeps all updates."""
        return _Kept(self)


class Weights:
    """What clients count, for each parameter [K, P] and buffer entry [K, Q], or for all alike [K, 1]."""

    def __init__(self, weights: list[Weight]) -> None:
        self.parameters = _columns([weight.parameters for weight in weights])
        self.buffers = _columns([weight.buffers for weight in weights])


def _columns(values: list[Tensor | float]) -> Tensor:
    return torch.stack([torch.as_tensor(value, dtype=torch.float32).reshape(-1) for value in values])


class _Kept:
    def __init__(self, rule: Together) -> None:
        self._rule = rule
        self._deltas: list[Tensor] = []
        self._buffers: list[Tensor] = []
        self._weights: list[Weight] = []

    def add(self, update: Update, weight: Weight) -> None:
        """Keep one update."""
        self._deltas.append(update.delta)
        self._buffers.append(update.buffers)
        self._weights.append(weight)

    def result(self) -> Aggregate:
        """What the rule makes of them."""
        deltas, buffers = torch.stack(self._deltas), torch.stack(self._buffers)
        delta, statistics = self._rule.combine(deltas, buffers, Weights(self._weights))
        return Aggregate(delta, statistics, {}, len(self._deltas))


class Coordinates(Together):
    """A rule that goes number by number."""

    @abstractmethod
    def along(self, values: Tensor, weights: Tensor) -> Tensor:
        """One number a row, of values [n, K] in ascending order with weights [n, K]."""

    def combine(self, deltas: Tensor, buffers: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
        """Parameters and buffers alike."""
        return self.each(deltas, weights.parameters), self.each(buffers, weights.buffers)

    def each(self, rows: Tensor, weights: Tensor) -> Tensor:
        """Of rows [K, n], with weights [K, n] or [K, 1]."""
        count, size = rows.shape
        step = max(1, _CHUNK // count)
        found = torch.zeros(size)
        for start in range(0, size, step):
            values, order = rows[:, start : start + step].T.contiguous().sort(-1)
            some = weights if weights.shape[1] == 1 else weights[:, start : start + step]
            found[start : start + step] = self.along(values, some.T.expand_as(values).gather(-1, order))
        return found


@rules.register("median")
class Median(Coordinates):
    """The weighted median of each parameter (Yin et al., 2018, arXiv 1803.01498).

    The number that has half of the weight on either side; the mean of the two in the middle, where two have.
    """

    def along(self, values: Tensor, weights: Tensor) -> Tensor:
        """The middle by weight; 0 where nobody has any."""
        passed = weights.double().cumsum(-1)
        half = passed[:, -1:] / 2
        lower = (passed < half).sum(-1, keepdim=True)
        upper = (passed <= half).sum(-1, keepdim=True).clamp(max=values.shape[1] - 1)
        # Halved before they are added: two huge numbers don't overflow.
        middle = values.gather(-1, lower) / 2 + values.gather(-1, upper) / 2
        return torch.where(half > 0, middle, 0.0).squeeze(-1)


@rules.register("trimmed-mean")
class TrimmedMean(Coordinates):
    """The weighted mean of each parameter without its ⌈βK⌉ largest and ⌈βK⌉ smallest values, of K
    (Yin et al., 2018, arXiv 1803.01498)."""

    trim: float = Field(0.2, ge=0, lt=0.5, description="β, the share of a round's clients that may be bad")

    def along(self, values: Tensor, weights: Tensor) -> Tensor:
        """The mean of those between; 0 where they have no weight."""
        count = values.shape[1]
        cut = min(_bad(self.trim, count), (count - 1) // 2)
        kept, counts = values[:, cut : count - cut], weights[:, cut : count - cut]
        total = counts.sum(-1)
        return torch.where(total > 0, (kept * (counts / total[:, None])).sum(-1), 0.0)


class Clients(Together):
    """A rule that finds out how much each client counts."""

    by_layer: ClassVar[bool] = False

    @abstractmethod
    def shares(self, deltas: Tensor, weights: Tensor) -> Tensor:
        """Of each client [K], summing to one, of deltas [K, P] and weights [K]."""

    def combine(self, deltas: Tensor, buffers: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
        """The mean with these shares; of buffers, which nobody's share speaks of, the weighted median."""
        shares = self.shares(deltas, weights.parameters.double().squeeze(1)).tolist()
        delta = torch.zeros(deltas.shape[1])
        for share, change in zip(shares, deltas, strict=True):
            if share:  # what doesn't count can be too large to be multiplied
                delta.add_(change, alpha=share)
        return delta, Median().each(buffers, weights.buffers)


@rules.register("geometric-median")
class GeometricMedian(Clients):
    """argmin_z Σ aₖ ‖z − Δₖ‖ by smoothed Weiszfeld steps (RFA; Pillutla et al., 2022, arXiv 1912.13445).

    Each step is the mean with weights aₖ / max(ν, ‖z − Δₖ‖). The first z is the median of each parameter:
    from the mean, the larger a bad update is, the more steps it would take.
    """

    iterations: int = Field(100, ge=1, description="steps at most; it ends where a step changes little")
    smoothing: float = Field(1e-6, gt=0, description="ν, as a share of the median of the updates' norms")

    def shares(self, deltas: Tensor, weights: Tensor) -> Tensor:
        """Those of the last step."""
        least = self.smoothing * float(norms(deltas).median()) or self.smoothing
        centre = Median().each(deltas, weights[:, None].float())
        shares = torch.zeros_like(weights)
        for _ in range(self.iterations):
            before, shares = shares, weights / norms(deltas - centre).clamp(min=least)
            shares /= shares.sum()
            if float((shares - before).abs().max()) < 1e-9:
                break
            centre = shares.float() @ deltas
        return shares


@rules.register("krum")
class Krum(Clients):
    """The one update that is nearest to its neighbours (Blanchard et al., 2017, arXiv 1703.02757).

    Of K updates f = ⌈bad · K⌉ may be bad; an update's score is the sum of its squared distances from the
    K − f − 2 nearest others, and the lowest score wins. It takes K ≥ 2f + 3; with fewer, f is what they can
    bear.
    """

    bad: float = Field(0.2, ge=0, lt=0.5, description="f / K, the share of a round's clients that may be bad")

    def shares(self, deltas: Tensor, weights: Tensor) -> Tensor:
        """All to the best."""
        return torch.eye(len(deltas), dtype=torch.float64)[self.scores(deltas).argmin()]

    def scores(self, deltas: Tensor) -> Tensor:
        """Of each update [K]."""
        count = len(deltas)
        apart = torch.zeros(count, count, dtype=torch.float64)
        for one in range(count):
            for other in range(one):
                apart[one, other] = apart[other, one] = square_sum(deltas[one] - deltas[other])
        apart.fill_diagonal_(math.inf)  # nobody is its own neighbour
        near = max(1, count - self.tolerated(count) - 2)
        return apart.sort(-1).values[:, : min(near, count - 1)].sum(-1)

    def tolerated(self, count: int) -> int:
        """f, of so many."""
        return max(0, min(_bad(self.bad, count), (count - 3) // 2))


@rules.register("multi-krum")
class MultiKrum(Krum):
    """The weighted mean of the K − f updates with the lowest scores of Krum (the same paper)."""

    def shares(self, deltas: Tensor, weights: Tensor) -> Tensor:
        """Nothing to the worst."""
        best = self.scores(deltas).argsort(stable=True)[: len(deltas) - self.tolerated(len(deltas))]
        kept = torch.zeros_like(weights)
        kept[best] = weights[best]
        total = kept.sum()
        return kept / total if total > 0 else torch.full_like(kept, 1 / len(kept))


@rules.register("norm-bounded")
class NormBounded(Together):
    """Σ aₖ Δₖ min(1, M / ‖Δₖ‖) / Σ aₖ: nobody moves the model further than M (Sun et al., 2019,
    arXiv 1911.07963). Buffers, which have no length to be bounded, are the weighted median."""

    bound: float | None = Field(None, gt=0, description="M; the median of a round's norms, if not given")

    @property
    def fewest(self) -> int:
        """A bound that is given holds for one, too."""
        return super().fewest if self.bound is None else 1

    def combine(self, deltas: Tensor, buffers: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
        """The mean of what is left of each update."""
        lengths = norms(deltas)
        bound = self.bound if self.bound is not None else float(lengths.median())
        total, mass = torch.zeros(deltas.shape[1]), torch.zeros(weights.parameters.shape[1])
        for delta, length, weight in zip(deltas, lengths.tolist(), weights.parameters, strict=True):
            total += weight * (delta * (bound / length) if length > bound else delta)
            mass += weight
        mean = torch.where(mass > 0, total / mass, 0.0)
        return mean, Median().each(buffers, weights.buffers)


def norms(rows: Tensor) -> Tensor:
    """‖·‖ of each row [K], in double precision."""
    return torch.tensor([math.sqrt(square_sum(row)) for row in rows], dtype=torch.float64)


def _bad(share: float, count: int) -> int:
    """How many of so many a share comes to, rounded up."""
    return math.ceil(share * count - 1e-9)
