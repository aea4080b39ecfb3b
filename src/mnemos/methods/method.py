"""What a federated method is made of.

A method is a choice for each of a few orthogonal parts: the loss a client minimises and terms added to it,
how its gradient is corrected, how much it counts in the aggregate, what the server does with the aggregate,
and what happens to buffers. Each part is written for one client (or for the server) as plain functions of
tensors; nothing here knows how a cohort is run.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, ClassVar, Literal, NamedTuple, Protocol

from pydantic import model_validator
from torch import Tensor

from mnemos.errors import ConfigError
from mnemos.local import Local
from mnemos.objectives.ce import CrossEntropy
from mnemos.objectives.objective import Objective, objectives
from mnemos.registry import Part, Registry
from mnemos.vector import Layout

State = dict[str, Tensor]
When = Literal["start", "end"]
"""Before or after a client's training."""


class Client(NamedTuple):
    """What a method sees of one client while it trains."""

    start: Tensor
    """The model received: x [P]."""
    received: State
    """What the server sent beside the model."""
    state: State
    """What the client remembers from its last round."""
    counts: Tensor
    """How many samples of each class the client has [C]; this never leaves the client."""


class Finished(NamedTuple):
    """A client at the end of its local training."""

    client: Client
    end: Tensor
    """The trained model: y [P]."""
    steps: int
    local: Local
    surveyed: State
    """What the parts' surveys found: means over the client's samples."""


class Net(Protocol):
    """A client's model with its current parameters, as a function."""

    def __call__(self, x: Tensor) -> Tensor:
        """Logits [B, C]."""

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features [B, d] and logits [B, C]."""

    def at(self, parameters: Tensor) -> Net:
        """The model with other parameters, for `torch.func` or under `no_grad`; leaves buffers alone."""


class Batch(NamedTuple):
    """A client's samples of one step."""

    x: Tensor
    labels: Tensor
    mask: Tensor | None = None
    """1 for samples, 0 for what only fills up the batch [B]; None: all are samples."""

    def split(self, count: int) -> Iterator[Batch]:
        """The batch in pieces of so many samples."""
        for start in range(0, len(self.labels), count):
            where = slice(start, start + count)
            yield Batch(self.x[where], self.labels[where], None if self.mask is None else self.mask[where])

    def sum(self, values: Tensor) -> Tensor:
        """The sum over the samples of one value (or more) each [B, …]."""
        if self.mask is None:
            return values.sum(0)
        return (values * self.mask.view(-1, *[1] * (values.ndim - 1))).sum(0)

    def mean(self, values: Tensor) -> Tensor:
        """The mean over the samples of one value each [B]."""
        return values.mean() if self.mask is None else self.sum(values) / self.mask.sum()


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
    """What the method's parts upload beside the model."""
    state: State
    """What the client will remember; it stays where the client runs."""


@dataclass(frozen=True)
class Server:
    """What the server holds between rounds."""

    model: Tensor
    buffers: Tensor
    state: State

    def moved(self, model: Tensor, state: State) -> Server:
        """The server with another model, and with some of its state replaced."""
        return replace(self, model=model, state={**self.state, **state})


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
_known_terms = terms  # in the annotations of `Method`, its field of the same name hides the registry
corrections: Registry[Correction] = Registry("correction", Correction, _PACKAGE)
weightings: Registry[Weighting] = Registry("weighting", Weighting, _PACKAGE)
server_steps: Registry[ServerStep] = Registry("server step", ServerStep, _PACKAGE)
buffer_policies: Registry[BufferPolicy] = Registry("buffer policy", BufferPolicy, _PACKAGE)


class Method(Part):
    """A federated method: a choice for each part, and the order in which they act."""

    loss: Annotated[Objective, objectives] = CrossEntropy()
    terms: tuple[Annotated[Term, _known_terms], ...] = ()
    correction: Annotated[Correction, corrections]
    weighting: Annotated[Weighting, weightings]
    server: Annotated[ServerStep, server_steps]
    buffers: Annotated[BufferPolicy, buffer_policies]

    @model_validator(mode="after")
    def _each_term_once(self) -> Method:
        names = [type(term).name for term in self.all_terms]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            own = any(type(term).name == twice[0] for term in self.own_terms)
            why = f": {type(self).name} has it of its own" if own else ""
            raise ValueError(f"the term '{twice[0]}' is there twice{why}")
        return self

    @property
    def own_terms(self) -> tuple[Term, ...]:
        """The terms that make the method what it is, made of its own options."""
        return ()

    @cached_property
    def all_terms(self) -> tuple[Term, ...]:
        """The method's own terms, then those it was given."""
        return (*self.own_terms, *self.terms)

    @cached_property
    def parts(self) -> tuple[MethodPart, ...]:
        """Every part that can keep state or act, in the order in which they do."""
        return (*self.all_terms, self.correction, self.weighting, self.server)

    @cached_property
    def _hooks(self) -> dict[str, tuple[MethodPart, ...]]:
        """The parts that act at each place."""
        places = ("look", "correct", "settle", "absorb")
        return {place: tuple(part for part in self.parts if _acts(part, place)) for place in places}

    # before training

    def training(self, local: Local) -> Local:
        """The local training the method makes of what was asked for."""
        return local

    def check(self, layout: Layout, local: Local, classes: int) -> None:
        """Refuse what some part can't work with."""
        for part in self.parts:
            part.check(layout, local, classes)

    def warnings(self, local: Local) -> tuple[str, ...]:
        """What is known to hurt some part."""
        return tuple(sentence for part in self.parts for sentence in part.warnings(local))

    def server_state(self, layout: Layout) -> State:
        """What the server keeps between rounds, before the first."""
        return _union(part.server_state(layout) for part in self.parts)

    def client_state(self, layout: Layout) -> State:
        """What a client remembers before its first round."""
        return _union(part.client_state(layout) for part in self.parts)

    def broadcast(self, server: Server) -> State:
        """What clients receive beside the model."""
        return _union(part.broadcast(server.state) for part in self.parts)

    # at the client

    @cached_property
    def wants_features(self) -> bool:
        """Whether some term needs the features."""
        return any(term.wants_features for term in self.all_terms)

    @cached_property
    def _losses(self) -> tuple[Term, ...]:
        return tuple(term for term in self.all_terms if type(term).losses is not Term.losses)

    def batch_loss(self, net: Net, batch: Batch, client: Client) -> Tensor:
        """The losses [B] of one batch; their mean is minimised."""
        features, logits = net.features(batch.x) if self.wants_features else (batch.x, net(batch.x))
        losses = self.loss(logits, batch.labels, client.counts)
        for term in self._losses:
            losses = losses + term.losses(net, batch, features, client)
        return losses

    @property
    def looks(self) -> bool:
        """Whether gradients are taken elsewhere than where the client is."""
        return bool(self._hooks["look"])

    def look(self, parameters: Tensor, client: Client) -> Tensor:
        """The point where the gradient of the next step is taken."""
        for part in self._hooks["look"]:
            parameters = part.look(parameters, client)
        return parameters

    @property
    def corrects(self) -> bool:
        """Whether gradients are changed at all: engines needn't ask for each step if not."""
        return bool(self._hooks["correct"])

    def correct(self, gradient: Tensor, parameters: Tensor, client: Client) -> Tensor:
        """The gradient a step is taken along; may change it in place."""
        for part in self._hooks["correct"]:
            gradient = part.correct(gradient, parameters, client)
        return gradient

    @property
    def settles(self) -> bool:
        """Whether something follows the optimiser's step."""
        return bool(self._hooks["settle"])

    def settle(self, parameters: Tensor, net: Net, batch: Batch, client: Client) -> Tensor:
        """The parameters after the optimiser's step on a batch."""
        for part in self._hooks["settle"]:
            parameters = part.settle(parameters, net, self.loss, batch, client)
        return parameters

    def surveys(self, when: When) -> bool:
        """Whether some part wants to pass over the client's data then."""
        return any(part.surveys == when for part in self.parts)

    def survey(self, when: When, parameters: Tensor, net: Net, batch: Batch, client: Client) -> State:
        """What the parts sum up over the samples of a batch."""
        asked = (part for part in self.parts if part.surveys == when)
        return _union(part.survey(parameters, net, self.loss, batch, client) for part in asked)

    def upload(self, done: Finished) -> tuple[State, State]:
        """(what is sent beside the model, what the client will remember)."""
        pairs = [part.upload(done) for part in self.parts]
        kept = _union(state for _, state in pairs)
        return _union(change for change, _ in pairs), {**done.client.state, **kept}

    # at the server

    def server_step(self, server: Server, aggregate: Aggregate) -> Server:
        """The server after a round."""
        model, state = self.server.step(server, aggregate)
        after = server.moved(model, state)
        for part in self._hooks["absorb"]:
            after = part.absorb(after, aggregate)
        return replace(after, buffers=self.buffers.next(server.buffers, aggregate.buffers))


methods: Registry[Method] = Registry("method", Method, _PACKAGE)


def _acts(part: MethodPart, place: str) -> bool:
    return getattr(type(part), place) is not getattr(MethodPart, place)


def _union(states: Iterable[State]) -> State:
    merged: State = {}
    for state in states:
        for name, value in state.items():
            if name in merged:
                raise ConfigError(f"two of its parts use the name '{name}'", "method")
            merged[name] = value
    return merged
