"""FedDyn: dynamic regularisation (Acar et al., 2021, arXiv 2111.04263)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from mnemos.methods.exchange import Aggregate, Client, Finished, Server, State
from mnemos.methods.method import methods
from mnemos.methods.part import Correction, Weighting, corrections, weightings
from mnemos.methods.presets.fedavg import FedAvg
from mnemos.methods.weightings.uniform import Uniform
from mnemos.vector import Layout

_H = "feddyn.h"


@corrections.register("feddyn")
class Dynamic(Correction):
    """Adds a linear and a quadratic term to each client's loss, from a memory of its gradients.

    Clients minimise L − ⟨hₖ, w⟩ + (α/2) ‖w − x‖², and then hₖ ← hₖ − α (wₖ − x).

    The server keeps h ← h − α |S|/N · mean (wₖ − x), and x ← (what the server step gives) − h/α.
    With α = 0 there is neither a pull nor a memory: FedAvg.
    """

    by_parameter: ClassVar[bool] = True
    in_step: ClassVar[bool] = True  # the server follows clients' hₖ by how far they say they went

    alpha: float = Field(0.01, ge=0, description="strength of the regularisation α")

    def server_state(self, layout: Layout) -> State:
        """h = 0."""
        return {_H: layout.zeros()}

    def client_state(self, layout: Layout) -> State:
        """hₖ = 0."""
        return {_H: layout.zeros()}

    def correct(self, gradient: Tensor, parameters: Tensor, client: Client) -> Tensor:
        """g − hₖ + α (w − x)."""
        return gradient.sub_(client.state[_H]).add_(parameters - client.start, alpha=self.alpha)

    def upload(self, done: Finished) -> tuple[State, State]:
        """hₖ − α (wₖ − x) is kept by the client; nothing is sent, because Δ is all that the server needs."""
        moved = done.end - done.client.start
        return {}, {_H: done.client.state[_H] - self.alpha * moved}

    def absorb(self, server: Server, aggregate: Aggregate) -> Server:
        """h − α |S|/N · mean Δ, and the model minus h/α."""
        if not self.alpha:
            return server
        h = server.state[_H] - self.alpha * aggregate.share * aggregate.delta
        return server.moved(server.model - h / self.alpha, {_H: h})


@methods.register("feddyn")
class FedDyn(FedAvg):
    """FedAvg with a regularisation that adapts to each client, so that local and global optima agree."""

    correction: Annotated[Correction, corrections] = Dynamic()
    weighting: Annotated[Weighting, weightings] = Uniform()
