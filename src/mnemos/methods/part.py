"""The kinds of parts a method is made of, and where each kind is found by name."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import ClassVar, Self

import torch
from pydantic import PrivateAttr
from torch import Tensor

from mnemos.common.registry import Part, Registry
from mnemos.methods.exchange import (
    Aggregate,
    Batch,
    Client,
    Cohort,
    Finished,
    Fold,
    Net,
    Occasion,
    Rates,
    Server,
    State,
    TrainReply,
    Weight,
    When,
)
from mnemos.methods.head import Head
from mnemos.objectives.objective import Loss
from mnemos.optim.local import Local
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
    takes_models: ClassVar[bool] = False
    """Whether it takes x + Δ for a client's model, or Δ for the way that its steps have gone."""

    def sends(self, layout: Layout) -> State:
        """What is uploaded beside the model, as an example: names, shapes and types."""
        return {}

    @property
    def data_pass_at(self) -> When | None:
        """When `data_pass` passes over the client's samples: before or after training; None: never."""
        return None

    def check(self, layout: Layout, local: Local, classes: int) -> None:
        """Refuse, with a `ConfigError`, what the part can't work with."""

    def warnings(self, local: Local) -> tuple[str, ...]:
        """What about the local training is known to hurt the part."""
        return ()

    # what is kept, and what travels

    @property
    def keeps_at_server(self) -> bool:
        """Whether the server keeps something for the part, whatever the model is."""
        return type(self).server_state is not MethodPart.server_state

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

    def correct(self, gradient: Tensor, parameters: Tensor, client: Client) -> Tensor:
        """The gradient a step is taken along; may change it in place."""
        return gradient

    def data_pass(self, parameters: Tensor, net: Net, loss: Loss, batch: Batch, client: Client) -> State:
        """Sums over the samples of a batch; in training mode at the start, in evaluation mode at the end.

        Their means over all samples are found in `Finished.data_means`.
        """
        return {}

    def upload(self, done: Finished) -> tuple[State, State]:
        """(what is sent beside the model, what the client will remember of the part's state).

        What is sent looks as `sends` says.
        """
        return {}, {}

    # at the server

    def plausible(
        self, update: TrainReply, received: State, local: Local, rates: Callable[[], Rates]
    ) -> bool:
        """Whether an honest client can have sent this beside the model.

        It looks as `sends` says, and is finite. `received` is what the client was sent beside the model, and
        `rates` are those of a client that trains to the end.
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

    @property
    def sends_change(self) -> bool:
        """Whether what the server folds is the change of the client's model."""
        return type(self).delta is Correction.delta

    @property
    def traced(self) -> str | None:
        """Which vector of the data pass at the end `pull_back` takes back through the steps; None: none."""
        return None

    def training(self, local: Local) -> Local:
        """The local training it makes of what was asked for."""
        return local

    def gradient_point(self, parameters: Tensor, client: Client) -> Tensor:
        """The parameters at which the gradient of the next step is taken."""
        return parameters

    def after_step(self, parameters: Tensor, net: Net, loss: Loss, batch: Batch, client: Client) -> Tensor:
        """The parameters after a step, from those that the optimiser's step on the batch has led to."""
        return parameters

    def pull_back(
        self, vector: Tensor, parameters: Tensor, loss: Callable[[Tensor], Tensor], rate: Tensor
    ) -> Tensor:
        """A gradient of the parameters after a step, as one of those before it.

        The step began at `parameters`, `loss` is the mean loss of its batch as a function of parameters, and
        `rate` is its (learning rate, weight decay). The steps are those of plain SGD.
        """
        return vector

    def delta(self, done: Finished) -> Tensor:
        """What the server folds: the change of the model, as a rule."""
        return done.end - done.client.start


class Weighting(MethodPart):
    """How much each client's tensors count beside those of the round's other clients."""

    plain: ClassVar[bool] = False
    """Whether a client counts the same in all layers, whatever the others do."""
    one_by_one: ClassVar[bool] = False
    """Whether a client's weight, before it is normalised, is found from its own update alone."""
    equal: ClassVar[bool] = False
    """Whether all clients count the same; each class says so for itself."""

    @property
    def blended(self) -> tuple[Weighting, ...]:
        """Other weightings that this one is made of; they keep state and send something beside it."""
        return ()

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

    one_by_one: ClassVar[bool] = True

    @abstractmethod
    def weigh(self, update: TrainReply, layout: Layout) -> Weight:
        """A client's weight, not yet normalised."""

    def weigh_cohort(self, cohort: Cohort) -> Iterator[Weight]:
        """The same, normalised."""
        weights = [self.weigh(update, cohort.layout) for update in cohort.updates]
        sums = [sum(column) / len(weights) for column in zip(*weights, strict=True)]
        for weight in weights:
            yield Weight(*(_share(value, mean) for value, mean in zip(weight, sums, strict=True)))


def _share(value: Tensor | float, mean: Tensor | float) -> Tensor | float:
    """A weight beside the cohort's mean weight; 1 where no client has any."""
    if isinstance(mean, Tensor):
        return torch.where(mean > 0, value / mean, 1.0)
    return value / mean if mean > 0 else 1.0


class Rule(MethodPart):
    """How a round's updates become one."""

    by_layer: ClassVar[bool] = True
    """Whether clients may count differently from layer to layer."""
    is_mean: ClassVar[bool] = False
    """Whether it is the weighted mean of the updates and nothing more; each class says so for itself."""

    @property
    def fewest(self) -> int:
        """Updates that it takes for the rule to do what it is for."""
        return 1

    def during(self, occasion: Occasion) -> Self:
        """The rule in one round."""
        return self

    @abstractmethod
    def fold(self, layout: Layout) -> Fold:
        """A fresh fold for one round."""


class ServerStep(MethodPart):
    """How the aggregate becomes the next model."""

    @property
    def has_own_mean(self) -> bool:
        """Whether it folds updates itself, in the place of the method's rule."""
        return type(self).fold is not ServerStep.fold

    @property
    def moves(self) -> float | None:
        """ρ of a step x ← x + ρ Σ aₖ Δₖ / Σ aₖ, if it is one; 1 takes over the clients' mean."""
        return None

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

    @property
    def moves(self) -> float | None:
        """ρ of a step b ← b + ρ (b̄ − b), if it is one; 1 takes over the clients' mean."""
        return None

    @property
    def stays(self) -> bool:
        """Whether the global model is evaluated with the statistics that it began with."""
        return not (self.sent or self.in_batches)

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
