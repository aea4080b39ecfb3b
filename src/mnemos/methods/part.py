"""The kinds of parts a method is made of, and where each kind is found by name."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import ClassVar, Self

import torch
from pydantic import PrivateAttr
from torch import Tensor

from mnemos.local import Local
from mnemos.methods.exchange import (
    Aggregate,
    Batch,
    Client,
    Cohort,
    Finished,
    Fold,
    Net,
    Rates,
    Server,
    State,
    Update,
    Weight,
    When,
)
from mnemos.methods.head import Head
from mnemos.objectives.objective import Loss
from mnemos.registry import Part, Registry
from mnemos.vector import Layout


class MethodPart(Part):
    """A part of a method. It can keep state on either side, send something along, and act at many places.

    All of it is optional: what a part doesn't override isn't called. State has names that no other part
    uses: they start with the part's own.
    """

    in_step: ClassVar[bool] = False
    """Whether a round's clients must have been sent the same model, which asynchronous ones aren't."""
    partial: ClassVar[bool] = False
    """Whether it is made for clients of which some stop before they are through."""

    def sends(self, layout: Layout) -> State:
        """What is uploaded beside the model, as an example: names, shapes and types."""
        return {}

    @property
    def surveys(self) -> When | None:
        """Whether `survey` passes over the client's data before or after its training."""
        return None

    @property
    def traced(self) -> str | None:
        """Which vector of the survey at the end is taken back through the client's steps, if any."""
        return None

    @property
    def inner(self) -> tuple[MethodPart, ...]:
        """Other parts that this one is made of; they act beside it."""
        return ()

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

    def draw(self, count: int, layout: Layout, generator: torch.Generator) -> State:
        """What is random about a step, for `Batch.drawn`; `count` is the size of a full batch."""
        return {}

    def look(self, parameters: Tensor, client: Client) -> Tensor:
        """The point where the gradient of the next step is taken."""
        return parameters

    def correct(self, gradient: Tensor, parameters: Tensor, client: Client) -> Tensor:
        """The gradient a step is taken along; may change it in place."""
        return gradient

    def settle(self, parameters: Tensor, net: Net, loss: Loss, batch: Batch, client: Client) -> Tensor:
        """The parameters after the optimiser's step on a batch."""
        return parameters

    def survey(self, parameters: Tensor, net: Net, loss: Loss, batch: Batch, client: Client) -> State:
        """Sums over the samples of a batch; in training mode at the start, in evaluation mode at the end."""
        return {}

    def upload(self, done: Finished) -> tuple[State, State]:
        """(what is sent beside the model, what the client will remember of the part's state).

        What is sent looks as `sends` says.
        """
        return {}, {}

    # at the server

    def plausible(self, update: Update, local: Local, rates: Callable[[], Rates]) -> bool:
        """Whether an honest client can have sent this beside the model.

        It looks as `sends` says, and is finite. `rates` are those of a client that trains to the end.
        """
        return True

    def absorb(self, server: Server, aggregate: Aggregate) -> Server:
        """The server after the round, from what the server step made of it and what was uploaded."""
        return server


class Term(MethodPart):
    """Something added to what a client minimises: by its losses, or by its gradient in `correct`."""

    wants_features: ClassVar[bool] = False
    needs: ClassVar[str | None] = None
    """Another term without which this one can't work."""

    _head: Head = PrivateAttr(default_factory=Head)
    """How the method's model is asked for classes."""

    def within(self, head: Head) -> Self:
        """The term in a method with this head."""
        term = self.model_copy()
        term._head = head
        return term

    def losses(self, net: Net, batch: Batch, features: Tensor, client: Client) -> Tensor | float:
        """Losses [B] added to the objective's; features [B, d] only where they are wanted."""
        return 0.0


class Correction(MethodPart):
    """How a local gradient or step is changed, or what is made of a client's steps."""

    def training(self, local: Local) -> Local:
        """The local training it makes of what was asked for."""
        return local

    def delta(self, done: Finished) -> Tensor:
        """What the server folds: the change of the model, as a rule."""
        return done.end - done.client.start


class Weighting(MethodPart):
    """How much each client's tensors count beside those of the round's other clients."""

    plain: ClassVar[bool] = False
    """Whether a client counts the same in all layers, whatever the others do."""

    @property
    def falls_short(self) -> bool:
        """Whether its weights may sum to less than one, and the model is to shrink by what is missing."""
        return False

    @property
    def by_upload(self) -> bool:
        """Whether a client's weight is found in what it sends, so that one alone may get most of it."""
        return False

    @abstractmethod
    def weigh_cohort(self, cohort: Cohort) -> Iterator[Weight]:
        """Each client's weight in a cohort, aₖ = K αₖ with Σ αₖ = 1, for each parameter and buffer entry.

        Times K, so that equal clients have weights of exactly 1, whatever their number.
        """


class Single(Weighting):
    """A weighting that looks at one client at a time: updates needn't be kept until all are back."""

    @abstractmethod
    def weigh(self, update: Update, layout: Layout) -> Weight:
        """A client's weight, not yet normalised."""

    def weigh_cohort(self, cohort: Cohort) -> Iterator[Weight]:
        """The same, normalised."""
        weights = [self.weigh(update, cohort.layout) for update in cohort.updates]
        sums = [sum(column) / len(weights) for column in zip(*weights, strict=True)]
        for weight in weights:
            yield Weight(*(_share(value, mean) for value, mean in zip(weight, sums, strict=True)))


def _share(value: Tensor | float, mean: Tensor | float) -> Tensor | float:
    """A weight beside the cohort's mean weight; 1 where nobody has any."""
    if isinstance(mean, Tensor):
        return torch.where(mean > 0, value / mean, 1.0)
    return value / mean if mean > 0 else 1.0


class Rule(Part):
    """How a round's updates become one."""

    by_layer: ClassVar[bool] = True
    """Whether clients may count differently from layer to layer."""

    @property
    def fewest(self) -> int:
        """Updates that it takes for the rule to do what it is for."""
        return 1

    @abstractmethod
    def fold(self, layout: Layout) -> Fold:
        """A fresh fold for one round."""


class ServerStep(MethodPart):
    """How the aggregate becomes the next model."""

    def fold(self, layout: Layout) -> Fold | None:
        """A fresh fold for one round, if the step has a mean of its own; None: the method's rule has."""
        return None

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


class _Weightings(Registry[Weighting]):
    """All weightings; `{effective-rank: 0.5, samples: 0.5}` is a blend of them."""

    def parse(self, value: object) -> Weighting:
        """A weighting from its name, from a mapping with options, or from names with shares."""
        if isinstance(value, dict) and self.reads(value):
            value = {"name": "blend", "of": [{"weighting": n, "share": s} for n, s in value.items()]}
        return super().parse(value)

    def reads(self, value: object) -> bool:
        """Names of weightings with their shares."""
        return isinstance(value, dict) and "name" not in value and not value.keys().isdisjoint(self.names())


_PACKAGE = "mnemos.methods"
terms: Registry[Term] = Registry("term", Term, _PACKAGE)
corrections: Registry[Correction] = Registry("correction", Correction, _PACKAGE)
weightings: Registry[Weighting] = _Weightings("weighting", Weighting, _PACKAGE)
rules: Registry[Rule] = Registry("rule", Rule, _PACKAGE)
server_steps: Registry[ServerStep] = Registry("server step", ServerStep, _PACKAGE)
buffer_policies: Registry[BufferPolicy] = Registry("buffer policy", BufferPolicy, _PACKAGE)
