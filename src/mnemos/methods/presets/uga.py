"""Unbiased gradient aggregation (Yao et al., 2019, arXiv 1910.08234): gradients through the local steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor
from torch.func import grad, vjp

from mnemos.errors import ConfigError
from mnemos.methods.exchange import Batch, Client, Finished, Net, State, When
from mnemos.methods.fit import Fit
from mnemos.methods.method import methods
from mnemos.methods.part import Correction, ServerStep, corrections, server_steps
from mnemos.methods.presets.fedavg import FedAvg
from mnemos.methods.presets.fedopt import ServerSgd
from mnemos.models.model import Model
from mnemos.objectives.objective import Loss
from mnemos.optim.local import Local
from mnemos.optim.sgd import Sgd
from mnemos.vector import Layout

_GRADIENT = "keep-trace.gradient"


@corrections.register("keep-trace")
class KeepTrace(Correction):
    """Clients send the gradient, at the received model, of the loss after their local steps.

    A client sends −g = −∇_x L(w(x); D), with w(x) the model that its steps make of the one received, x.

    The steps are those of the first E − 1 of its E epochs (or as many as `local.steps` says), and L is the
    loss on all its samples. Exactly, g = J₁ᵀ … Jₙᵀ ∇L(w), where a step w ← w − η (∇L_b(w) + λ w) has the
    Jacobian J = (1 − η λ) I − η H; to first order J = I, and g is the gradient at the last point. Instead of
    Jacobians there are products of Hessians with a vector, each about two more gradients.
    """

    order: Literal["exact", "first"] = Field(
        "exact", description="with the Hessians of the steps, or without"
    )

    @property
    def data_pass_at(self) -> When:
        """The gradient of all samples is taken at the trained model."""
        return "end"

    @property
    def traced(self) -> str | None:
        """The name of the vector that is taken back through the steps; None to first order."""
        return _GRADIENT if self.order == "exact" else None

    def fitting(self, model: Model) -> Mapping[str, Fit]:
        """Two epochs, of which the gradient of all samples replaces the last."""
        return {"local.epochs": Fit(2, f"{self.name} takes its gradient in the last epoch", ("local.steps",))}

    def training(self, local: Local) -> Local:
        """One epoch less, because the gradient of all samples replaces the last epoch."""
        if local.steps is not None:
            return local
        if local.epochs == 1:
            raise ConfigError(
                "found 1; keep-trace takes its gradient in the last epoch; allowed: ≥ 2, or local.steps",
                "local.epochs",
            )
        return local.model_copy(update={"epochs": local.epochs - 1})

    def check(self, layout: Layout, local: Local, classes: int) -> None:
        """Raise a ConfigError for the exact gradient of steps that aren't plain SGD."""
        plain = isinstance(local.optimizer, Sgd) and not local.optimizer.momentum
        if self.order == "exact" and not plain:
            raise ConfigError(
                f"keep-trace goes back through plain steps, found {type(local.optimizer).name}"
                f"{' with momentum' if isinstance(local.optimizer, Sgd) else ''}; allowed: sgd without "
                "momentum, or method.correction.order=first",
                "local.optimizer",
            )

    def data_pass(self, parameters: Tensor, net: Net, loss: Loss, batch: Batch, client: Client) -> State:
        """The sum of the samples' gradients."""

        def total(parameters: Tensor) -> Tensor:
            return batch.sum(loss(net.at(parameters)(batch.x), batch.labels, client.counts))

        gradient: Tensor = grad(total)(parameters)
        return {_GRADIENT: gradient}

    def pull_back(
        self, vector: Tensor, parameters: Tensor, loss: Callable[[Tensor], Tensor], rate: Tensor
    ) -> Tensor:
        """Jᵀ v = v − η (H v + λ v), of the step w ← w − η (∇L(w) + λ w); `rate` is (η, λ)."""
        curved: Tensor = vjp(grad(loss), parameters)[1](vector)[0]
        return vector - rate[0] * (curved + rate[1] * vector)

    def delta(self, done: Finished) -> Tensor:
        """−g."""
        return -done.data_means[_GRADIENT]


@methods.register("uga")
class Uga(FedAvg):
    """FedAvg of gradients through the local steps, taken at the received model x: x ← x − η_g Σ pₖ gₖ."""

    correction: Annotated[Correction, corrections] = KeepTrace()
    server: Annotated[ServerStep, server_steps] = ServerSgd(lr=0.1)
