"""FedOpt: the mean update as a gradient for a server optimiser (Reddi et al., 2021, arXiv 2003.00295).

FedAvgM, a server with momentum, is of Hsu, Qi, Brown, 2019, arXiv 1909.06335.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from mnemos.methods.exchange import Aggregate, Server, State
from mnemos.methods.method import methods
from mnemos.methods.part import ServerStep, server_steps
from mnemos.methods.presets.fedavg import FedAvg
from mnemos.vector import Layout


@server_steps.register("sgd")
class ServerSgd(ServerStep):
    """SGD with momentum at the server, with the mean update as its gradient.

    v ← β v + Δ, x ← x + η v: with β = 0 and η = 1 the mean model, as in FedAvg.
    """

    lr: float = Field(1.0, gt=0, description="server learning rate η")
    momentum: float = Field(0.0, ge=0, lt=1, description="β")

    @property
    def keeps_at_server(self) -> bool:
        """With momentum."""
        return self.momentum > 0

    def server_state(self, layout: Layout) -> State:
        """A velocity of zero, with momentum; else nothing."""
        return {"sgd.velocity": layout.zeros()} if self.momentum else {}

    def step(self, server: Server, aggregate: Aggregate) -> tuple[Tensor, State]:
        """One step along the mean update."""
        if not self.momentum:
            return server.model + self.lr * aggregate.delta, {}
        velocity = self.momentum * server.state["sgd.velocity"] + aggregate.delta
        return server.model + self.lr * velocity, {"sgd.velocity": velocity}


class Adaptive(ServerStep):
    """m ← β₁ m + (1 − β₁) Δ, v by the kind of step, x ← x + η m / (√v + τ); v starts at τ².

    As in the paper, without bias correction.
    """

    lr: float = Field(0.01, gt=0, description="server learning rate η")
    beta1: float = Field(0.9, ge=0, lt=1)
    """β₁, the decay of the mean of the steps."""
    tau: float = Field(1e-3, gt=0, description="degree of adaptivity τ")

    def server_state(self, layout: Layout) -> State:
        """m = 0 and v = τ²."""
        return {"adaptive.m": layout.zeros(), "adaptive.v": layout.zeros() + self.tau**2}

    @abstractmethod
    def second(self, v: Tensor, square: Tensor) -> Tensor:
        """The next v, from the present one and Δ²."""

    def step(self, server: Server, aggregate: Aggregate) -> tuple[Tensor, State]:
        """One step along the mean update, scaled by the history of its squares."""
        m = torch.lerp(aggregate.delta, server.state["adaptive.m"], self.beta1)
        v = self.second(server.state["adaptive.v"], aggregate.delta.square())
        return server.model + self.lr * m / (v.sqrt() + self.tau), {"adaptive.m": m, "adaptive.v": v}


@server_steps.register("adagrad")
class ServerAdagrad(Adaptive):
    """Adagrad at the server, with the mean update as its gradient.

    v ← v + Δ².
    """

    beta1: float = Field(0.0, ge=0, lt=1)

    def second(self, v: Tensor, square: Tensor) -> Tensor:
        """v + Δ²."""
        return v + square


@server_steps.register("adam")
class ServerAdam(Adaptive):
    """Adam at the server, with the mean update as its gradient.

    v ← β₂ v + (1 − β₂) Δ².
    """

    beta2: float = Field(0.99, ge=0, lt=1)
    """β₂, the decay of the mean of the squares."""

    def second(self, v: Tensor, square: Tensor) -> Tensor:
        """β₂ v + (1 − β₂) Δ²."""
        return torch.lerp(square, v, self.beta2)


@server_steps.register("yogi")
class ServerYogi(Adaptive):
    """Yogi at the server, with the mean update as its gradient.

    v ← v − (1 − β₂) Δ² sign(v − Δ²).
    """

    beta2: float = Field(0.99, ge=0, lt=1)
    """β₂, the decay of the mean of the squares."""

    def second(self, v: Tensor, square: Tensor) -> Tensor:
        """v − (1 − β₂) Δ² sign(v − Δ²)."""
        return v - (1 - self.beta2) * square * torch.sign(v - square)


@methods.register("fedopt")
class FedOpt(FedAvg):
    """FedAvg with an optimiser at the server: `sgd` (with momentum: FedAvgM), `adam`, `yogi`, `adagrad`."""

    server: Annotated[ServerStep, server_steps] = ServerAdam()


@methods.register("fedavgm")
class FedAvgM(FedAvg):
    """FedAvg with momentum at the server."""

    server: Annotated[ServerStep, server_steps] = ServerSgd(momentum=0.9)
