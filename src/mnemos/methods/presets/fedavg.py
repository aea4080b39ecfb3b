"""FedAvg (McMahan et al., 2017, arXiv 1602.05629), and the parts it is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from torch import Tensor

from mnemos.methods.buffers import AverageBuffers
from mnemos.methods.exchange import Aggregate, Fold, Server, State, TrainReply, Weight
from mnemos.methods.fold import WeightedMean
from mnemos.methods.method import Method, methods
from mnemos.methods.part import (
    BufferPolicy,
    Correction,
    Rule,
    ServerStep,
    Single,
    Weighting,
    buffer_policies,
    corrections,
    rules,
    server_steps,
    weightings,
)
from mnemos.methods.replies import TrainReplies
from mnemos.vector import Layout


@corrections.register("none")
class NoCorrection(Correction):
    """Leaves the gradient as it is."""


@weightings.register("samples")
class Samples(Single):
    """By the number of training samples: aₖ = nₖ."""

    plain = True

    def weigh(self, update: TrainReply, layout: Layout) -> Weight:
        """The number of training samples."""
        return Weight.of(float(update.samples))

    def numbers(self, updates: TrainReplies) -> Sequence[float] | None:
        """The numbers of training samples."""
        if type(self).weigh is not Samples.weigh:  # a subclass weighs in its own way
            return None
        return [float(samples) for samples in updates.columns.samples]


@weightings.register("uniform")
class Uniform(Single):
    """All clients alike: aₖ = 1."""

    plain = True
    equal = True

    def weigh(self, update: TrainReply, layout: Layout) -> Weight:
        """One."""
        return Weight.of(1.0)

    def numbers(self, updates: TrainReplies) -> Sequence[float] | None:
        """Ones."""
        if type(self).weigh is not Uniform.weigh:
            return None
        return [1.0] * len(updates)


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
