"""Gradient-masked averaging (Tenison et al., 2022, arXiv 2201.11986)."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from mnemos.methods.exchange import Aggregate, Fold, Server, State, TrainReply, Weight
from mnemos.methods.fold import WeightedMean
from mnemos.methods.method import methods
from mnemos.methods.part import ServerStep, server_steps
from mnemos.methods.presets.fedavg import FedAvg
from mnemos.vector import Layout

_AGREEMENT = "gma.agreement"


class _Agreeing(WeightedMean):
    """The weighted mean of the updates and of their signs."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self._signs = layout.zeros()

    def add(self, update: TrainReply, weight: Weight) -> None:
        """Add an update."""
        self._signs = self._signs.to(update.delta.device)
        super().add(update, weight)
        self._signs += weight.parameters * torch.sign(update.delta)

    def result(self) -> Aggregate:
        """The mean update, and how much the clients agree on the sign of each parameter's change."""
        mean = super().result()
        agreement = self._mean(self._signs).abs()
        return replace(mean, change={**mean.change, _AGREEMENT: agreement})


@server_steps.register("gma")
class GradientMasked(ServerStep):
    """Reduces the parameters' changes on whose sign the clients disagree.

    Aⱼ = |Σ pₖ sign Δₖⱼ|; x ← x + η m ⊙ Σ pₖ Δₖ, with mⱼ = 1 where Aⱼ ≥ τ and Aⱼ elsewhere.
    """

    tau: float = Field(0.4, ge=0, le=1, description="agreement from which on an update counts fully")
    lr: float = Field(1.0, gt=0, description="server learning rate η")

    def fold(self, layout: Layout) -> Fold:
        """A weighted mean of updates and of their signs."""
        return _Agreeing(layout)

    def step(self, server: Server, aggregate: Aggregate) -> tuple[Tensor, State]:
        """A step along the masked mean."""
        agreement = aggregate.change[_AGREEMENT]
        mask = torch.where(agreement >= self.tau, 1.0, agreement)
        return server.model + self.lr * mask * aggregate.delta, {}


@methods.register("gma")
class Gma(FedAvg):
    """FedAvg that reduces the changes on whose sign the clients disagree."""

    server: Annotated[ServerStep, server_steps] = GradientMasked()
