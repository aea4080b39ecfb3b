"""What a federated method is made of.

A method is a choice for each of a few orthogonal parts: the loss a client minimises, how its gradient is
corrected, how much it counts in the aggregate, what the server does with the aggregate, and what happens
to buffers. Each part is written for one client (or for the server) as plain functions of tensors; nothing
here knows how a cohort is run.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, NamedTuple, Protocol

from torch import Tensor

from mnemos.local import Local
from mnemos.objectives.ce import CrossEntropy
from mnemos.objectives.objective import Objective, objectives
from mnemos.registry import Part, Registry
from mnemos.vector import Layout

State = dict[str, Tensor]


class Client(NamedTuple):
    """What a method sees of one client while it trains."""

    start: Tensor
    """The model received: x [P]."""
    received: State
    """What the server sent beside the model."""
    state: State
    """What the client remembers from its last round."""
    counts: Tensor
    """How many training samples of each class the client has [C]; this never leaves the client."""


class Finished(NamedTuple):
    """A client at the end of its local training."""

    client: Client
    end: Tensor
    """The trained model: y [P]."""
    steps: int
    local: Local


class Net(Protocol):
    """A client's model with its current parameters, as a function."""

    def __call__(self, x: Tensor) -> Tensor:
        """Logits [B, C]."""

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features [B, d] and logits [B, C]."""


@dataclass(frozen=True)
class Update:
    """What a client sends back."""

    client: int
    round: int
    samples: int
    steps: int
    loss: float
    """Mean training loss over the samples seen."""
    delta: Tensor
    """The change of the model: y − x."""
    buffers: Tensor
    change: State
    """What the method's correction uploads beside the model."""
    state: State
    """What the client will remember; it stays where the client runs."""


@dataclass(frozen=True)
class Server:
    """What the server holds between rounds."""

    model: Tensor
    buffers: Tensor
    state: State


@dataclass(frozen=True)
class Aggregate:
    """A cohort's updates folded into one."""

    delta: Tensor
    """Σ aₖ Δₖ / Σ aₖ with the weighting's aₖ."""
    buffers: Tensor
    change: State
    """Plain mean of the uploaded changes."""
    clients: int
    share: float = 1.0
    """The cohort's share of all clients: |S| / N."""


class Fold(Protocol):
    """Takes updates as they arrive, in cohort order, and keeps no more than it must."""

    def add(self, update: Update, weight: Tensor | float) -> None:
        """Take in one update."""

    def result(self) -> Aggregate:
        """The aggregate of all updates so far."""


class Correction(Part):
    """How a local gradient is changed, and the state and uploads this takes."""

    def server_state(self, layout: Layout) -> State:
        """What the server keeps for the correction, before the first round."""
        return {}

    def client_state(self, layout: Layout) -> State:
        """What a client remembers before its first round."""
        return {}

    def broadcast(self, state: State) -> State:
        """What clients receive of the server's state."""
        return {}

    def correct(self, gradient: Tensor, parameters: Tensor, client: Client) -> Tensor:
        """The gradient a step is taken along; may change it in place."""
        return gradient

    def upload(self, done: Finished) -> tuple[State, State]:
        """(what is sent beside the model, what the client will remember)."""
        return {}, done.client.state

    def absorb(self, state: State, aggregate: Aggregate) -> State:
        """The server's state after a round, from what the cohort uploaded."""
        return state


class Weighting(Part):
    """How much each client's tensors count."""

    @abstractmethod
    def weigh(self, update: Update, layout: Layout) -> Tensor | float:
        """A weight, not yet normalised: one number, or one for each parameter [P]."""


class ServerStep(Part):
    """How the aggregate becomes the next model."""

    def server_state(self, layout: Layout) -> State:
        """What the step keeps between rounds."""
        return {}

    @abstractmethod
    def fold(self, layout: Layout) -> Fold:
        """A fresh fold for one round."""

    @abstractmethod
    def step(self, server: Server, aggregate: Aggregate) -> tuple[Tensor, State]:
        """The next model, and the step's new state."""


class BufferPolicy(Part):
    """What happens to batch-norm statistics and other buffers."""

    @abstractmethod
    def next(self, server: Tensor, mean: Tensor) -> Tensor:
        """The server's next buffers, from its present ones and the cohort's mean."""


_PACKAGE = "mnemos.methods"
corrections: Registry[Correction] = Registry("correction", Correction, _PACKAGE)
weightings: Registry[Weighting] = Registry("weighting", Weighting, _PACKAGE)
server_steps: Registry[ServerStep] = Registry("server step", ServerStep, _PACKAGE)
buffer_policies: Registry[BufferPolicy] = Registry("buffer policy", BufferPolicy, _PACKAGE)


class Method(Part):
    """A federated method: a choice for each part, and the order in which they act."""

    loss: Annotated[Objective, objectives] = CrossEntropy()
    correction: Annotated[Correction, corrections]
    weighting: Annotated[Weighting, weightings]
    server: Annotated[ServerStep, server_steps]
    buffers: Annotated[BufferPolicy, buffer_policies]

    def server_state(self, layout: Layout) -> State:
        """What the server keeps between rounds, before the first."""
        return {**self.correction.server_state(layout), **self.server.server_state(layout)}

    def client_state(self, layout: Layout) -> State:
        """What a client remembers before its first round."""
        return self.correction.client_state(layout)

    def broadcast(self, server: Server) -> State:
        """What clients receive beside the model."""
        return self.correction.broadcast(server.state)

    def batch_loss(self, net: Net, x: Tensor, labels: Tensor, client: Client) -> Tensor:
        """The losses [B] of one batch; their mean is minimised."""
        return self.loss(net(x), labels, client.counts)

    def correct(self, gradient: Tensor, parameters: Tensor, client: Client) -> Tensor:
        """The gradient a step is taken along; may change it in place."""
        return self.correction.correct(gradient, parameters, client)

    @property
    def corrects(self) -> bool:
        """Whether gradients are changed at all: engines needn't ask for each step if not."""
        return (
            type(self).correct is not Method.correct
            or type(self.correction).correct is not Correction.correct
        )

    def upload(self, done: Finished) -> tuple[State, State]:
        """(what is sent beside the model, what the client will remember)."""
        return self.correction.upload(done)

    def server_step(self, server: Server, aggregate: Aggregate) -> Server:
        """The server after a round."""
        model, state = self.server.step(server, aggregate)
        state = self.correction.absorb({**server.state, **state}, aggregate)
        return Server(model, self.buffers.next(server.buffers, aggregate.buffers), state)


methods: Registry[Method] = Registry("method", Method, _PACKAGE)
