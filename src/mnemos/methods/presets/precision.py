"""Precision-weighted federated learning (Reyes et al., 2021, arXiv 2107.09627)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.func import grad

from mnemos.methods.exchange import (
    Batch,
    Client,
    Cohort,
    Finished,
    Net,
    Rates,
    State,
    TrainReply,
    Weight,
    When,
)
from mnemos.methods.method import methods
from mnemos.methods.part import Weighting, weightings
from mnemos.methods.presets.fedavg import FedAvg
from mnemos.objectives.objective import Loss
from mnemos.optim.local import Local
from mnemos.vector import Layout

_VARIANCE = "precision.variance"
_MOST = 1e15
"""Variances are clipped to this, because sums of smaller inverses would be lost in single precision."""


@weightings.register("precision")
class Precision(Weighting):
    """By the inverse variance of the client's gradients, for each parameter.

    α_k = (v_k + ε)⁻¹ / Σ_j (v_j + ε)⁻¹ for each parameter, v_k the un-centred variance of its gradients.

    v_k is the mean of the squared gradients of client k's batches, at its trained model, which costs a pass
    over its data. (The authors are said to take Adam's second moment, of which no code was found.) With a
    small ε, clients that don't use a parameter (v ≈ 0) decide about it. Buffers count by samples.
    """

    epsilon: float = Field(
        1e-3, ge=1e-20, description="added to the variance; the larger, the nearer to a plain mean"
    )

    @property
    def by_upload(self) -> bool:
        """Its weight depends on the variances that it sends."""
        return True

    @property
    def data_pass_at(self) -> When:
        """Once the model is trained."""
        return "end"

    def data_pass(self, parameters: Tensor, net: Net, loss: Loss, batch: Batch, client: Client) -> State:
        """A batch's squared gradient, times its samples."""

        def total(parameters: Tensor) -> Tensor:
            return batch.sum(loss(net.at(parameters)(batch.x), batch.labels, client.counts))

        samples = batch.sum(torch.ones_like(batch.labels, dtype=torch.float32))
        gradient: Tensor = grad(total)(parameters)
        return {_VARIANCE: gradient.square() / samples.clamp_min(1)}  # an empty batch adds nothing

    def sends(self, layout: Layout) -> State:
        """A number for each parameter."""
        return {_VARIANCE: layout.zeros()}

    def upload(self, done: Finished) -> tuple[State, State]:
        """v_k."""
        return {_VARIANCE: done.data_means[_VARIANCE]}, {}

    def plausible(
        self, update: TrainReply, received: State, local: Local, rates: Callable[[], Rates]
    ) -> bool:
        """Whether no variance is negative."""
        return bool((update.change[_VARIANCE] >= 0).all())

    def weigh_cohort(self, cohort: Cohort) -> Iterator[Weight]:
        """One weight for each parameter."""
        variances = [update.change[_VARIANCE].clamp(0, _MOST) + self.epsilon for update in cohort.updates]
        total = torch.zeros_like(variances[0])
        for variance in variances:
            total += variance.reciprocal()
        samples = sum(update.samples for update in cohort.updates)
        for update, variance in zip(cohort.updates, variances, strict=True):
            count = len(variances)
            yield Weight(count / (variance * total), count * update.samples / samples)


@methods.register("precision")
class PrecisionWeighted(FedAvg):
    """FedAvg in which a client's parameter has more weight if the client's gradients of it are small."""

    weighting: Annotated[Weighting, weightings] = Precision()
