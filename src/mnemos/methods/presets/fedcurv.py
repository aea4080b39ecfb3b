"""FedCurv: elastic weights across clients (Shoham et al., 2019, arXiv 1910.07796)."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor
from torch.func import grad, vmap

from mnemos.methods.exchange import (
    Aggregate,
    Batch,
    Client,
    Finished,
    Net,
    Rates,
    Server,
    State,
    TrainReply,
    When,
)
from mnemos.methods.method import methods
from mnemos.methods.part import Term, terms
from mnemos.methods.presets.fedavg import FedAvg
from mnemos.objectives.objective import Loss
from mnemos.optim.local import Local
from mnemos.vector import Layout

_F = "fedcurv.fisher"
_FW = "fedcurv.anchor"
_ROUND = "fedcurv.round"
_AT_ONCE = 2_000_000
"""The most numbers of per-sample gradients that are in memory at a time."""


@terms.register("curvature")
class Curvature(Term):
    """Holds the parameters that matter to the other clients, by their curvature.

    λ Σⱼ (w − wⱼ)ᵀ diag(Fⱼ) (w − wⱼ) over the clients j of the last round, without the client itself.

    Fⱼ is the mean square of the samples' gradients at wⱼ. Clients send Fⱼ and Fⱼ ⊙ wⱼ; the gradient is
    2λ (w ⊙ Σ Fⱼ − Σ Fⱼ ⊙ wⱼ).
    """

    in_step: ClassVar[bool] = True  # a client knows by the round whether its own share is in the sums

    strength: float = Field(1e-3, ge=0, description="λ")
    include_self: bool = Field(False, description="sum over the client's own too, as the released code does")

    @property
    def data_pass_at(self) -> When | None:
        """The curvature is taken at the trained model."""
        return "end"

    def server_state(self, layout: Layout) -> State:
        """Σ Fⱼ and Σ Fⱼ ⊙ wⱼ over no clients, and the number of rounds so far."""
        return {_F: layout.zeros(), _FW: layout.zeros(), _ROUND: torch.zeros(())}

    def client_state(self, layout: Layout) -> State:
        """F = 0 and F ⊙ w = 0, of no round yet."""
        return {_F: layout.zeros(), _FW: layout.zeros(), _ROUND: torch.full((), -1.0)}

    def broadcast(self, state: State) -> State:
        """Both sums, and the round that they are from."""
        return {name: state[name] for name in (_F, _FW, _ROUND)}

    def correct(self, gradient: Tensor, parameters: Tensor, client: Client) -> Tensor:
        """g + 2λ (w ⊙ Σ Fⱼ − Σ Fⱼ ⊙ wⱼ)."""
        received, own = client.received, client.state
        # The sums include the client's own share if it took part in the round that they are from.
        mine = 0.0 if self.include_self else (own[_ROUND] == received[_ROUND]).float()
        fisher = received[_F] - mine * own[_F]
        anchor = received[_FW] - mine * own[_FW]
        return gradient.add_(parameters * fisher - anchor, alpha=2 * self.strength)

    def data_pass(self, parameters: Tensor, net: Net, loss: Loss, batch: Batch, client: Client) -> State:
        """The sum of the squares of the samples' gradients."""

        def one(parameters: Tensor, x: Tensor, label: Tensor) -> Tensor:
            return loss(net.at(parameters)(x[None]), label[None], client.counts)[0]

        squares = torch.zeros_like(parameters)
        for some in batch.split(max(1, _AT_ONCE // parameters.numel())):
            gradients = vmap(grad(one), (None, 0, 0))(parameters, some.x, some.labels)
            squares = squares + some.sum(gradients.square())
        return {_F: squares}

    def sends(self, layout: Layout) -> State:
        """Two numbers for each parameter."""
        return {_F: layout.zeros(), _FW: layout.zeros()}

    def upload(self, done: Finished) -> tuple[State, State]:
        """F and F ⊙ w, sent and remembered."""
        fisher = done.data_means[_F]
        both = {_F: fisher, _FW: fisher * done.end}
        return both, {**both, _ROUND: done.client.received[_ROUND] + 1}

    def plausible(
        self, update: TrainReply, received: State, local: Local, rates: Callable[[], Rates]
    ) -> bool:
        """F is not negative; else the term would push clients away from the others."""
        return bool((update.change[_F] >= 0).all())

    def absorb(self, server: Server, aggregate: Aggregate) -> Server:
        """The sums over this round's clients."""
        sums = {name: aggregate.change[name] * aggregate.clients for name in (_F, _FW)}
        return server.moved(server.model, {**sums, _ROUND: server.state[_ROUND] + 1})


@methods.register("fedcurv")
class FedCurv(FedAvg):
    """FedAvg whose clients keep the parameters that matter to other clients, measured by curvature."""

    strength: float = Field(1e-3, ge=0, description="λ of the curvature term")
    include_self: bool = Field(False, description="sum over the client's own curvature too")

    @property
    def own_terms(self) -> tuple[Term, ...]:
        """The curvature term."""
        return (Curvature(strength=self.strength, include_self=self.include_self),)
