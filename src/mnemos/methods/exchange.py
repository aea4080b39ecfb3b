"""What passes between a method's parts, a client and the server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from mnemos.optim.local import Local
from mnemos.vector import Layout

State = dict[str, Tensor]
When = Literal["start", "end"]
"""Before or after a client's training."""
Rates = tuple[tuple[int, float], ...]
"""(number of steps, their learning rate), in the order of the steps."""
LARGEST_LOSS = 1e30
"""Losses beyond this count as infinite: a finite one could still overflow when it is summed."""


class Client(NamedTuple):
    """What a method sees of one client while it trains."""

    start: Tensor
    """The model received: x [P]."""
    received: State
    """What the server sent beside the model."""
    state: State
    """What the client remembers from its last round."""
    counts: Tensor
    """How many samples of each class the loss counts [C]; with rotations, each turn of a class is a class.

    This never leaves the client.
    """
    held: Tensor
    """How many samples of each class it trains on in this round [C], without rotations."""
    present: Tensor
    """1 for the classes of the task that it is in, and for those it trains on [C]."""


class Finished(NamedTuple):
    """A client at the end of its local training."""

    client: Client
    end: Tensor
    """The trained model: y [P]."""
    steps: int
    rates: Rates
    local: Local
    data_means: State
    """What the parts' data passes found: means over the client's samples."""


class Net(Protocol):
    """A client's model with its current parameters, as a function."""

    def __call__(self, x: Tensor) -> Tensor:
        """Logits [B, C]."""

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features [B, d] and logits [B, C]."""

    def head(self, features: Tensor) -> Tensor:
        """Logits [B, C] of features [B, d]."""

    def at(self, parameters: Tensor) -> Net:
        """The model with other parameters, for `torch.func` or under `no_grad`; leaves buffers alone."""


class Batch(NamedTuple):
    """A client's samples of one step."""

    x: Tensor
    labels: Tensor
    mask: Tensor | None = None
    """1 for samples, 0 for filling [B]; None: all are samples."""
    drawn: State = {}  # noqa: RUF012 (a named tuple's default, never changed)
    """What the method's parts have drawn for the step."""

    def split(self, count: int) -> Iterator[Batch]:
        """The batch in pieces of at most `count` samples."""
        for start in range(0, len(self.labels), count):
            where = slice(start, start + count)
            mask = None if self.mask is None else self.mask[where]
            yield self._replace(x=self.x[where], labels=self.labels[where], mask=mask)

    def sum(self, values: Tensor) -> Tensor:
        """The sum over the samples of one value (or more) each [B, …]."""
        if self.mask is None:
            return values.sum(0)
        return (values * self.mask.view(-1, *[1] * (values.ndim - 1))).sum(0)

    def mean(self, values: Tensor) -> Tensor:
        """The mean over the samples of one value each [B]."""
        return values.mean() if self.mask is None else self.sum(values) / self.mask.sum()


class Broadcast(NamedTuple):
    """What the server sends to clients that it asks to train."""

    round: int
    """The round that they train for."""
    model: Tensor
    buffers: Tensor
    received: State
    """What they are sent beside the model."""


@dataclass(frozen=True)
class TrainReply:
    """What a client sends back."""

    client: int
    round: int
    samples: int
    steps: int
    loss: float
    """Mean training loss over the samples seen; NaN of a client that only pretends to have trained."""
    delta: Tensor
    """The change of the model: y − x."""
    buffers: Tensor
    change: State
    """What the method's parts upload beside Δ, such as the change of a control variate."""
    state: State
    """What the client will remember; it stays where the client runs."""

    def with_loss(self, loss: float) -> TrainReply:
        """The same reply with another loss."""
        numbers = self.client, self.round, self.samples, self.steps, loss
        return TrainReply(*numbers, self.delta, self.buffers, self.change, self.state)

    def parts(self) -> tuple[dict[str, float], State, dict[str, State]]:
        """Its numbers, its tensors and its groups of tensors, by name, for sending it."""
        numbers = {
            "client": self.client,
            "round": self.round,
            "samples": self.samples,
            "steps": self.steps,
            "loss": self.loss,
        }
        tensors = {"delta": self.delta, "buffers": self.buffers}
        return numbers, tensors, {"change": self.change, "state": self.state}


class Weight(NamedTuple):
    """How much a client counts beside the others of its round."""

    parameters: Tensor | float
    """One number, or one for each parameter [P]."""
    buffers: Tensor | float
    """One number, or one for each buffer entry [Q]."""

    @classmethod
    def of(cls, weight: float) -> Weight:
        """The same weight for all parameters and buffers."""
        return cls(weight, weight)

    def over(self, mean: Weight) -> Weight:
        """The weight divided by the cohort's mean weight; 1 where all weights are 0."""
        return Weight(*(_share(value, own) for value, own in zip(self, mean, strict=True)))


def _share(value: Tensor | float, mean: Tensor | float) -> Tensor | float:
    """A weight divided by the cohort's mean weight; 1 where all weights are 0."""
    if isinstance(mean, Tensor):
        return torch.where(mean > 0, value / mean, 1.0)
    return value / mean if mean > 0 else 1.0


@dataclass(frozen=True)
class Cohort:
    """All updates of a round, for weightings and screens that compare them."""

    start: Tensor
    """The model that the clients received."""
    buffers: Tensor
    """The server's."""
    updates: tuple[TrainReply, ...]
    layout: Layout

    @cached_property
    def models(self) -> Tensor:
        """The clients' models [K, P]."""
        return torch.stack([update.delta for update in self.updates]).add_(self.start)


COMPARTMENTS = ("state", "protocol", "screens", "privacy")
"""The fields of a server that are named tensors."""


@dataclass(frozen=True)
class Server:
    """What the server holds between rounds, in compartments; a checkpoint writes them as they are."""

    model: Tensor
    buffers: Tensor
    state: State
    """What the method's parts keep."""
    protocol: State = field(default_factory=dict)
    """Simulated time, and what an asynchronous server knows of the clients that are training."""
    screens: State = field(default_factory=dict)
    """What the guard, the screens and simulated bad clients remember."""
    privacy: State = field(default_factory=dict)
    """What the privacy mechanism keeps."""

    @property
    def tensors(self) -> State:
        """Everything that it holds, by names that begin with the compartment's."""
        vectors = {"model": self.model, "buffers": self.buffers}
        return vectors | {
            f"{compartment}.{name}": value
            for compartment in COMPARTMENTS
            for name, value in getattr(self, compartment).items()
        }

    def moved(self, model: Tensor, state: State) -> Server:
        """The server with another model, and with some of the method's state replaced."""
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
    mass: Tensor | float = 1.0
    """Σ aₖ / |S|, which is 1 for weightings of a whole cohort whose αₖ sum to one."""


class Occasion(NamedTuple):
    """What a rule knows of a round beside its updates."""

    state: State
    """The server's state for the method, before the round."""
    seed: int
    round: int


class Fold(Protocol):
    """Takes updates as they arrive, in cohort order, and keeps no more than it must."""

    def add(self, update: TrainReply, weight: Weight) -> None:
        """Take in one update."""

    def result(self) -> Aggregate:
        """The aggregate of all updates so far."""
