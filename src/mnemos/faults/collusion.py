"""Clients that agree on the update they send, to get past robust aggregation rules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from mnemos.data.partition import Ints
from mnemos.faults.fault import ATTACKERS, MEMORY, Collusion, faults, some
from mnemos.methods.exchange import State, TrainReply
from mnemos.vector import square_distances, square_sum, total

_TARGET = f"{MEMORY}collusion.mimic"
"""The name under which the client to copy is remembered."""

Kind = Literal["inner-product", "a-little", "min-max", "min-sum", "mimic"]


@faults.register("collusion")
class Colluders(Collusion):
    """Some clients train correctly, see the updates of a round, and all send the same harmful one.

    Of the n updates of a round m are theirs; μ and σ are the mean and the standard deviation of each
    parameter over the updates that they know.

    - `inner-product`: −scale · μ (Xie, Koyejo, Gupta, 2019, arXiv 1903.03936); by default scale is 1;
    - `a-little`: μ − scale · σ (Baruch, Baruch, Goldberg, 2019, arXiv 1902.06156); by default scale is the
      largest z at which most of the others are further from μ, Φ(z) = (n − m − s) / (n − m) with
      s = ⌊n/2 + 1⌋ − m, and at least 0;
    - `min-max`: μ + γ p with the largest γ at which no known update is further from it than any two of them
      are from each other (Shejwalkar, Houmansadr, NDSS 2021); p is −μ / ‖μ‖, −σ or −sign μ by `direction`;
    - `min-sum`: the same with the largest γ at which its squared distances from all known updates sum to no
      more than those of any known one;
    - `mimic`: a copy of one other client's update, in every round (Karimireddy, He, Jaggi, 2022,
      arXiv 2006.09365): of the client that was furthest along the main direction in which updates differed
      when it was chosen. In a round without that client, another one is chosen likewise.

    What they upload beside the update of the model is their own. If they know no update but their own, they
    use these.
    """

    share: float = Field(0.1, gt=0, le=1, description="share of the clients, at least one")
    kind: Kind = "inner-product"
    """How the clients make their update of the others'."""
    knows: Literal["all", "colluders"] = Field(
        "all", description="whose updates they know: those of all others, or only those that they have learnt"
    )
    scale: float | None = Field(
        None, gt=0, description="factor of `inner-product` and `a-little`; null: what the kind says"
    )
    direction: Literal["unit", "std", "sign"] = Field(
        "unit", description="p of `min-max` and `min-sum`: against the mean, the deviation or the sign"
    )

    def clients(self, population: int, seed: int) -> Ints:
        """A share of the clients, drawn once for the run."""
        return some(self.share, population, seed, ATTACKERS)

    def collude(
        self, own: Sequence[TrainReply], honest: Sequence[TrainReply], memory: State
    ) -> list[TrainReply]:
        """The same update from all of them."""
        known = own if self.knows == "colluders" or not honest else honest
        if self.kind == "mimic":
            copied = self._copied(known, memory)
            return [replace(update, delta=copied.delta, buffers=copied.buffers) for update in own]
        rows = torch.stack([update.delta for update in known])
        delta = self._crafted(rows, len(own) + len(honest), len(own))
        return [replace(update, delta=delta) for update in own]

    def _crafted(self, rows: Tensor, total: int, bad: int) -> Tensor:
        """The update of this kind from the known ones [n, P]; `bad` of the round's `total` are colluders'."""
        wide = rows.double()
        mean = wide.mean(0)
        match self.kind:
            case "inner-product":
                crafted = -(self.scale or 1.0) * mean
            case "a-little":
                z = little(total, bad) if self.scale is None else self.scale
                crafted = mean - z * wide.std(0, correction=0)
            case _:
                direction = self._direction(wide, mean)
                crafted = mean + self._reach(rows, wide, mean, direction) * direction
        return crafted.float()

    def _direction(self, rows: Tensor, mean: Tensor) -> Tensor:
        match self.direction:
            case "std":
                return -rows.std(0, correction=0)
            case "sign":
                return -mean.sign()
            case "unit":
                length = math.sqrt(square_sum(mean))
                return -mean / length if length else mean

    def _reach(self, rows: Tensor, wide: Tensor, mean: Tensor, direction: Tensor) -> float:
        """The largest γ of `min-max` and `min-sum`.

        ‖μ + γ p − x‖² ≤ D is a quadratic inequality in γ for each update x. The paper approximates its larger
        root by bisection; this is the root itself.
        """
        square = square_sum(direction)
        if not square:
            return 0.0
        distances = square_distances(rows)
        gaps = [mean - row for row in wide]
        if self.kind == "min-sum":  # the terms linear in γ cancel: the gaps sum to 0
            spare = float(distances.sum(1).max()) - sum(map(square_sum, gaps))
            return math.sqrt(max(0.0, spare) / (square * len(gaps)))
        most = float(distances.max())
        return min(_root(square, total(direction * gap), square_sum(gap) - most) for gap in gaps)

    def _copied(self, known: Sequence[TrainReply], memory: State) -> TrainReply:
        """The update of the client that was chosen in an earlier round, or of one that is chosen now."""
        present = {update.client: update for update in known}
        if _TARGET in memory and int(memory[_TARGET]) in present:
            return present[int(memory[_TARGET])]
        rows = torch.stack([update.delta for update in known]).double()
        rows -= rows.mean(0)
        # The main eigenvector of the Gram matrix has the clients' positions along the main direction.
        positions = torch.linalg.eigh(rows @ rows.T).eigenvectors[:, -1]
        chosen = known[int(positions.abs().argmax())]
        memory.setdefault(_TARGET, torch.tensor(chosen.client))
        return chosen


def little(total: int, bad: int) -> float:
    """z of `a-little`, for `total` updates of which `bad` are the colluders'."""
    honest = total - bad
    supporters = math.floor(total / 2 + 1) - bad
    share = (honest - supporters) / honest if honest else 0.0
    if share >= 1:
        return _FURTHEST  # the colluders are the majority: there is no limit
    return max(0.0, NormalDist().inv_cdf(share)) if share > 0 else 0.0


_FURTHEST = 4.0
"""z where the formula gives no limit: hardly any honest number is further from the mean."""


def _root(square: float, half: float, rest: float) -> float:
    """The larger root of square · γ² + 2 half · γ + rest, with rest ≤ 0 but for rounding."""
    return (-half + math.sqrt(max(0.0, half * half - square * rest))) / square
