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
from typing import Annotated, Literal, get_args

import torch
from pydantic import Field, model_validator
from torch import Tensor

from mnemos.common.registry import Part, Registry
from mnemos.data.stream import Flow
from mnemos.errors import ConfigError
from mnemos.methods.exchange import (
    Aggregate,
    Batch,
    Client,
    Finished,
    Fold,
    Net,
    Occasion,
    Rates,
    Server,
    State,
    TrainReply,
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
from mnemos.optim.local import Local
from mnemos.vector import Layout

PartHook = Literal["draw", "gradient_point", "correct", "after_step", "upload", "plausible", "absorb"]
"""A function of parts that is called only if some part overrides it."""


class Method(Part):
    """A federated method: a choice for each part, and the order in which they act."""

    loss: Annotated[Objective, objectives] = CrossEntropy()
    """What a client minimises on a batch."""
    terms: tuple[Annotated[Term, known_terms], ...] = ()
    """What is added to the loss, besides the method's own terms."""
    correction: Annotated[Correction, corrections]
    weighting: Annotated[Weighting, weightings]
    rule: Annotated[Rule, rules]
    server: Annotated[ServerStep, server_steps]
    buffers: Annotated[BufferPolicy, buffer_policies]
    head: Head = Head()
    """The classifier's outputs: their temperature, and whether rotations are classes of their own."""
    meta: Meta | None = Field(None, description="a correction of the model on samples that the server holds")

    @model_validator(mode="after")
    def _terms_fit(self) -> Method:
        if not self.imported:
            return self  # it may have terms of its own
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
        """The terms that define the method, made from its options."""
        return ()

    @cached_property
    def all_terms(self) -> tuple[Term, ...]:
        """The method's own terms, then those it was given."""
        return tuple(term.within(self.head) for term in (*self.own_terms, *self.terms))

    @cached_property
    def parts(self) -> tuple[MethodPart, ...]:
        """All parts that can keep state or act, in the order in which they act."""
        weightings = (*self.weighting.blended, self.weighting)
        return (*self.all_terms, self.correction, *weightings, self.rule, self.server)

    @property
    def partial(self) -> bool:
        """Whether some part can use updates of clients that had to stop early."""
        return any(part.partial for part in self.parts)

    @cached_property
    def _acting(self) -> dict[PartHook, tuple[MethodPart, ...]]:
        """The parts that override each hook."""
        return {hook: tuple(part for part in self.parts if _acts(part, hook)) for hook in get_args(PartHook)}

    def uses(self, hook: PartHook) -> bool:
        """Whether some part overrides a hook; engines skip a hook that none overrides."""
        return bool(self._acting[hook])

    @cached_property
    def by_parameter(self) -> bool:
        """Whether `correct`, `upload` and the correction's `delta` may be given many clients at once."""
        own = type(self).correct is Method.correct and type(self).upload is Method.upload
        acting = [*self._acting["correct"], *self._acting["upload"]]
        declared = all(part.declares("by_parameter") for part in acting)
        return own and declared and self.correction.sends_change

    # before training

    @property
    def federated(self) -> bool:
        """Whether clients train; if not, one learner has all their samples."""
        return type(self).pooled_training is Method.pooled_training

    def training(self, local: Local) -> Local:
        """The local training that the method needs, derived from the experiment's."""
        return self.correction.training(local)

    def pooled_training(self, local: Local, flow: Flow, cohort: int) -> Local | None:
        """The local training of one learner that has all clients' samples; None: the clients learn.

        `flow` says what clients would hold, and `cohort` how many would train in a round.
        """
        return None

    def check(self, layout: Layout, local: Local, classes: int) -> None:
        """Raise a `ConfigError` if some part can't work with these, or parts don't fit together."""
        for part in self.parts:
            part.check(layout, local, classes * self.head.outputs)
        if self.weighting.falls_short and self.server.moves != 1:
            raise ConfigError(
                f"found {type(self.server).name}; weights that don't sum to one, as by floor_in: "
                "denominator, are for server: replace",
                "method.server",
            )
        self._check_rule(layout)
        changing: tuple[PartHook, ...] = ("gradient_point", "correct", "after_step")
        acting = [*self._losses, *(part for hook in changing for part in self._acting[hook])]
        if self.correction.traced is not None and acting:
            raise ConfigError(
                f"{type(self.correction).name} traces plain steps, which {type(acting[0]).name} changes",
                "method",
            )

    def _check_rule(self, layout: Layout) -> None:
        """Raise a `ConfigError` if a rule other than the mean meets something that must be averaged."""
        rule, weighting = type(self.rule).name, self.weighting
        if self.rule.declares("is_mean"):
            return
        if self.server.has_own_mean:
            raise ConfigError(f"found {rule}; {type(self.server).name} has a mean of its own", "method.rule")
        for part in (*self.all_terms, self.correction, self.server):
            if sent := part.sends(layout):
                raise ConfigError(
                    f"found {rule}, which compares models; with {type(part).name} a client also sends "
                    f"{min(sent)}",
                    "method.rule",
                )
        if weighting.falls_short or not (weighting.plain or self.rule.by_layer):
            raise ConfigError(f"found {rule}, which can't weigh by {type(weighting).name}", "method.rule")

    def fold(self, layout: Layout, occasion: Occasion | None = None) -> Fold:
        """The fold of a round: the server step's own, or the rule's; without an occasion, before round 1."""
        occasion = Occasion(self.server_state(layout), 0, 0) if occasion is None else occasion
        return self.server.fold(layout) or self.rule.during(occasion).fold(layout)

    def warnings(self, local: Local) -> tuple[str, ...]:
        """Sentences about settings, or combinations of parts, that are known to hurt."""
        found = [sentence for part in self.parts for sentence in part.warnings(local)]
        if not self.rule.declares("is_mean") and self.weighting.by_upload:
            found.append(
                f"method.rule={type(self.rule).name} uses weights, and {type(self.weighting).name} finds "
                "them in what clients send: a bad one can get most of the weight; method.weighting=uniform "
                "gives all the same"
            )
        return tuple(found)

    @property
    def keeps_at_server(self) -> bool:
        """Whether the server keeps something for one of the parts."""
        return any(part.keeps_at_server for part in self.parts)

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

    @cached_property
    def only_objective(self) -> bool:
        """Whether `batch_loss` is the objective of the model's logits and nothing else."""
        return type(self).batch_loss is Method.batch_loss and not (self._losses or self.wants_features)

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

    def draw(self, count: int, layout: Layout, generator: torch.Generator) -> State:
        """What is random about a step beside its batch."""
        return _union(part.draw(count, layout, generator) for part in self._acting["draw"])

    def correct(self, gradient: Tensor, parameters: Tensor, client: Client) -> Tensor:
        """The gradient after the corrections of all parts; may change `gradient` in place."""
        for part in self._acting["correct"]:
            gradient = part.correct(gradient, parameters, client)
        return gradient

    def after_step(self, parameters: Tensor, net: Net, batch: Batch, client: Client) -> Tensor:
        """The parameters to go on with, from those after the optimiser's step on the batch."""
        return self.correction.after_step(parameters, net, self.objective, batch, client)

    @cached_property
    def looks_at_data(self) -> bool:
        """Whether some part passes over the client's data, before or after its training."""
        return any(part.data_pass_at is not None for part in self.parts)

    def passes_data(self, when: When) -> bool:
        """Whether some part has a data pass at that time."""
        return any(part.data_pass_at == when for part in self.parts)

    def data_pass(self, when: When, parameters: Tensor, net: Net, batch: Batch, client: Client) -> State:
        """What the parts sum up over the samples of a batch."""
        asked = (part for part in self.parts if part.data_pass_at == when)
        return _union(part.data_pass(parameters, net, self.objective, batch, client) for part in asked)

    def upload(self, done: Finished) -> tuple[State, State]:
        """(what is sent beside the model, what the client will remember)."""
        pairs = [part.upload(done) for part in self._acting["upload"]]
        kept = _union(state for _, state in pairs)
        return _union(change for change, _ in pairs), {**done.client.state, **kept}

    # at the server

    def plausible(
        self, update: TrainReply, received: State, local: Local, rates: Callable[[], Rates]
    ) -> bool:
        """Whether an honest client can have sent what is beside the model."""
        return all(part.plausible(update, received, local, rates) for part in self._acting["plausible"])

    def server_step(self, server: Server, aggregate: Aggregate) -> Server:
        """The server after a round."""
        model, state = self.server.step(server, aggregate)
        if self.weighting.falls_short:
            model = model * aggregate.mass
        after = server.moved(model, state)
        for part in self._acting["absorb"]:
            after = part.absorb(after, aggregate)
        return replace(after, buffers=self.buffers.next(server.buffers, aggregate.buffers))


methods: Registry[Method] = Registry("method", Method, "mnemos.methods")


def _acts(part: MethodPart, hook: PartHook) -> bool:
    """Whether a part overrides a hook; some hooks exist for corrections only."""
    kind = Correction if isinstance(part, Correction) else MethodPart
    return hasattr(kind, hook) and getattr(type(part), hook) is not getattr(kind, hook)


def _union(states: Iterable[State]) -> State:
    merged: State = {}
    for state in states:
        for name, value in state.items():
            if name in merged:
                raise ConfigError(f"two of its parts use the name '{name}'", "method")
            merged[name] = value
    return merged
