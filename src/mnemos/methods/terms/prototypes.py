"""Prototypes: mean features of classes, for clients that don't hold a class any more, or never did.

From PASS (Zhu et al., 2021, CVPR), made federated by FedSpace (Shenaj et al., 2023, arXiv 2304.03626).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from mnemos.common.devices import double
from mnemos.common.kept import kept
from mnemos.errors import ConfigError
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
from mnemos.methods.head import check_classifier, classifier
from mnemos.methods.part import Term, terms
from mnemos.objectives.objective import Loss
from mnemos.objectives.softmax import near_zero, nll, wide
from mnemos.optim.local import Local
from mnemos.vector import Layout

_VECTORS = "prototypes.vectors"
_KNOWN = "prototypes.known"
_RADIUS = "prototypes.radius"
_SAMPLES = "prototypes.samples"
_SUMS = "prototypes.sums"
_SQUARES = "prototypes.squares"
_PICK = "prototypes.pick"
_NOISE = "prototypes.noise"


class Memory(NamedTuple):
    """Prototypes of classes, and the spread of features around them."""

    vectors: Tensor
    """The prototypes e_c [C, d]; 0 where there is none."""
    known: Tensor
    """1 for classes that have a prototype [C]."""
    radius: Tensor
    """r, the standard deviation of features around their prototype."""

    def pseudo(self, allowed: Tensor, pick: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Features ê = e_c + r · noise [B, d], and their classes c [B], drawn from the allowed ones.

        `allowed` [C] is 1 for these, and `pick` [B] is uniform in [0, 1). If no class is allowed, the result
        is meaningless.
        """
        below = _below(allowed)
        classes = (below <= (pick * below[-1])[:, None]).sum(1).clamp_max(len(allowed) - 1)
        return self.vectors[classes] + self.radius * noise, classes


def memory(client: Client) -> Memory:
    """The prototypes that a client uses: the shared ones once there are any, before that its own."""
    own = Memory(client.state[_VECTORS], client.state[_KNOWN], client.state[_RADIUS])
    if _VECTORS not in client.received:
        return own
    return _joined(*own, *(client.received[name] for name in (_VECTORS, _KNOWN, _RADIUS)))


@kept
def _joined(*both: Tensor) -> Memory:
    """Of a client's own prototypes and the shared ones, the latter if there are any."""
    own, shared = Memory(*both[:3]), Memory(*both[3:])
    some = has_some(shared.known)
    return Memory(*(torch.where(some, ours, mine) for ours, mine in zip(shared, own, strict=True)))


@kept
def has_some(known: Tensor) -> Tensor:
    """Whether any class is marked."""
    return known.sum() > 0


@kept
def _below(allowed: Tensor) -> Tensor:
    """How many classes are allowed up to each [C]."""
    return allowed.cumsum(0)


@kept
def _elsewhere(known: Tensor, present: Tensor) -> Tensor:
    """The classes with a prototype that aren't of the present task."""
    return known * (1 - present)


@terms.register("prototypes")
class Prototypes(Term):
    """Trains the classifier on features drawn around prototypes of classes of other tasks.

    λ · mean CE of B features ê = e_c + r N(0, 1), of classes c that aren't of the client's present task.

    After its training a client takes, in evaluation mode, e_c, the mean feature of each class it has trained
    on, and r = √(mean_c tr Σ_c / d), Σ_c being the covariance of the features of class c (0 for one sample).
    With `aggregate`, the server makes

        e_c ← β ē_c + (1 − β) e_c  (ē_c if it had none),   ē_c = Σ_k n_k e_kc / Σ_k n_k,
        r ← Σ_k n_k r_k / Σ_k n_k

    of them, the sums of ē_c over the clients that sent c, and clients use these; without, and until there are
    any, each client uses its own. The loss is over all outputs, even if the method's loss leaves some out.
    """

    weight: float = Field(0.01, ge=0, description="λ")
    aggregate: bool = Field(True, description="whether prototypes are sent, joined and shared")
    beta: float = Field(0.1, gt=0, le=1, description="β: how much a round's prototypes count at the server")
    memory: Literal["keep", "round"] = Field(
        "keep", description="round: the server forgets classes that no client sent, as released code does"
    )
    radius: Literal["round", "first"] = Field(
        "round", description="when a client measures r: in every round, or in its first alone"
    )
    current: bool = Field(False, description="also for the classes of the client's present task")

    @property
    def data_pass_at(self) -> When:
        """Of the trained model."""
        return "end"

    def check(self, layout: Layout, local: Local, classes: int) -> None:
        """Raise a ConfigError unless the model has a classifier, and layers before it."""
        check_classifier(layout, classes, "method.terms")
        if sum(slot.size for slot in classifier(layout)) == layout.size:
            raise ConfigError(
                "the model is nothing but a classifier; prototypes are features of what comes before it",
                "method.terms",
            )

    def _none(self, layout: Layout) -> State:
        """A state without any prototype."""
        outputs, size = classifier(layout)[0].shape
        count = outputs // self._head.outputs
        return {_VECTORS: torch.zeros(count, size), _KNOWN: torch.zeros(count), _RADIUS: torch.zeros(())}

    @property
    def keeps_at_server(self) -> bool:
        """If prototypes are aggregated."""
        return self.aggregate

    def server_state(self, layout: Layout) -> State:
        """No prototypes yet."""
        return self._none(layout) if self.aggregate else {}

    def client_state(self, layout: Layout) -> State:
        """No prototypes yet."""
        return self._none(layout)

    def broadcast(self, state: State) -> State:
        """The shared prototypes."""
        return {name: state[name] for name in (_VECTORS, _KNOWN, _RADIUS)} if self.aggregate else {}

    def draw(self, count: int, layout: Layout, generator: torch.Generator) -> State:
        """Random numbers for the classes and for the noise of `count` features."""
        if not self.weight:
            return {}
        size = classifier(layout)[0].shape[1]
        return {
            _PICK: torch.rand(count, generator=generator),
            _NOISE: torch.randn(count, size, generator=generator),
        }

    def losses(self, net: Net, batch: Batch, features: Tensor, client: Client) -> Tensor | float:
        """The same number for each sample."""
        if not self.weight:
            return 0.0
        known = memory(client)
        allowed = known.known if self.current else _elsewhere(known.known, client.present)
        pseudo, classes = known.pseudo(allowed, batch.drawn[_PICK], batch.drawn[_NOISE])
        scores = near_zero(wide(net.head(pseudo)) / self._head.temperature)
        loss = nll(scores, classes * self._head.outputs).mean()
        return self.weight * torch.where(has_some(allowed), loss, 0.0)

    def data_pass(self, parameters: Tensor, net: Net, loss: Loss, batch: Batch, client: Client) -> State:
        """Sums of each class's features, and of their squared lengths.

        In double precision: a variance is the difference of two numbers as large as the squared mean, and in
        single precision it is wrong by a tenth if features spread by a thousandth of their mean.
        """
        features = double(net.features(batch.x)[0])
        labels = batch.labels // self._head.outputs
        classes = torch.arange(len(client.held), device=labels.device)
        own = (labels[:, None] == classes).to(features.dtype)
        if batch.mask is not None:
            own = own * batch.mask[:, None]
        return {_SUMS: own.T @ features, _SQUARES: own.T @ features.square().sum(1)}

    def sends(self, layout: Layout) -> State:
        """The same as a client's state, and the number of samples."""
        return {**self._none(layout), _SAMPLES: torch.zeros(())} if self.aggregate else {}

    def upload(self, done: Finished) -> tuple[State, State]:
        """The prototypes of this round are sent; the client keeps them with its others."""
        held, state = done.client.held, done.client.state
        has, samples, counts = (held > 0).float(), held.sum(), double(held)
        # They are means over all the client's samples.
        means = done.data_means[_SUMS] * (samples / counts.clamp_min(1))[:, None]
        squares = done.data_means[_SQUARES] * samples / counts.clamp_min(1)
        spread = (squares - means.square().sum(1)).clamp_min(0) * counts / (counts - 1).clamp_min(1)
        radius = ((spread * has).sum() / has.sum() / means.shape[1]).sqrt().float()
        vectors = means.float()
        if self.radius == "first":
            radius = torch.where(state[_KNOWN].sum() > 0, state[_RADIUS], radius)
        kept = {
            _VECTORS: torch.where(has[:, None] > 0, vectors, state[_VECTORS]),
            _KNOWN: torch.maximum(has, state[_KNOWN]),
            _RADIUS: radius,
        }
        if not self.aggregate:
            return {}, kept
        # They are multiplied by n_k, so that the server's quotients of plain means are the weighted means.
        sent = {
            _VECTORS: samples * vectors * has[:, None],
            _KNOWN: samples * has,
            _RADIUS: samples * radius,
            _SAMPLES: samples,
        }
        return sent, kept

    def plausible(
        self, update: TrainReply, received: State, local: Local, rates: Callable[[], Rates]
    ) -> bool:
        """Whether each class has all samples or none, and the radius isn't negative."""
        if not self.aggregate:
            return True
        sent = update.change
        samples, known = sent[_SAMPLES], sent[_KNOWN]
        return (
            0 < float(samples) <= update.samples
            and bool(((known == 0) | (known == samples)).all())
            and float(sent[_RADIUS]) >= 0
        )

    def absorb(self, server: Server, aggregate: Aggregate) -> Server:
        """β ē_c + (1 − β) e_c."""
        if not self.aggregate:
            return server
        sent, state = aggregate.change, server.state
        has = sent[_KNOWN] > 0
        fresh = sent[_VECTORS] / torch.where(has, sent[_KNOWN], 1.0)[:, None]
        blended = torch.where(
            (state[_KNOWN] > 0)[:, None], torch.lerp(state[_VECTORS], fresh, self.beta), fresh
        )
        before, known = state[_VECTORS], torch.maximum(has.float(), state[_KNOWN])
        if self.memory == "round":
            before, known = torch.zeros_like(before), has.float()
        after = {
            _VECTORS: torch.where(has[:, None], blended, before),
            _KNOWN: known,
            _RADIUS: sent[_RADIUS] / sent[_SAMPLES],
        }
        return server.moved(server.model, after)
