"""FedAvg (McMahan et al., 2017, arXiv 1602.05629), and the parts it is made of."""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from mnemos.methods.buffers import AverageBuffers
from mnemos.methods.exchange import Aggregate, Fold, Server, State
from mnemos.methods.fold import WeightedMean
from mnemos.methods.method import Method, methods
from mnemos.methods.part import (
    BufferPolicy,
    Correction,
    Rule,
    ServerStep,
    Weighting,
    buffer_policies,
    corrections,
    rules,
    server_steps,
    weightings,
)
from mnemos.methods.weightings.samples import Samples
from mnemos.vector import Layout


@corrections.register("none")
class NoCorrection(Correction):
    """Leaves the gradient as it is."""


@rules.register("mean")
class Mean(Rule):
    """The weighted mean, Σ aₖ Δₖ / Σ aₖ."""

    is_mean = True

    def fold(self, layout: Layout) -> Fold:
        """A weighted mean as two running sums."""
        return WeightedMean(layout)


@server_steps.register("replace")
class Replace(ServerStep):
    """The weighted mean of the clients' models becomes the next model.

    x ← x + Σ aₖ Δₖ / Σ aₖ.
    """

    @property
    def moves(self) -> float:
        """All the way."""
        return 1.0

    def step(self, server: Server, aggregate: Aggregate) -> tuple[Tensor, State]:
        """The mean model."""
        return server.model + aggregate.delta, {}


@methods.register("fedavg")
class FedAvg(Method):
    """Local training, then the sample-weighted mean of the models."""

    correction: Annotated[Correction, corrections] = NoCorrection()
    """How a local gradient or step is changed."""
    weighting: Annotated[Weighting, weightings] = Samples()
    """How much each client's update counts."""
    rule: Annotated[Rule, rules] = Mean()
    """How the updates become one: their mean, or a robust rule."""
    server: Annotated[ServerStep, server_steps] = Replace()
    """How the aggregate becomes the next model."""
    buffers: Annotated[BufferPolicy, buffer_policies] = AverageBuffers()
    """What is done with buffers, such as the statistics of batch norm."""
