"""FedMeta: the server corrects the model on a small set of its own (Yao et al., 2019, arXiv 1910.08234).

Not to be taken for the FedMeta of Chen et al., 2018 (arXiv 1802.07876), which is MAML.
"""

from __future__ import annotations

from collections.abc import Callable

from pydantic import Field
from torch import Tensor
from torch.func import grad

from mnemos.registry import Options


class Meta(Options):
    """After each round x ← x − η_meta ∇L(x; D_meta), with samples that were taken out before dealing."""

    samples: int = Field(ge=1, description="size of D_meta, drawn from the training samples")
    lr: float = Field(0.01, gt=0, description="η_meta")
    steps: int = Field(1, ge=1, description="how often in a round")

    def step(self, model: Tensor, loss: Callable[[Tensor], Tensor]) -> Tensor:
        """The model after its steps on the server's loss."""
        return descend(model, loss, self.lr, self.steps)


def descend(model: Tensor, loss: Callable[[Tensor], Tensor], lr: float, steps: int) -> Tensor:
    """A model after plain gradient steps: x ← x − η ∇L(x)."""
    for _ in range(steps):
        model = model - lr * grad(loss)(model)
    return model
