"""FedProx (Li et al., 2020, arXiv 1812.06127)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from torch import Tensor

from mnemos.methods.exchange import Client
from mnemos.methods.method import methods
from mnemos.methods.part import Term, terms
from mnemos.methods.presets.fedavg import FedAvg


@terms.register("proximal")
class Proximal(Term):
    """Pulls a client back to the model that it received.

    Adds (μ/2) ‖w − x‖² to the loss; its gradient μ (w − x) pulls a client back to the received model.
    """

    by_parameter: ClassVar[bool] = True
    partial: ClassVar[bool] = True

    mu: float = Field(0.01, ge=0, description="strength μ of the pull")

    def correct(self, gradient: Tensor, parameters: Tensor, client: Client) -> Tensor:
        """g + μ (w − x)."""
        return gradient.add_(parameters - client.start, alpha=self.mu)


@methods.register("fedprox")
class FedProx(FedAvg):
    """FedAvg with a proximal term at the clients."""

    mu: float = Field(0.01, ge=0, description="strength μ of the pull towards the model received")

    @property
    def own_terms(self) -> tuple[Term, ...]:
        """The proximal term."""
        return (Proximal(mu=self.mu),)
