"""Centred clipping: the distances of updates from the last round's aggregate are bounded."""

from __future__ import annotations

import math

import torch
from pydantic import Field
from torch import Tensor

from mnemos.methods.exchange import Aggregate, Server, State
from mnemos.methods.part import rules
from mnemos.methods.rules.robust import Median, Together, Weights
from mnemos.vector import Layout, square_sum

_CENTRE = "centred-clipping.centre"
"""The aggregate of the previous round; it is part of the server's state, and so of checkpoints."""


@rules.register("centred-clipping")
class CentredClipping(Together):
    """The mean of updates that are clipped around the result of the last round.

    v ← v + Σ aₖ (Δₖ − v) min(1, τ / ‖Δₖ − v‖) / Σ aₖ, `iterations` times (Karimireddy, He, Jaggi, 2021,
    arXiv 2012.10333).

    v starts from the aggregate of the previous round; from 0 in the first. No client moves it further than τ
    times its share of the weight. The paper has a fixed τ, because its momenta keep their size. Updates
    change in size during training, so τ is the median of the distances ‖Δₖ − v‖ in each iteration, unless it
    is given; of an even number, the lower of the two in the middle. Buffers are the weighted median.
    """

    radius: float | None = Field(None, gt=0, description="τ; the median of the distances, if not given")
    iterations: int = Field(1, ge=1, description="how often v is moved in a round")

    @property
    def fewest(self) -> int:
        """One if the radius is given, which needs no other updates."""
        return super().fewest if self.radius is None else 1

    def server_state(self, layout: Layout) -> State:
        """v = 0."""
        return {_CENTRE: layout.zeros()}

    def absorb(self, server: Server, aggregate: Aggregate) -> Server:
        """v for the next round."""
        return server.moved(server.model, {_CENTRE: aggregate.delta})

    def combine(self, deltas: Tensor, buffers: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
        """v after the last iteration."""
        # In double precision, because the difference of two large floats may overflow.
        nothing = deltas.new_zeros(deltas.shape[1])
        centre = self._occasion.state.get(_CENTRE, nothing).double()
        mass = weights.parameters.double().sum(0)
        for _ in range(self.iterations):
            lengths = [math.sqrt(square_sum(delta.double() - centre)) for delta in deltas]
            radius = self.radius or sorted(lengths)[(len(lengths) - 1) // 2]
            moved = torch.zeros_like(centre)
            for delta, length, weight in zip(deltas, lengths, weights.parameters, strict=True):
                kept = radius / length if length > radius else 1.0
                moved += weight.double() * kept * (delta.double() - centre)
            centre = centre + torch.where(mass > 0, moved / mass, 0.0)
        return centre.float(), Median().each(buffers, weights.buffers)
