"""FedMeta: the server corrects the model on a small set of its own (Yao et al., 2019, arXiv 1910.08234).

This is not the FedMeta of Chen et al., 2018 (arXiv 1802.07876), which is MAML.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from pydantic import Field
from torch import Tensor
from torch.func import grad

from mnemos.common.registry import Options

Loss = Callable[[Tensor], Tensor]
"""The loss of a model, which is given as one vector."""


class Meta(Options):
    """After each round x ← x − η_meta ∇L(x; D_meta). D_meta is set apart before samples are partitioned."""

    samples: int = Field(ge=1, description="size of D_meta, drawn from the training samples")
    lr: float = Field(0.01, gt=0, description="η_meta")
    steps: int = Field(1, ge=1, description="how often in a round")

    def step(self, model: Tensor, losses: Sequence[Loss]) -> Tensor:
        """The model after gradient steps on the server's loss, which is the sum of `losses`."""
        return descend(model, losses, self.lr, self.steps)


def descend(model: Tensor, losses: Sequence[Loss], lr: float, steps: int) -> Tensor:
    """A model after `steps` gradient steps x ← x − η Σ ∇Lᵢ(x); only one Lᵢ is in memory at a time."""
    for _ in range(steps):
        gradient = torch.zeros_like(model)
        for loss in losses:
            gradient += grad(loss)(model)
        model = model - lr * gradient
    return model
