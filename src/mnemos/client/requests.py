"""The requests to a round's clients: one by one, or what they have in common once and the rest as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor

from mnemos.client.messages import Plan, TrainRequest
from mnemos.common.devices import CPU, send
from mnemos.methods.exchange import Broadcast, State

OPTIMIZER = "optimizer."
"""Prefix of the names under which a client keeps its optimiser's state; methods never use it."""


class Runs(NamedTuple):
    """The samples of several clients, laid end to end."""

    indices: Tensor
    sizes: Sequence[int]

    @classmethod
    def of(cls, each: Sequence[Tensor]) -> Runs:
        """From the samples of each client."""
        return cls(torch.cat(list(each)), [own.shape[0] for own in each])

    @property
    def each(self) -> tuple[Tensor, ...]:
        """The samples of each client, in the same memory."""
        return torch.split(self.indices, list(self.sizes))


class Own(NamedTuple):
    """What clients have of their own that are sent the same, looked up for many of them at once."""

    held_out: Callable[[Sequence[int]], Runs]
    """Their validation samples."""
    states: Callable[[Sequence[int]], tuple[State, bool]]
    """What they remember, with a row for each client; or one state and False, if they all have that one."""


@dataclass(frozen=True)
class TrainRequests(Sequence[TrainRequest]):
    """The requests to some clients; each is made when it is looked at."""

    plan: Plan
    clients: Sequence[int]
    samples: Sequence[Tensor]
    """The training samples of each."""
    broadcasts: Mapping[int, Broadcast]
    """What the server sends to each client."""
    limits: Mapping[int, int]
    """After how many steps each client stops that has to stop early."""
    make: Callable[[int, Tensor], TrainRequest]
    """The request to a client with these samples."""
    own: Own | None = None
    """Set if the requests differ in client, samples and memory alone."""

    def __len__(self) -> int:
        return len(self.clients)

    @overload
    def __getitem__(self, index: int) -> TrainRequest: ...

    @overload
    def __getitem__(self, index: slice) -> TrainRequests: ...

    def __getitem__(self, index: int | slice) -> TrainRequest | TrainRequests:
        if isinstance(index, slice):
            return self._with(self.clients[index], self.samples[index])
        return self.make(self.clients[index], self.samples[index])

    def __iter__(self) -> Iterator[TrainRequest]:
        return map(self.make, self.clients, self.samples)

    def picked(self, indices: Sequence[int]) -> TrainRequests:
        """Some of the requests, in the order of the indices."""
        clients, samples = self.clients, self.samples
        if len(indices) == len(clients) and [*indices] == [*range(len(clients))]:
            return self
        return self._with([clients[index] for index in indices], [samples[index] for index in indices])

    def _with(self, clients: Sequence[int], samples: Sequence[Tensor]) -> TrainRequests:
        return TrainRequests(self.plan, clients, samples, self.broadcasts, self.limits, self.make, self.own)


def sizes(requests: Sequence[TrainRequest]) -> list[int]:
    """The number of samples of each client."""
    each = requests.samples if isinstance(requests, TrainRequests) else [own.samples for own in requests]
    return [samples.shape[0] for samples in each]


def picked(requests: Sequence[TrainRequest], indices: Sequence[int]) -> Sequence[TrainRequest]:
    """Some of the requests, in the order of the indices."""
    if isinstance(requests, TrainRequests):
        return requests.picked(indices)
    return [requests[index] for index in indices]


def of_method(state: State) -> State:
    """What of a client's memory isn't its optimiser's."""
    return {name: value for name, value in state.items() if not name.startswith(OPTIMIZER)}


class Column(NamedTuple):
    """A value for each client: a row each, or one value that all have."""

    value: Any
    """A tensor, or named tensors."""
    dim: Any
    """The dimension of the rows, 0, or None if all have the same value; by name for named tensors."""

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> Column:
        """From each client's tensor; those that are the same object for all have no rows."""
        first = tensors[0]
        if all(tensor is first for tensor in tensors):
            return cls(first, None)
        devices = {tensor.device for tensor in tensors}
        if len(devices) > 1:  # what a client keeps is on the host, and what it is sent may be elsewhere
            tensors = send(list(tensors), (devices - {CPU}).pop())
        return cls(torch.stack(list(tensors)), 0)

    @classmethod
    def of_states(cls, states: Sequence[State]) -> Column:
        """From each client's named tensors."""
        columns = {name: cls.of([state[name] for state in states]) for name in states[0]}
        return cls(
            {name: column.value for name, column in columns.items()},
            {name: column.dim for name, column in columns.items()},
        )

    @classmethod
    def shared(cls, value: Tensor | State) -> Column:
        """One value for all."""
        return cls(value, dict.fromkeys(value) if isinstance(value, dict) else None)

    def rows(self, count: int) -> Tensor:
        """The tensor with a row for each of so many clients."""
        value: Tensor = self.value
        return value if self.dim == 0 else value.expand(count, *value.shape)


class Pace(NamedTuple):
    """What a client's learning rates depend on, beside its steps."""

    lr: float
    round: int
    limit: int | None
    """The number of steps after which it has to stop early."""


class RequestColumns(NamedTuple):
    """What is asked of some clients, with a row or an entry for each."""

    requests: Sequence[TrainRequest]
    """The requests themselves."""
    plan: Plan
    """Of the first; the others' differ in numbers at most."""
    keys: Sequence[tuple[int, int, int]]
    """(seed, round, client): where everything random about a client's round comes from."""
    paces: Sequence[Pace]
    samples: Runs
    held_out: Callable[[], Runs]
    label_maps: Sequence[Tensor | None] | None
    """None: all take each class for what it is."""
    plain: bool
    """Whether no client has noise on its samples, or a mark."""
    model: Column
    buffers: Column
    received: Column
    state: Column
    """What they remember for the method's parts."""
    met: Column
    present: Column

    @classmethod
    def of(cls, requests: Sequence[TrainRequest]) -> RequestColumns:
        """The columns of some requests, of which there must be one."""
        if isinstance(requests, TrainRequests) and requests.own is not None:
            return cls._of_alike(requests, requests.own)
        requests = list(requests)
        maps = [request.label_map for request in requests]
        return cls(
            requests,
            requests[0].plan,
            [(request.plan.seed, request.round, request.client) for request in requests],
            [Pace(request.plan.local.lr, request.round, request.steps) for request in requests],
            Runs.of([request.samples for request in requests]),
            lambda: Runs.of([request.held_out for request in requests]),
            None if all(own is None for own in maps) else maps,
            not any(request.noise or request.trigger for request in requests),
            Column.of([request.model for request in requests]),
            Column.of([request.buffers for request in requests]),
            Column.of_states([request.received for request in requests]),
            Column.of_states([of_method(request.state) for request in requests]),
            Column.of([request.met for request in requests]),
            Column.of([request.present for request in requests]),
        )

    @classmethod
    def of_one(cls, request: TrainRequest) -> RequestColumns:
        """The columns of a single request; all that it has counts as shared."""
        return cls(
            (request,),
            request.plan,
            ((request.plan.seed, request.round, request.client),),
            (Pace(request.plan.local.lr, request.round, request.steps),),
            Runs(request.samples, (request.samples.shape[0],)),
            lambda: Runs(request.held_out, (request.held_out.shape[0],)),
            None if request.label_map is None else (request.label_map,),
            not (request.noise or request.trigger),
            Column(request.model, None),
            Column(request.buffers, None),
            Column(request.received, None),
            Column(of_method(request.state), None),
            Column(request.met, None),
            Column(request.present, None),
        )

    @classmethod
    def _of_alike(cls, requests: TrainRequests, own: Own) -> RequestColumns:
        first, clients, count = requests[0], requests.clients, len(requests)
        state, by_row = own.states(clients)
        return cls(
            requests,
            first.plan,
            [(first.plan.seed, first.round, client) for client in clients],
            [Pace(first.plan.local.lr, first.round, None)] * count,
            Runs.of(requests.samples),
            lambda: own.held_out(clients),
            None,
            True,
            Column.shared(first.model),
            Column.shared(first.buffers),
            Column.shared(first.received),
            Column(state, dict.fromkeys(state, 0)) if by_row else Column.shared(state),
            Column.shared(first.met),
            Column.shared(first.present),
        )
