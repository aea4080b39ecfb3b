"""FedReg: generated data against forgetting (Xu, Hong, Huang, Jiang, 2022, arXiv 2203.02645)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.func import grad

from mnemos.methods.exchange import Batch, Client, Net
from mnemos.methods.method import methods
from mnemos.methods.part import Correction, corrections
from mnemos.methods.presets.fedavg import FedAvg
from mnemos.objectives.objective import Loss
from mnemos.objectives.softmax import near_zero, nll


@corrections.register("fedreg")
class Regularised(Correction):
    """Steps that don't forget what the received model predicts for generated data.

    From a batch, `generate` makes *pseudo* data (large steps ηₛ; labelled softly by the model received) and
    *perturbed* data (small steps ηₚ; true labels). A step takes its gradient at γ w + (1 − γ) x. Then, with
    the gradients g₁, g₂ of pseudo and perturbed data at ½ w + ½ x and the drift d = w − x,

        w ← w − a₁ g₁ − a₂ g₂,   a₁ = max(0, ⟨d, g₁⟩ / ‖g₁‖²),   a₂ = max(0, ⟨d − a₁ g₁, g₂⟩ / ‖g₂‖²).
    """

    changes_samples: ClassVar[bool] = True

    gamma: float = Field(0.5, ge=0, le=1, description="γ: 1 takes gradients at the client's own model")
    pseudo_step: float = Field(0.1, gt=0, description="ηₛ of pseudo data")
    perturbed_step: float = Field(1e-3, gt=0, description="ηₚ of perturbed data")
    generate: Literal["up", "down"] = Field("up", description="generated data are harder, or easier, samples")
    generate_steps: int = Field(10, ge=1, description="signed-gradient steps to a generated sample")

    def gradient_point(self, parameters: Tensor, client: Client) -> Tensor:
        """γ w + (1 − γ) x."""
        return torch.lerp(client.start, parameters, self.gamma)

    def after_step(self, parameters: Tensor, net: Net, loss: Loss, batch: Batch, client: Client) -> Tensor:
        """w − a₁ g₁ − a₂ g₂."""
        old = net.at(client.start)
        pseudo = self.generated(old, batch, self.pseudo_step)
        perturbed = self.generated(old, batch, self.perturbed_step)
        soft = old(pseudo).softmax(1)

        def remembered(parameters: Tensor) -> Tensor:
            logits = net.at(parameters)(pseudo)
            return batch.mean(-(soft * logits.log_softmax(1)).sum(1))

        def robust(parameters: Tensor) -> Tensor:
            return batch.mean(loss(net.at(parameters)(perturbed), batch.labels, client.counts))

        middle = torch.lerp(client.start, parameters, 0.5)
        drift = parameters - client.start
        for function in (remembered, robust):
            drift = _without(drift, grad(function)(middle))
        return client.start + drift

    def generated(self, net: Net, batch: Batch, step: float) -> Tensor:
        """x ← clip(x ± η sign ∇ₓ CE), within the range of the batch's values."""

        def error(x: Tensor) -> Tensor:
            return batch.sum(nll(near_zero(net(x)), batch.labels))

        x, low, high = batch.x, batch.x.amin(), batch.x.amax()
        along = step if self.generate == "up" else -step
        for _ in range(self.generate_steps):
            x = (x + along * grad(error)(x).sign()).clamp(low, high)
            if batch.mask is not None:  # samples that only fill the batch up are copies of its first
                x = torch.where(batch.mask.view(-1, *[1] * (x.ndim - 1)) > 0, x, x[:1])
        return x


def _without(drift: Tensor, gradient: Tensor) -> Tensor:
    """The drift without its component along a gradient, if that component increases the loss."""
    along = ((drift * gradient).sum() / gradient.square().sum().clamp_min(1e-30)).clamp_min(0)
    return drift - along * gradient


@methods.register("fedreg")
class FedReg(FedAvg):
    """FedAvg whose clients keep what the received model predicts for data generated from their own."""

    correction: Annotated[Correction, corrections] = Regularised()
