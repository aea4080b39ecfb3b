"""SCAFFOLD: control variates against client drift (Karimireddy et al., 2020, arXiv 1910.06378)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from torch import Tensor
from torch.func import grad

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
from mnemos.methods.part import (
    Correction,
    ServerStep,
    Weighting,
    corrections,
    server_steps,
    weightings,
)
from mnemos.methods.presets.fedavg import FedAvg
from mnemos.methods.presets.fedopt import ServerSgd
from mnemos.methods.weightings.uniform import Uniform
from mnemos.objectives.objective import Loss
from mnemos.optim.local import Local
from mnemos.optim.sgd import Sgd
from mnemos.vector import Layout

_C = "scaffold.c"
_GRADIENT = "scaffold.gradient"
_ROUNDING = 1e-3
"""The relative difference that is allowed between a client's arithmetic and the server's."""
_TINY = 1e-300


@corrections.register("scaffold")
class ControlVariates(Correction):
    """Corrects every local step by control variates of the client and of all clients.

    Steps along g − cᵢ + c, where cᵢ and c estimate the client's and everyone's gradient; both start at 0.

    cᵢ⁺ is, by option I, the gradient of all the client's samples at the model received, and by option II
    cᵢ − c + (x − y) / (K η) of its K steps, K η being the sum of their rates. Then
    c ← c + |S|/N · mean (cᵢ⁺ − cᵢ).
    """

    by_parameter: ClassVar[bool] = True

    option: Literal["I", "II"] = Field("II", description="how a client's control variate is renewed")

    @property
    def data_pass_at(self) -> When | None:
        """Option I needs the gradient at the model received."""
        return "start" if self.option == "I" else None

    def warnings(self, local: Local) -> tuple[str, ...]:
        """Option II reads the mean gradient off the client's path, which is right for plain SGD only."""
        plain = isinstance(local.optimizer, Sgd) and not local.optimizer.momentum
        if plain or self.option == "I":
            return ()
        return (
            "SCAFFOLD's option II takes (x − y) / (K η) for the mean gradient: true for plain SGD only; "
            "method.correction.option=I doesn't depend on it",
        )

    def server_state(self, layout: Layout) -> State:
        """c = 0."""
        return {_C: layout.zeros()}

    def client_state(self, layout: Layout) -> State:
        """cᵢ = 0."""
        return {_C: layout.zeros()}

    def broadcast(self, state: State) -> State:
        """c."""
        return {_C: state[_C]}

    def correct(self, gradient: Tensor, parameters: Tensor, client: Client) -> Tensor:
        """g − cᵢ + c."""
        return gradient.sub_(client.state[_C]).add_(client.received[_C])

    def data_pass(self, parameters: Tensor, net: Net, loss: Loss, batch: Batch, client: Client) -> State:
        """The sum of the samples' gradients."""

        def total(parameters: Tensor) -> Tensor:
            return batch.sum(loss(net.at(parameters)(batch.x), batch.labels, client.counts))

        return {_GRADIENT: grad(total)(parameters)}

    def sends(self, layout: Layout) -> State:
        """A number for each parameter."""
        return {_C: layout.zeros()}

    def upload(self, done: Finished) -> tuple[State, State]:
        """(cᵢ⁺ − cᵢ, cᵢ⁺)."""
        client = done.client
        if self.option == "I":
            new = done.data_means[_GRADIENT]
            return {_C: new - client.state[_C]}, {_C: new}
        # Not computed as cᵢ⁺ − cᵢ: near an optimum cᵢ is far larger, and only rounding would remain.
        mean = (client.start - done.end) / sum(steps * rate for steps, rate in done.rates)
        change = mean - client.received[_C]
        return {_C: change}, {_C: client.state[_C] + change}

    def plausible(
        self, update: TrainReply, received: State, local: Local, rates: Callable[[], Rates]
    ) -> bool:
        """Whether cᵢ⁺ − cᵢ = −c − Δ / (K η), as option II has it; the server can compute all of it."""
        if self.option == "I":
            return True
        found = [rate for _, rate in rates()]
        least, most = (1 / (update.steps * rate) if rate else math.inf for rate in (max(found), min(found)))
        delta, change = update.delta.double(), update.change[_C].double()
        rest, square = change + received[_C], delta @ delta
        inverse = -(rest @ delta) / square.clamp_min(_TINY)  # of the K η that fits best
        inverse = inverse.clamp(least, most)
        sizes = _length(change) + _length(received[_C].double()) + inverse * square.sqrt()
        return bool(_length(rest.addcmul_(delta, inverse)) <= _ROUNDING * sizes)

    def absorb(self, server: Server, aggregate: Aggregate) -> Server:
        """c + |S|/N · mean (cᵢ⁺ − cᵢ)."""
        c = server.state[_C] + aggregate.share * aggregate.change[_C]
        return server.moved(server.model, {_C: c})


def _length(vector: Tensor) -> Tensor:
    """‖v‖ in double precision, in which no square of a float32 overflows; faster than a norm that may not."""
    return (vector @ vector).sqrt()


@methods.register("scaffold")
class Scaffold(FedAvg):
    """FedAvg with control variates at clients and server, and a server step size."""

    correction: Annotated[Correction, corrections] = ControlVariates()
    weighting: Annotated[Weighting, weightings] = Uniform()
    server: Annotated[ServerStep, server_steps] = ServerSgd()
