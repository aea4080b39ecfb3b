"""FedCurv: elastic weights across clients (Shoham et al., 2019, arXiv 1910.07796)."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor
from torch.func import grad, vmap

from mnemos.local import Local
from mnemos.methods.exchange import (
    Aggregate,
    Batch,
    Client,
    Finished,
    Net,
    Rates,
    Server,
    State,
    Update,
    When,
)
from mnemos.methods.fedavg import FedAvg
from mnemos.methods.method import methods
from mnemos.methods.part import Term, terms
from mnemos.objectives.objective import Loss
from mnemos.vector import Layout

_F = "fedcurv.fisher"
_FW = "fedcurv.anchor"
_ROUND = "fedcurv.round"
_AT_ONCE = 2_000_000
"""Numbers of per-sample gradients held at a time."""


@terms.register("curvature")
class Curvature(Term):
    """λ Σⱼ (w − wⱼ)ᵀ diag(Fⱼ) (w − wⱼ) over the clients j of the last round, without the client itself.

    Fⱼ is the mean square of the samples' gradients at wⱼ. Clients send Fⱼ and Fⱼ ⊙ wⱼ; the gradient is
    2λ (w ⊙ Σ Fⱼ − Σ Fⱼ ⊙ wⱼ).
    """

    in_step: ClassVar[bool] = True  # a client knows by the round whether its own share is in the sums

    strength: float = Field(1e-3, ge=0, description="λ")
    include_self: bool = Field(False, description="sum over the client's own too, as the released code does")

    @property
    def surveys(self) -> When | None:
        """The curvature is taken at the trained model."""
        return "end"

    def server_state(self, layout: Layout) -> State:
        """Σ Fⱼ and Σ Fⱼ ⊙ wⱼ of nobody, and the number of rounds so far."""
        return {_F: layout.zeros(), _FW: layout.zeros(), _ROUND: torch.zeros(())}

    def client_state(self, layout: Layout) -> State:
        """Nothing of one's own yet."""
        return {_F: layout.zeros(), _FW: layout.zeros(), _ROUND: torch.full((), -1.0)}

    def broadcast(self, state: State) -> State:
        """Both sums, and the round they are of."""
        return {name: state[name] for name in (_F, _FW, _ROUND)}

    def correct(self, gradient: Tensor, parameters: Tensor, client: Client) -> Tensor:
        """g + 2λ (w ⊙ Σ Fⱼ − Σ Fⱼ ⊙ wⱼ)."""
        received, own = client.received, client.state
        # The client's own share is in the sums if it took part in the round they are of.
        mine = 0.0 if self.include_self else (own[_ROUND] == received[_ROUND]).float()
        fisher = received[_F] - mine * own[_F]
        anchor = received[_FW] - mine * own[_FW]
        return gradient.add_(parameters * fisher - anchor, alpha=2 * self.strength)

    def survey(self, parameters: Tensor, net: Net, loss: Loss, batch: Batch, client: Client) -> State:
        """The sum of the squares of the samples' gradients."""

        def one(parameters: Tensor, x: Tensor, label: Tensor) -> Tensor:
            return loss(net.at(parameters)(x[None]), label[None], client.counts)[0]

        squares = torch.zeros_like(parameters)
        for some in batch.split(max(1, _AT_ONCE // parameters.numel())):
            gradients = vmap(grad(one), (None, 0, 0))(parameters, some.x, some.labels)
            squares = squares + some.sum(gradients.square())
        return {_F: squares}

    def sends(self, layout: Layout) -> State:
        """Two numbers a parameter."""
        return {_F: layout.zeros(), _FW: layout.zeros()}

    def upload(self, done: Finished) -> tuple[State, State]:
        """F and F ⊙ w, sent and remembered."""
        fisher = done.surveyed[_F]
        both = {_F: fisher, _FW: fisher * done.end}
        return both, {**both, _ROUND: done.client.received[_ROUND] + 1}

    def plausible(self, update: Update, local: Local, rates: Callable[[], Rates]) -> bool:
        """A curvature below zero would have clients run away from where the others are."""
        return bool((update.change[_F] >= 0).all())

    def absorb(self, server: Server, aggregate: Aggregate) -> Server:
        """The sums over this round's clients."""
        sums = {name: aggregate.change[name] * aggregate.clients for name in (_F, _FW)}
        return server.moved(server.model, {**sums, _ROUND: server.state[_ROUND] + 1})


@methods.register("fedcurv")
class FedCurv(FedAvg):
    """FedAvg whose clients are held where the others' curvature says that it matters."""

    strength: float = Field(1e-3, ge=0, description="λ of the curvature term")
    include_self: bool = Field(False, description="sum over the client's own curvature too")

    @property
    def own_terms(self) -> tuple[Term, ...]:
        """The curvature term."""
        return (Curvature(strength=self.strength, include_self=self.include_self),)
