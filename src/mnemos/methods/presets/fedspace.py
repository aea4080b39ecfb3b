"""FedSpace: asynchronous federated continual learning (Shenaj et al., 2023, arXiv 2304.03626)."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from mnemos.methods.exchange import Aggregate, Server, State
from mnemos.methods.head import Head
from mnemos.methods.method import methods
from mnemos.methods.part import BufferPolicy, ServerStep, Term, buffer_policies, server_steps
from mnemos.methods.presets.fedavg import FedAvg
from mnemos.methods.terms.prototypes import Prototypes
from mnemos.methods.terms.representation import Representation
from mnemos.objectives.objective import Objective, objectives
from mnemos.objectives.tce import TaskCrossEntropy


@server_steps.register("mix")
class Mix(ServerStep):
    """Moves a part of the way from the server's model to the mean of the clients' models.

    x ← ρ x̄ + (1 − ρ) x, x̄ being the weighted mean of the clients' models.
    """

    rho: float = Field(0.5, gt=0, le=1, description="ρ: 1 is FedAvg")

    @property
    def moves(self) -> float:
        """ρ."""
        return self.rho

    def step(self, server: Server, aggregate: Aggregate) -> tuple[Tensor, State]:
        """x + ρ Δ."""
        return server.model + self.rho * aggregate.delta, {}


@buffer_policies.register("mix")
class MixBuffers(BufferPolicy):
    """Buffers are averaged, and mixed with the server's: b ← ρ b̄ + (1 − ρ) b."""

    rho: float = Field(0.5, gt=0, le=1, description="ρ: 1 is `average`")

    @property
    def moves(self) -> float:
        """ρ."""
        return self.rho

    def next(self, server: Tensor, mean: Tensor) -> Tensor:
        """ρ b̄ + (1 − ρ) b."""
        return torch.lerp(server, mean, self.rho)


class Rotated(FedAvg):
    """FedAvg with a head for rotations and a loss over the tasks so far, which PASS and FedSpace extend."""

    loss: Annotated[Objective, objectives] = TaskCrossEntropy()
    head: Head = Head(rotations=True, temperature=0.1)


@methods.register("fedspace")
class FedSpace(Rotated):
    """Prototypes shared by all clients, a common representation, and a server that moves half the way.

    Each part can be left out: `prototype_weight: 0`, `aggregate: false`, `representation_weight: 0`,
    `server: replace` with `buffers: average`; pre-training is the experiment's `start`.
    """

    server: Annotated[ServerStep, server_steps] = Mix()
    buffers: Annotated[BufferPolicy, buffer_policies] = MixBuffers()
    prototype_weight: float = Field(0.01, ge=0, description="λ_p of the term `prototypes`")
    representation_weight: float = Field(0.01, ge=0, description="λ_r of the term `representation`")
    aggregate: bool = Field(True, description="whether prototypes are joined at the server")
    beta: float = Field(0.1, gt=0, le=1, description="β of the server's prototypes")
    memory: Literal["keep", "round"] = Field("keep", description="what the server remembers of old classes")
    radius: Literal["round", "first"] = Field("round", description="when a client measures its radius")
    form: Literal["slides", "released"] = Field("slides", description="of the representation loss")

    @property
    def own_terms(self) -> tuple[Term, ...]:
        """Both terms; prototypes are kept even if they have no loss of their own."""
        prototypes = Prototypes(
            weight=self.prototype_weight,
            aggregate=self.aggregate,
            beta=self.beta,
            memory=self.memory,
            radius=self.radius,
        )
        if not self.representation_weight:
            return (prototypes,)
        return prototypes, Representation(weight=self.representation_weight, form=self.form)
