"""The kinds of parts a method is made of, and where each kind is found by name."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from torch import Tensor

from mnemos.local import Local
from mnemos.methods.exchange import Aggregate, Batch, Client, Finished, Fold, Net, Server, State, Update, When
from mnemos.objectives.objective import Objective
from mnemos.registry import Part, Registry
from mnemos.vector import Layout


class MethodPart(Part):
    """A part of a method. It can keep state on either side, send something along, and act at many places.

    All of it is optional: what a part doesn't override isn't called. State has names that no other part
    uses: they start with the part's own.
    """

    @property
    def surveys(self) -> When | None:
        """Whether `survey` passes over the client's data before or after its training."""
        return None

    def check(self, layout: Layout, local: Local, classes: int) -> None:
        """Refuse, with a `ConfigError`, what the part can't work with."""

    def warnings(self, local: Local) -> tuple[str, ...]:
        """What about the local training is known to hurt the part."""
        return ()

    # what is kept, and what travels

    def server_state(self, layout: Layout) -> State:
        """What the server keeps for the part, before the first round."""
        return {}

    def client_state(self, layout: Layout) -> State:
        """What a client remembers before its first round."""
        return {}

    def broadcast(self, state: State) -> State:
        """What clients receive of the server's state."""
        return {}

    # at the client

    def look(self, parameters: Tensor, client: Client) -> Tensor:
        """The point where the gradient of the next step is taken."""
        return parameters

    def correct(self, gradient: Tensor, parameters: Tensor, client: Client) -> Tensor:
        """The gradient a step is taken along; may change it in place."""
        return gradient

    def settle(self, parameters: Tensor, net: Net, loss: Objective, batch: Batch, client: Client) -> Tensor:
        """The parameters after the optimiser's step on a batch."""
        return parameters

    def survey(self, parameters: Tensor, net: Net, loss: Objective, batch: Batch, client: Client) -> State:
        """Sums over the samples of a batch; in training mode at the start, in evaluation mode at the end."""
        return {}

    def upload(self, done: Finished) -> tuple[State, State]:
        """(what is sent beside the model, what the client will remember of the part's state)."""
        return {}, {}

    # at the server

    def absorb(self, server: Server, aggregate: Aggregate) -> Server:
        """The server after the round, from what the server step made of it and what was uploaded."""
        return server


class Term(MethodPart):
    """Something added to what a client minimises: by its losses, or by its gradient in `correct`."""

    wants_features: ClassVar[bool] = False

    def losses(self, net: Net, batch: Batch, features: Tensor, client: Client) -> Tensor | float:
        """Losses [B] added to the objective's; features [B, d] only where they are wanted."""
        return 0.0


class Correction(MethodPart):
    """How a local gradient or step is changed."""


class Weighting(MethodPart):
    """How much each client's tensors count."""

    @abstractmethod
    def weigh(self, update: Update, layout: Layout) -> Tensor | float:
        """A weight, not yet normalised: one number, or one for each parameter [P]."""


class ServerStep(MethodPart):
    """How the aggregate becomes the next model."""

    @abstractmethod
    def fold(self, layout: Layout) -> Fold:
        """A fresh fold for one round."""

    @abstractmethod
    def step(self, server: Server, aggregate: Aggregate) -> tuple[Tensor, State]:
        """The next model, and what changes of the step's state."""


class BufferPolicy(Part):
    """What happens to batch-norm statistics and other buffers."""

    local: ClassVar[bool] = False
    """Whether a client goes on with its own instead of receiving the server's."""
    received: ClassVar[bool] = True
    """Whether clients need the server's in every round."""
    sent: ClassVar[bool] = True
    """Whether clients send theirs."""
    in_batches: ClassVar[bool] = False
    """Whether batch-norm uses the statistics of the batch in evaluation too."""

    @abstractmethod
    def next(self, server: Tensor, mean: Tensor) -> Tensor:
        """The server's next buffers, from its present ones and the cohort's mean."""


_PACKAGE = "mnemos.methods"
terms: Registry[Term] = Registry("term", Term, _PACKAGE)
corrections: Registry[Correction] = Registry("correction", Correction, _PACKAGE)
weightings: Registry[Weighting] = Registry("weighting", Weighting, _PACKAGE)
server_steps: Registry[ServerStep] = Registry("server step", ServerStep, _PACKAGE)
buffer_policies: Registry[BufferPolicy] = Registry("buffer policy", BufferPolicy, _PACKAGE)
