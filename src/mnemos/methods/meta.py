"""FedMeta: the server corrects the model on a small set of its own (Yao et al., 2019, arXiv 1910.08234).

Not to be taken for the FedMeta of Chen et al., 2018 (arXiv 1802.07876), which is MAML.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from pydantic import Field
from torch import Tensor
from torch.func import grad

from mnemos.registry import Options

Loss = Callable[[Tensor], Tensor]
"""Of a model, as one vector."""


class Meta(Options):
    """After each round x ← x − η_meta ∇L(x; D_meta), with samples that were taken out before dealing."""

    samples: int = Field(ge=1, description="size of D_meta, drawn from the training samples")
    lr: float = Field(0.01, gt=0, description="η_meta")
    steps: int = Field(1, ge=1, description="how often in a round")

    def step(self, model: Tensor, losses: Sequence[Loss]) -> Tensor:
        """The model after its steps on the server's loss, the sum of these."""
        return descend(model, losses, self.lr, self.steps)


def descend(model: Tensor, losses: Sequence[Loss], lr: float, steps: int) -> Tensor:
    """A model after plain gradient steps: x ← x − η Σ ∇Lᵢ(x). One Lᵢ at a time is in memory."""
    for _ in range(steps):
        gradient = torch.zeros_like(model)
        for loss in losses:
            gradient += grad(loss)(model)
        model = model - lr * gradient
    return model
