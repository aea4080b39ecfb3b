"""What several clients send back: one reply after another, or columns with a row for each client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple, TypeVar, overload

import torch
from torch import Tensor

from mnemos.common.devices import send
from mnemos.methods.exchange import State, TrainReply

_T = TypeVar("_T")


class Columns(NamedTuple):
    """The fields of some replies, each as a list or as a tensor with a row for each reply."""

    clients: Sequence[int]
    rounds: Sequence[int]
    samples: Sequence[int]
    steps: Sequence[int]
    losses: Sequence[float]
    delta: Tensor
    buffers: Tensor
    change: State
    state: State

    @classmethod
    def of(cls, replies: Sequence[TrainReply]) -> Columns:
        """The columns of replies whose tensors have the same names and shapes, without what clients keep."""
        return cls(
            [reply.client for reply in replies],
            [reply.round for reply in replies],
            [reply.samples for reply in replies],
            [reply.steps for reply in replies],
            [reply.loss for reply in replies],
            torch.stack([reply.delta for reply in replies]),
            torch.stack([reply.buffers for reply in replies]),
            _stacked([reply.change for reply in replies]),
            {},
        )

    def row(self, index: int) -> TrainReply:
        """One reply; its tensors are rows of the columns."""
        return TrainReply(
            self.clients[index],
            self.rounds[index],
            self.samples[index],
            self.steps[index],
            self.losses[index],
            self.delta[index],
            self.buffers[index],
            {name: values[index] for name, values in self.change.items()},
            {name: values[index] for name, values in self.state.items()},
        )

    def picked(self, indices: Sequence[int] | slice) -> Columns:
        """The columns of some of the replies."""
        return Columns(
            _picked(self.clients, indices),
            _picked(self.rounds, indices),
            _picked(self.samples, indices),
            _picked(self.steps, indices),
            _picked(self.losses, indices),
            self.delta[indices],
            self.buffers[indices],
            {name: values[indices] for name, values in self.change.items()},
            {name: values[indices] for name, values in self.state.items()},
        )

    @classmethod
    def joined(cls, several: Sequence[Columns]) -> Columns:
        """The columns of several groups of replies, one group after the other."""
        return cls(
            [*chain.from_iterable(own.clients for own in several)],
            [*chain.from_iterable(own.rounds for own in several)],
            [*chain.from_iterable(own.samples for own in several)],
            [*chain.from_iterable(own.steps for own in several)],
            [*chain.from_iterable(own.losses for own in several)],
            torch.cat([own.delta for own in several]),
            torch.cat([own.buffers for own in several]),
            _joined([own.change for own in several]),
            _joined([own.state for own in several]),
        )


class TrainReplies(Sequence[TrainReply]):
    """The replies of some clients.

    They are held as they have come: one by one, or as columns if an engine has trained many clients at once.
    A single reply of columns is made when it is looked at, and columns of single replies when they are.
    """

    def __init__(self, replies: Sequence[TrainReply] | Columns) -> None:
        self._held = replies

    @classmethod
    def of(cls, replies: Sequence[TrainReply]) -> TrainReplies:
        """Some replies, which may be some already."""
        return replies if isinstance(replies, cls) else cls(replies)

    @classmethod
    def joined(cls, several: Sequence[TrainReplies]) -> TrainReplies:
        """The replies of several groups of clients, one group after the other."""
        if len(several) == 1:
            return several[0]
        columns = [some._held for some in several if isinstance(some._held, Columns)]
        if len(columns) < len(several):
            return cls([reply for some in several for reply in some])
        return cls(Columns.joined(columns))

    @property
    def in_columns(self) -> bool:
        """Whether they are held as columns."""
        return isinstance(self._held, Columns)

    @property
    def columns(self) -> Columns:
        """The replies as columns; their tensors must have the same names and shapes.

        If they have come one by one, what their clients keep is left out.
        """
        return self._held if isinstance(self._held, Columns) else Columns.of(self._held)

    @property
    def clients(self) -> Sequence[int]:
        """The client of each reply."""
        held = self._held
        return held.clients if isinstance(held, Columns) else [reply.client for reply in held]

    def __len__(self) -> int:
        return len(self._held.clients if isinstance(self._held, Columns) else self._held)

    @overload
    def __getitem__(self, index: int) -> TrainReply: ...

    @overload
    def __getitem__(self, index: slice) -> TrainReplies: ...

    def __getitem__(self, index: int | slice) -> TrainReply | TrainReplies:
        held = self._held
        if isinstance(index, slice):
            return TrainReplies(held.picked(index) if isinstance(held, Columns) else held[index])
        return held.row(index) if isinstance(held, Columns) else held[index]

    def __iter__(self) -> Iterator[TrainReply]:
        held = self._held
        return map(held.row, range(len(held.clients))) if isinstance(held, Columns) else iter(held)

    def copied(self) -> TrainReplies:
        """The same replies; the tensors of columns are in memory of their own."""
        if not isinstance(self._held, Columns):
            return self
        delta, buffers, *states = self._held[5:]
        change, state = ({name: value.clone() for name, value in own.items()} for own in states)
        return TrainReplies(
            self._held._replace(delta=delta.clone(), buffers=buffers.clone(), change=change, state=state)
        )

    def picked(self, indices: Sequence[int]) -> TrainReplies:
        """Some of the replies, in the order of the indices."""
        if [*indices] == [*range(len(self))]:
            return self
        held = self._held
        return TrainReplies(
            held.picked(indices) if isinstance(held, Columns) else [held[index] for index in indices]
        )

    def each(self, change: Callable[[TrainReply], TrainReply]) -> TrainReplies:
        """Every reply, changed."""
        return TrainReplies([change(reply) for reply in self])

    def with_losses(self, losses: Sequence[float]) -> TrainReplies:
        """The same replies with other losses."""
        if isinstance(self._held, Columns):
            return TrainReplies(self._held._replace(losses=losses))
        pairs = zip(self._held, losses, strict=True)
        return TrainReplies([reply.with_loss(loss) for reply, loss in pairs])

    @property
    def device(self) -> torch.device:
        """Where their tensors are; there must be a reply."""
        held = self._held
        return held.delta.device if isinstance(held, Columns) else held[0].delta.device

    def on(self, device: torch.device) -> TrainReplies:
        """The same replies with all their tensors on a device."""
        if self.device == device:
            return self
        if isinstance(self._held, Columns):
            return TrainReplies(send(self._held, device))

        def moved(reply: TrainReply) -> TrainReply:
            parts = reply.delta, reply.buffers, reply.change, reply.state
            delta, buffers, change, state = send(parts, device)
            return replace(reply, delta=delta, buffers=buffers, change=change, state=state)

        return self.each(moved)


def _picked(values: Sequence[_T], indices: Sequence[int] | slice) -> Sequence[_T]:
    return values[indices] if isinstance(indices, slice) else [values[index] for index in indices]


def _stacked(states: Iterable[State]) -> State:
    """The tensors of several states as one state, with a row for each."""
    first, *rest = states
    return {name: torch.stack([value, *(state[name] for state in rest)]) for name, value in first.items()}


def _joined(states: Sequence[State]) -> State:
    """The rows of several states, one after the other."""
    return {name: torch.cat([state[name] for state in states]) for name in states[0]}
