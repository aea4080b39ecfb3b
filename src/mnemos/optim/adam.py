"""Adam (Kingma & Ba, 2015, arXiv 1412.6980) and AdamW (Loshchilov & Hutter, 2019, arXiv 1711.05101)."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from mnemos.common.devices import double
from mnemos.optim.optimizer import Optimizer, Rate, State, optimizers
from mnemos.vector import Layout


@optimizers.register("adam")
class Adam(Optimizer):
    """Adam: steps by running means of the gradient and of its square.

    m ← β₁ m + (1 − β₁) g, v ← β₂ v + (1 − β₂) g², w ← w − η m̂ / (√v̂ + ε); g with coupled weight decay.

    m̂ = m / (1 − β₁ᵗ) and v̂ = v / (1 − β₂ᵗ) in step t.
    """

    elementwise = True

    beta1: float = Field(0.9, ge=0, lt=1, description="how much of the mean gradient is kept")
    beta2: float = Field(0.999, ge=0, lt=1, description="how much of the mean squared gradient is kept")
    eps: float = Field(1e-8, gt=0)
    """ε, which is added to the root."""

    def init(self, parameters: Tensor, layout: Layout) -> State:
        """Zero moments, and no step made."""
        # The count is a tensor, so that clients with different numbers of steps can be rows of one matrix.
        return {
            "mean": torch.zeros_like(parameters),
            "square": torch.zeros_like(parameters),
            "steps": parameters.new_zeros(1),
        }

    def step(self, parameters: Tensor, gradient: Tensor, state: State, lr: Rate, decay: float) -> None:
        """One step in place."""
        if decay:
            gradient.add_(parameters, alpha=decay)
        mean = state["mean"].lerp_(gradient, 1 - self.beta1)
        square = state["square"].mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
        # 1 − 0.999 in single precision would be off by 5e-5.
        steps = double(state["steps"].add_(1))
        rate = (lr / (1 - self.beta1**steps)).to(mean)
        root = (1 - self.beta2**steps).sqrt().to(mean)
        parameters.sub_((square.sqrt() / root).add_(self.eps).reciprocal_().mul_(mean).mul_(rate))


@optimizers.register("adamw")
class AdamW(Adam):
    """Adam with decoupled weight decay λ: w ← (1 − η λ) w before the step; λ isn't part of g."""

    def step(self, parameters: Tensor, gradient: Tensor, state: State, lr: Rate, decay: float) -> None:
        """One step in place."""
        if decay:
            parameters.mul_(1 - lr * decay)
        super().step(parameters, gradient, state, lr, 0.0)
