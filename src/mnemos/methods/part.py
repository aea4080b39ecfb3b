"""The kinds of parts a method is made of, and where each kind is found by name."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from mnemos.methods.fit import Fit
from mnemos.methods.head import Head
from mnemos.methods.replies import TrainReplies
from mnemos.models.model import Model
from mnemos.objectives.objective import Loss
from mnemos.optim.local import Local
from mnemos.vector import Layout


class MethodPart(Part):
    """A part of a method. It can keep state at the server and at clients, add to messages, and act in steps.

    All of this is optional: a method that a part doesn't override isn't called. The names of a part's state
    start with the part's own name, so that no other part uses them.
    """

    in_step: ClassVar[bool] = False
    """Whether all clients of a round must start from the same model, which asynchronous ones don't."""
    partial: ClassVar[bool] = False
    """Whether it can use updates of clients that had to stop before the end of their training."""
    takes_models: ClassVar[bool] = False
    """Whether it assumes that x + Δ is a client's model, or that Δ is the sum of its steps."""
    changes_samples: ClassVar[bool] = False
    """Whether it changes the numbers of samples by small amounts, as only numbers can be."""
    by_parameter: ClassVar[bool] = False
    """Whether `correct` and `upload` treat each parameter by itself: they may be given many clients at once.

    The gradient, the parameters, the trained model and each of the client's tensors are then [K, P], or [P]
    if they are the same for all clients; what they return is [K, P]. The clients have the same learning
    rates. Subclasses don't inherit this: see `declares`.
    """

    def sends(self, layout: Layout) -> State:
        """An example of what a client uploads beside the model, for names, shapes and types."""
        return {}

    @property
    def data_pass_at(self) -> When | None:
        """When `data_pass` passes over the client's samples: before or after training; None: never."""
        return None

    def fitting(self, model: Model) -> Mapping[str, Fit]:
        """Settings, by dotted names, taken where the experiment has none and the default won't do."""
        return {}

    def check(self, layout: Layout, local: Local, classes: int) -> None:
        """Raise a `ConfigError` if the part can't work with these."""

    def warnings(self, local: Local) -> tuple[str, ...]:
        """Sentences about settings of local training that are known to hurt the part."""
        return ()

    # what is kept, and what travels

    @property
    def keeps_at_server(self) -> bool:
        """Whether the server keeps state for the part, for some model at least."""
        return type(self).server_state is not MethodPart.server_state

    def server_state(self, layout: Layout) -> State:
        """What the server keeps for the part, before the first round."""
        return {}

    def client_state(self, layout: Layout) -> State:
        """What a client remembers before its first round."""
        return {}

    def broadcast(self, state: State) -> State:
        """What the server sends to clients, from its state."""
        return {}

    # at the client

    def draw(self, count: int, layout: Layout, generator: torch.Generator) -> State:
        """What is random about a step, for `Batch.drawn`; `count` is the size of a full batch."""
        return {}

    def correct(self, gradient: Tensor, parameters: Tensor, client: Client) -> Tensor:
        """The corrected gradient, for the optimiser's step; may change `gradient` in place."""
        return gradient

    def data_pass(self, parameters: Tensor, net: Net, loss: Loss, batch: Batch, client: Client) -> State:
        """Sums over the samples of a batch; in training mode at the start, in evaluation mode at the end.

        Their means over all samples are found in `Finished.data_means`.
        """
        return {}

    def upload(self, done: Finished) -> tuple[State, State]:
        """(what is sent beside the model, what the client will remember of the part's state).

        What is sent has the names, shapes and types of `sends`.
        """
        return {}, {}

    # at the server

    def plausible(
        self, update: TrainReply, received: State, local: Local, rates: Callable[[], Rates]
    ) -> bool:
        """Whether an honest client can have sent this beside the model.

        It has been checked to look like `sends` and to be finite. `received` is what the server sent beside
        the model, and `rates` returns the learning rates of a client that trains to the end.
        """
        return True

    def absorb(self, server: Server, aggregate: Aggregate) -> Server:
        """The server after the round; `server` is as the server step has left it."""
        return server


class Term(MethodPart):
    """A term added to what a client minimises: as losses, or as a gradient in `correct`."""

    wants_features: ClassVar[bool] = False
    needs: ClassVar[str | None] = None
    """The name of another term that this one depends on."""

    _head: Head = PrivateAttr(default_factory=Head)
    """What the outputs of the method's model mean."""

    def within(self, head: Head) -> Self:
        """The term in a method with this head."""
        term = self.model_copy()
        term._head = head
        return term

    def losses(self, net: Net, batch: Batch, features: Tensor, client: Client) -> Tensor | float:
        """Losses [B] added to the objective's; features [B, d] only where they are wanted."""
        return 0.0


class Correction(MethodPart):
    """Changes local gradients or steps, or what a client sends in the place of its change."""

    @property
    def sends_change(self) -> bool:
        """Whether what the server folds is the change of the client's model."""
        return type(self).delta is Correction.delta

    @property
    def traced(self) -> str | None:
        """The name of the vector, from the data pass at the end, for `pull_back`; None: there is none."""
        return None

    def training(self, local: Local) -> Local:
        """The local training that it needs, derived from the experiment's."""
        return local

    def gradient_point(self, parameters: Tensor, client: Client) -> Tensor:
        """The parameters at which the gradient of the next step is taken."""
        return parameters

    def after_step(self, parameters: Tensor, net: Net, loss: Loss, batch: Batch, client: Client) -> Tensor:
        """The parameters to go on with, from those after the optimiser's step on the batch."""
        return parameters

    def pull_back(
        self, vector: Tensor, parameters: Tensor, loss: Callable[[Tensor], Tensor], rate: Tensor
    ) -> Tensor:
        """Turn a gradient with respect to the parameters after a step into one for those before it.

        The step began at `parameters`, `loss` is the mean loss of its batch as a function of parameters, and
        `rate` is its (learning rate, weight decay). The steps are those of plain SGD.
        """
        return vector

    def delta(self, done: Finished) -> Tensor:
        """The vector that the server folds, usually the change of the model."""
        return done.end - done.client.start


class Weighting(MethodPart):
    """How much each client's tensors count beside those of the round's other clients."""

    plain: ClassVar[bool] = False
    """Whether a client has one weight for all layers, whatever the others send."""
    one_by_one: ClassVar[bool] = False
    """Whether a client's weight, before normalisation, depends on its own update alone."""
    equal: ClassVar[bool] = False
    """Whether all clients have the same weight. Subclasses don't inherit this: see `declares`."""

    @property
    def blended(self) -> tuple[Weighting, ...]:
        """The weightings that this one combines; they are parts of the method as well."""
        return ()

    @property
    def falls_short(self) -> bool:
        """Whether its weights may sum to less than one; the model then shrinks by that factor."""
        return False

    @property
    def by_upload(self) -> bool:
        """Whether a client's weight depends on what it sends, so that a bad client may get most of it."""
        return False

    @abstractmethod
    def weigh_cohort(self, cohort: Cohort) -> Iterator[Weight]:
        """Each client's weight in a cohort, aₖ = K αₖ with Σ αₖ = 1, for each parameter and buffer entry.

        The factor K makes the weights of equal clients exactly 1, whatever their number.
        """


class Single(Weighting):
    """A weighting that looks at one client at a time, so that each update is folded when it arrives."""

    one_by_one: ClassVar[bool] = True

    @abstractmethod
    def weigh(self, update: TrainReply, layout: Layout) -> Weight:
        """A client's weight, not yet normalised."""

    def numbers(self, updates: TrainReplies) -> Sequence[float] | None:
        """The weights of several clients, one number each, found at once; None: `weigh` finds them."""
        return None

    def weigh_cohort(self, cohort: Cohort) -> Iterator[Weight]:
        """The weights by `weigh`, normalised."""
        weights = [self.weigh(update, cohort.layout) for update in cohort.updates]
        sums = [sum(column) / len(weights) for column in zip(*weights, strict=True)]
        for weight in weights:
            yield Weight(*(_share(value, mean) for value, mean in zip(weight, sums, strict=True)))


def _share(value: Tensor | float, mean: Tensor | float) -> Tensor | float:
    """A weight divided by the cohort's mean weight; 1 where all weights are 0."""
    if isinstance(mean, Tensor):
        return torch.where(mean > 0, value / mean, 1.0)
    return value / mean if mean > 0 else 1.0


class Rule(MethodPart):
    """How a round's updates become one."""

    by_layer: ClassVar[bool] = True
    """Whether a client's weight may differ between layers."""
    is_mean: ClassVar[bool] = False
    """Whether it is the plain weighted mean. Subclasses don't inherit this: see `declares`."""

    @property
    def fewest(self) -> int:
        """The least number of updates from which the rule has its effect."""
        return 1

    def during(self, occasion: Occasion) -> Self:
        """The rule for one round."""
        return self

    @abstractmethod
    def fold(self, layout: Layout) -> Fold:
        """A fresh fold for one round."""


class ServerStep(MethodPart):
    """How the aggregate becomes the next model."""

    @property
    def has_own_mean(self) -> bool:
        """Whether it folds updates itself, in place of the method's rule."""
        return type(self).fold is not ServerStep.fold

    @property
    def moves(self) -> float | None:
        """ρ of a step x ← x + ρ Σ aₖ Δₖ / Σ aₖ, if it is one; 1 takes over the clients' mean."""
        return None

    def fold(self, layout: Layout) -> Fold | None:
        """A fresh fold for one round, in place of the rule's; None: the rule folds."""
        return None

    @abstractmethod
    def step(self, server: Server, aggregate: Aggregate) -> tuple[Tensor, State]:
        """(the next model, the entries of the step's state that change)."""


class BufferPolicy(Part):
    """What happens to batch-norm statistics and other buffers."""

    local: ClassVar[bool] = False
    """Whether a client goes on with its own buffers, and doesn't take over the server's."""
    received: ClassVar[bool] = True
    """Whether clients need the server's buffers in every round."""
    sent: ClassVar[bool] = True
    """Whether clients send their buffers."""
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
        """Whether it is a mapping of weightings' names to shares."""
        return isinstance(value, dict) and "name" not in value and not value.keys().isdisjoint(self.names())


_PACKAGE = "mnemos.methods"
terms: Registry[Term] = Registry("term", Term, _PACKAGE)
corrections: Registry[Correction] = Registry("correction", Correction, _PACKAGE)
weightings: Registry[Weighting] = _Weightings("weighting", Weighting, _PACKAGE)
rules: Registry[Rule] = Registry("rule", Rule, _PACKAGE)
server_steps: Registry[ServerStep] = Registry("server step", ServerStep, _PACKAGE)
buffer_policies: Registry[BufferPolicy] = Registry("buffer policy", BufferPolicy, _PACKAGE, "buffers")
