"""Stochastic gradient descent."""

from __future__ import annotations

import torch
from pydantic import Field, model_validator
from torch import Tensor

from mnemos.optim.optimizer import Optimizer, Rate, State, descend, optimizers
from mnemos.vector import Layout


@optimizers.register("sgd")
class Sgd(Optimizer):
    """SGD with optional (Nesterov) momentum: v ← m v + g, w ← w − η v (Nesterov: w ← w − η (g + m v))."""

    elementwise = True

    momentum: float = Field(0.0, ge=0, lt=1)
    """m, the share of the last step that is kept."""
    nesterov: bool = False
    """Whether the momentum is Nesterov's."""

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> Sgd:
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov needs momentum > 0")
        return self

    def init(self, parameters: Tensor, layout: Layout) -> State:
        """A zero velocity, where there is momentum."""
        return {"velocity": torch.zeros_like(parameters)} if self.momentum else {}

    def step(self, parameters: Tensor, gradient: Tensor, state: State, lr: Rate, decay: float) -> None:
        """One step in place, with coupled weight decay."""
        if decay:
            gradient.add_(parameters, alpha=decay)
        if self.momentum:
            velocity = state["velocity"].mul_(self.momentum).add_(gradient)
            gradient = gradient.add_(velocity, alpha=self.momentum) if self.nesterov else velocity
        descend(parameters, gradient, lr)
