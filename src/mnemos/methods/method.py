"""What a federated method is made of.

A method is a choice for each of a few orthogonal parts: the loss a client minimises and terms added to it,
how its gradient is corrected, how much it counts in the aggregate, what the server does with the aggregate,
and what happens to buffers. Each part is written for one client (or for the server) as plain functions of
tensors; nothing here knows how a cohort is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property
from typing import Annotated

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.func import grad, vjp

from mnemos.data.partition import Assignment
from mnemos.data.stream import Flow
from mnemos.errors import ConfigError
from mnemos.local import Local
from mnemos.methods.exchange import (
    Aggregate,
    Batch,
    Client,
    Finished,
    Fold,
    Net,
    Rates,
    Server,
    State,
    Update,
    When,
)
from mnemos.methods.head import Head
from mnemos.methods.meta import Meta
from mnemos.methods.part import (
    BufferPolicy,
    Correction,
    MethodPart,
    Rule,
    ServerStep,
    Term,
    Weighting,
    buffer_policies,
    corrections,
    rules,
    server_steps,
    weightings,
)
from mnemos.methods.part import terms as known_terms
from mnemos.objectives.ce import CrossEntropy
from mnemos.objectives.objective import Loss, Objective, objectives
from mnemos.registry import Part, Registry
from mnemos.vector import Layout


class Method(Part):
    """A federated method: a choice for each part, and the order in which they act."""

    loss: Annotated[Objective, objectives] = CrossEntropy()
    terms: tuple[Annotated[Term, known_terms], ...] = ()
    correction: Annotated[Correction, corrections]
    weighting: Annotated[Weighting, weightings]
    rule: Annotated[Rule, rules]
    server: Annotated[ServerStep, server_steps]
    buffers: Annotated[BufferPolicy, buffer_policies]
    head: Head = Head()
    meta: Meta | None = Field(None, description="a correction of the model on samples that the server holds")

    @model_validator(mode="after")
    def _terms_fit(self) -> Method:
        names = [type(term).name for term in self.all_terms]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            own = any(type(term).name == twice[0] for term in self.own_terms)
            why = f": {type(self).name} has it of its own" if own else ""
            raise ValueError(f"the term '{twice[0]}' is there twice{why}")
        for term in self.all_terms:
            if term.needs is not None and term.needs not in names:
                raise ValueError(f"the term '{type(term).name}' needs the term '{term.needs}' beside it")
        return self

    @property
    def own_terms(self) -> tuple[Term, ...]:
        """The terms that make the method what it is, made of its own options."""
        return ()

    @cached_property
    def all_terms(self) -> tuple[Term, ...]:
        """The method's own terms, then those it was given."""
        return tuple(term.within(self.head) for term in (*self.own_terms, *self.terms))

    @cached_property
    def parts(self) -> tuple[MethodPart, ...]:
        """Every part that can keep state or act, in the order in which they do."""
        chosen = (*self.all_terms, self.correction, self.weighting, self.server)
        return tuple(acting for part in chosen for acting in (*part.inner, part))

    @property
    def partial(self) -> bool:
        """Whether some part is made for clients that stop before they are through."""
        return any(part.partial for part in self.parts)

    @cached_property
    def _hooks(self) -> dict[str, tuple[MethodPart, ...]]:
        """The parts that act at each place."""
        places = ("draw", "look", "correct", "settle", "plausible", "absorb")
        return {place: tuple(part for part in self.parts if _acts(part, place)) for place in places}

    # before training

    def training(self, local: Local) -> Local:
        """The local training the method makes of what was asked for."""
        return self.correction.training(local)

    def arrange(self, local: Local, flow: Flow, cohort: int) -> tuple[Local, Assignment]:
        """Who learns, from which samples and for how long, made of clients and of how many are in a round."""
        return local, flow.assignment

    def check(self, layout: Layout, local: Local, classes: int) -> None:
        """Refuse what some part can't work with."""
        for part in self.parts:
            part.check(layout, local, classes * self.head.outputs)
        if self.weighting.falls_short and type(self.server).name != "replace":
            raise ConfigError(
                f"found {type(self.server).name}; weights that don't sum to one, as by floor_in: "
                "denominator, are for server: replace",
                "method.server",
            )
        self._check_rule(layout)
        acting: list[MethodPart] = [*self._losses] if self.traced else []
        acting += [part for place in ("look", "correct", "settle") for part in self._hooks[place]]
        if self.traced and acting:
            raise ConfigError(
                f"{type(self.correction).name} traces plain steps, which {type(acting[0]).name} changes",
                "method",
            )

    def _check_rule(self, layout: Layout) -> None:
        """A rule other than the mean takes models, and nothing that is to be a mean."""
        rule, weighting = type(self.rule).name, self.weighting
        if rule == "mean":
            return
        if type(self.server).fold is not ServerStep.fold:
            raise ConfigError(f"found {rule}; {type(self.server).name} has a mean of its own", "method.rule")
        for part in (*self.all_terms, self.correction, self.server):
            if sent := part.sends(layout):
                raise ConfigError(
                    f"found {rule}, which goes by models; with {type(part).name} a client also sends "
                    f"{min(sent)}",
                    "method.rule",
                )
        if weighting.falls_short or not (weighting.plain or self.rule.by_layer):
            raise ConfigError(f"found {rule}, which can't weigh by {type(weighting).name}", "method.rule")

    def fold(self, layout: Layout) -> Fold:
        """For one round: the server step's own, or the rule's."""
        return self.server.fold(layout) or self.rule.fold(layout)

    def warnings(self, local: Local) -> tuple[str, ...]:
        """What is known to hurt some part, or some parts together."""
        found = [sentence for part in self.parts for sentence in part.warnings(local)]
        if type(self.rule).name != "mean" and self.weighting.by_upload:
            found.append(
                f"method.rule={type(self.rule).name} goes by weights, and {type(self.weighting).name} finds "
                "them in what clients send: a bad one can get most of the weight; method.weighting=uniform "
                "gives all the same"
            )
        return tuple(found)

    def server_state(self, layout: Layout) -> State:
        """What the server keeps between rounds, before the first."""
        return _union(part.server_state(layout) for part in self.parts)

    def client_state(self, layout: Layout) -> State:
        """What a client remembers before its first round."""
        return _union(part.client_state(layout) for part in self.parts)

    def sends(self, layout: Layout) -> State:
        """What clients upload beside the model, by names, shapes and types."""
        return _union(part.sends(layout) for part in self.parts)

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
        losses = self.objective(logits, batch.labels, client.counts)
        for term in self._losses:
            losses = losses + term.losses(net, batch, features, client)
        return losses

    @cached_property
    def objective(self) -> Loss:
        """The loss of a model's logits, at the head's temperature."""
        temperature = self.head.temperature
        if temperature == 1:
            return self.loss
        return lambda logits, labels, counts: self.loss(logits / temperature, labels, counts)

    @property
    def draws(self) -> bool:
        """Whether some part needs random numbers in its steps."""
        return bool(self._hooks["draw"])

    def draw(self, count: int, layout: Layout, generator: torch.Generator) -> State:
        """What is random about a step beside its batch."""
        return _union(part.draw(count, layout, generator) for part in self._hooks["draw"])

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
            parameters = part.settle(parameters, net, self.objective, batch, client)
        return parameters

    def surveys(self, when: When) -> bool:
        """Whether some part wants to pass over the client's data then."""
        return any(part.surveys == when for part in self.parts)

    def survey(self, when: When, parameters: Tensor, net: Net, batch: Batch, client: Client) -> State:
        """What the parts sum up over the samples of a batch."""
        asked = (part for part in self.parts if part.surveys == when)
        return _union(part.survey(parameters, net, self.objective, batch, client) for part in asked)

    @cached_property
    def traced(self) -> tuple[str, ...]:
        """The vectors of the survey at the end that are taken back through the client's steps."""
        return tuple(part.traced for part in self.parts if part.traced is not None)

    def pull_back(
        self, vector: Tensor, parameters: Tensor, rate: Tensor, net: Net, batch: Batch, client: Client
    ) -> Tensor:
        """A gradient after a plain step, as one of the parameters before it: Jᵀ v = v − η (H v + λ v).

        The step is w − η (∇L(w) + λ w), and rate is (η, λ).
        """

        def mean_loss(parameters: Tensor) -> Tensor:
            return batch.mean(self.batch_loss(net.at(parameters), batch, client))

        curved: Tensor = vjp(grad(mean_loss), parameters)[1](vector)[0]
        return vector - rate[0] * (curved + rate[1] * vector)

    def upload(self, done: Finished) -> tuple[State, State]:
        """(what is sent beside the model, what the client will remember)."""
        pairs = [part.upload(done) for part in self.parts]
        kept = _union(state for _, state in pairs)
        return _union(change for change, _ in pairs), {**done.client.state, **kept}

    # at the server

    def plausible(self, update: Update, local: Local, rates: Callable[[], Rates]) -> bool:
        """Whether an honest client can have sent what is beside the model."""
        return all(part.plausible(update, local, rates) for part in self._hooks["plausible"])

    def server_step(self, server: Server, aggregate: Aggregate) -> Server:
        """The server after a round."""
        model, state = self.server.step(server, aggregate)
        if self.weighting.falls_short:
            model = model * aggregate.mass
        after = server.moved(model, state)
        for part in self._hooks["absorb"]:
            after = part.absorb(after, aggregate)
        return replace(after, buffers=self.buffers.next(server.buffers, aggregate.buffers))


methods: Registry[Method] = Registry("method", Method, "mnemos.methods")


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
