"""The clients of a chunk as rows of matrices; `vmap` applies functions of one client to all of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from mnemos.client.messages import Plan, TrainRequest
from mnemos.client.reply import Trained, optimizer_state, views
from mnemos.client.step import Step, Trainees
from mnemos.client.workload import LocalWorkload, rates, step_rates, workload
from mnemos.common import activity
from mnemos.common.devices import CPU, send
from mnemos.data.batches import Loader
from mnemos.data.dataset import Dataset
from mnemos.engines.closed_form import closed_form, in_closed_form
from mnemos.engines.feed import Feed
from mnemos.methods.exchange import Batch, Client, Rates, State
from mnemos.models.functional import Functional
from mnemos.optim.optimizer import Rate

_R = TypeVar("_R")


class Loaders(NamedTuple):
    """What turns drawn batches into input on a device."""

    training: Loader
    """With augmentation."""
    plain: Loader


class Rows(Trainees):
    """The clients of a chunk, one row each.

    Rows are sorted by the number of steps, most first, so that the clients that still train are always the
    first rows.
    """

    def __init__(
        self,
        plan: Plan,
        dataset: Dataset,
        functional: Functional,
        requests: Sequence[TrainRequest],
        loaders: Loaders,
        batch_norm: bool,
    ) -> None:
        """`requests`: in any order; `batch_norm`: whether the model has batch-norm layers."""
        workloads = [workload(request, batch_norm) for request in requests]
        device = loaders.training.device
        order = sorted(range(len(requests)), key=lambda k: -workloads[k].total)
        self._row = sorted(range(len(requests)), key=order.__getitem__)
        """The row of each request: the inverse of `order`, which has the request of each row."""
        self.plan, self.layout, self._functional, self._loaders = plan, functional.layout, functional, loaders
        self._chain = functional.chain if in_closed_form(plan, functional, dataset.shape) else None
        self._workloads = [workloads[k] for k in order]
        sorted_requests = [requests[k] for k in order]
        self._feed = Feed(dataset, sorted_requests, self._workloads, loaders.training, self.layout)
        labels, classes = dataset.train.labels, len(dataset.classes)
        self._clients = views(sorted_requests, labels, classes)
        self._requests, buffers = sorted_requests, [request.buffers for request in sorted_requests]
        if device != CPU:
            states = [request.state for request in sorted_requests]
            self._clients, states, buffers = send((self._clients, states, buffers), device)
            self._requests = [
                replace(request, state=state) for request, state in zip(sorted_requests, states, strict=True)
            ]
        self.parameters = torch.stack([client.start for client in self._clients])
        self.buffers = torch.stack(buffers)
        self.optimizer = _together(
            [
                optimizer_state(request, w, self.layout)
                for request, w in zip(self._requests, self.parameters, strict=True)
            ]
        )
        self.losses, self._seen = torch.zeros(len(requests), device=device), torch.zeros(len(requests))
        self._client, self._dims = stack(self._clients)
        self._rates = _rates(self._requests, self._workloads)
        self._columns = _columns(self._rates, device)
        # None, and not these rows themselves: a cycle would keep a chunk in memory for too long.
        self._narrowed: Rows | None = None

    @property
    def functional(self) -> Functional:
        """The replica that takes one row's vectors as arguments."""
        return self._functional

    def first(self, count: int) -> Rows:
        """The first rows, in the same memory."""
        if count == len(self.parameters):
            return self
        # The rows of the step before are kept, as the next step has the same ones, as a rule.
        if self._narrowed is None or count != len(self._narrowed.parameters):
            rows = copy.copy(self)
            rows.parameters, rows.buffers = self.parameters[:count], self.buffers[:count]
            rows.optimizer = {name: values[:count] for name, values in self.optimizer.items()}
            rows.losses = self.losses[:count]
            rows._client = _first(count, self._client, self._dims)
            self._narrowed = rows
        return self._narrowed

    def steps(self) -> Iterator[tuple[Rows, Step]]:
        """Each step, with the first rows: the clients that make it."""
        local = self.plan.local
        paces = [step_rates(pace) for pace in self._rates]
        counts = local.optimizer.counts_epochs
        ends = [frozenset(todo.ends) if counts else frozenset() for todo in self._workloads]
        for step, fed in enumerate(self._feed.training()):
            active = len(fed.sizes)
            self._seen[:active] += fed.sizes
            over = [row for row in range(active) if step + 1 in ends[row]] if counts else ()
            yield (
                self.first(active),
                Step(fed.batch, fed.counts, [pace[step] for pace in paces[:active]], over),
            )
            activity.step(step + 1, self._workloads[0].total, len(self._workloads))

    def samples(self) -> Iterator[tuple[Rows, Batch]]:
        """The batches of one pass over all clients' samples."""
        for batch, sizes, _ in self._feed.one_pass(self._loaders.plain):
            yield self.first(len(sizes)), batch

    def trained(self, data_means: State) -> Iterator[tuple[TrainRequest, Client, Trained]]:
        """Each client after its last step, with its request, in the order of the requests."""
        for row in self._row:
            # Copies: a client's memory must not keep the whole cohort's matrix alive.
            end, buffers = self.parameters[row].clone(), self.buffers[row].clone()
            found, optimizer = (
                {name: value[row].clone() for name, value in values.items()}
                for values in (data_means, self.optimizer)
            )
            done = Trained(end, buffers, self._rates[row], found, optimizer)
            yield self._requests[row], self._clients[row], done

    def loss_reader(self) -> Callable[[Tensor], list[float]]:
        """A function that turns sums of losses, by row, into mean losses in the order of the requests."""
        seen, rows = self._seen, self._row

        def read(sums: Tensor) -> list[float]:
            means = (sums / seen).tolist()
            return [means[row] for row in rows]

        return read

    def apply(self, function: Callable[..., _R], *values: Tensor | Batch) -> _R:
        """The function of (values…, client) for every row, by `vmap`.

        Only what has a row for each client is an argument there, as a plain tensor: `vmap` takes structures
        apart, and puts them together again, many times in each step.
        """
        rows = [*chain.from_iterable(map(_tensors, values)), *_client_rows(self._client, self._dims)]

        def of_one(*row: Tensor) -> _R:
            left = iter(row)
            own = [_like(value, left) for value in values]
            return function(*own, _client_like(self._client, self._dims, left))

        result: _R = vmap(of_one)(*rows)
        return result

    def gradient(self, points: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Gradients [K, P] and losses [K] of one batch per client."""
        method, functional, chain = self.plan.method, self._functional, self._chain
        if chain is not None:
            return closed_form(self, chain, points, batch)

        def of_one(
            point: Tensor, buffers: Tensor, batch: Batch, client: Client
        ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            def loss_of(parameters: Tensor) -> tuple[Tensor, Tensor]:
                with functional.masked(batch.mask):
                    net = self.lowered(functional.net(parameters, buffers))
                    losses = method.batch_loss(net, batch, client)
                    return batch.mean(losses), functional.updated_buffers(buffers)

            found: tuple[Tensor, tuple[Tensor, Tensor]] = grad_and_value(loss_of, has_aux=True)(point)
            return found

        gradients, (losses, buffers) = self.apply(of_one, points, self.buffers, batch)
        self.buffers.copy_(buffers)
        return gradients, losses

    def optimise(self, gradient: Tensor, rates: Sequence[float]) -> None:
        """One step of every row; element by element at once, where the optimiser allows it."""
        local = self.plan.local
        lr: Rate = self._columns.get(tuple(rates), rates[0])  # the latter where all have the same

        def step(parameters: Tensor, gradient: Tensor, state: State, lr: Rate) -> Tensor:
            local.optimizer.step(parameters, gradient, state, lr, local.weight_decay)
            return parameters

        if local.optimizer.elementwise:
            step(self.parameters, gradient, self.optimizer, lr)
        else:
            by_row = 0 if isinstance(lr, Tensor) else None
            vmap(step, in_dims=(0, 0, 0, by_row))(self.parameters, gradient, self.optimizer, lr)

    def row(self, row: int) -> tuple[Tensor, State]:
        """A row of the parameters and of the optimisers' state."""
        return self.parameters[row], {name: values[row] for name, values in self.optimizer.items()}

    def stack(self, values: Sequence[Tensor]) -> Tensor:
        """One row per client."""
        return torch.stack(list(values))

    def part(self, values: Tensor) -> Tensor:
        """The first rows of values that have a row for each client of the chunk."""
        return values[: len(self.parameters)]

    def add(self, total: Tensor | None, value: Tensor) -> Tensor:
        """A sum for every client of the chunk, with these rows' values added."""
        if total is None:
            total = value.new_zeros(len(self._requests), *value.shape[1:])
        self.part(total).add_(value)
        return total

    def per_sample(self, total: Tensor) -> Tensor:
        """The sums divided by the numbers of the clients' samples."""
        sizes = torch.tensor([len(request.samples) for request in self._requests], device=total.device)
        return total / sizes.view(-1, *[1] * (total.ndim - 1))


def _together(states: list[State]) -> State:
    """The clients' states as one, with one row per client."""
    return {name: torch.stack([state[name] for state in states]) for name in states[0]}


def _rates(requests: Sequence[TrainRequest], workloads: Sequence[LocalWorkload]) -> list[Rates]:
    """Each client's learning rates; worked out once for clients with the same rate, round and steps."""
    known: dict[tuple[object, ...], Rates] = {}
    found = []
    for request, todo in zip(requests, workloads, strict=True):
        key = request.plan.local.lr, request.round, request.steps, todo.steps, len(todo.epoch)
        if key not in known:
            known[key] = rates(request, todo)
        found.append(known[key])
    return found


def _columns(rates: Sequence[Rates], device: torch.device) -> dict[tuple[float, ...], Tensor]:
    """The learning rates of the steps in which clients differ, as columns [K, 1] on a device, by themselves.

    `rates`: each client's, those with the most steps first. They are sent in one piece before the first step.
    """
    if len(set(rates)) == 1:
        return {}
    paces, found = [step_rates(pace) for pace in rates], {}
    for step in range(len(paces[0])):
        own = tuple(pace[step] for pace in paces if len(pace) > step)
        if len(set(own)) > 1:
            found[own] = torch.tensor(own)[:, None]
    return send(found, device)


def _tensors(value: Tensor | Batch) -> Iterator[Tensor]:
    """A value, or a batch's tensors, which all have a row for each client."""
    if isinstance(value, Tensor):
        yield value
        return
    yield from (value.x, value.labels)
    if value.mask is not None:
        yield value.mask
    yield from value.drawn.values()


def _like(value: Tensor | Batch, left: Iterator[Tensor]) -> Tensor | Batch:
    """One client's part of a value, from its rows of the value's tensors."""
    if isinstance(value, Tensor):
        return next(left)
    x, labels = next(left), next(left)
    mask = None if value.mask is None else next(left)
    return Batch(x, labels, mask, {name: next(left) for name in value.drawn})


def _client_rows(stacked: Client, dims: Client) -> Iterator[Tensor]:
    """The tensors of stacked clients that have a row for each client."""
    pairs: Iterable[tuple[Any, Any]] = zip(stacked, dims, strict=True)
    for value, dim in pairs:
        if isinstance(value, dict):
            yield from (tensor for name, tensor in value.items() if dim[name] == 0)
        elif dim == 0:
            yield value


def _client_like(stacked: Client, dims: Client, left: Iterator[Tensor]) -> Client:
    """One client, from its rows and what is the same for all."""
    # No inner function that calls itself: a function in a cycle would keep the rows until they are collected.
    return Client(*(_part_like(value, dim, left) for value, dim in zip(stacked, dims, strict=True)))


def _part_like(value: Any, dim: Any, left: Iterator[Tensor]) -> Any:
    """A client's tensor, or dictionary of tensors, likewise."""
    if isinstance(value, dict):
        return {name: _part_like(tensor, dim[name], left) for name, tensor in value.items()}
    return next(left) if dim == 0 else value


def _first(count: int, stacked: Client, dims: Client) -> Client:
    """The first rows of stacked clients."""

    def cut(tensor: Tensor, dim: int | None) -> Tensor:
        return tensor if dim is None else tensor[:count]

    def cut_state(state: State, dims: Any) -> State:
        return {name: cut(tensor, dims[name]) for name, tensor in state.items()}

    return Client(
        cut(stacked.start, dims.start),  # type: ignore[arg-type]
        cut_state(stacked.received, dims.received),
        cut_state(stacked.state, dims.state),
        cut(stacked.counts, dims.counts),  # type: ignore[arg-type]
        cut(stacked.held, dims.held),  # type: ignore[arg-type]
        cut(stacked.present, dims.present),  # type: ignore[arg-type]
    )


def stack(clients: list[Client]) -> tuple[Client, Client]:
    """(all clients as one, with one row per client; the dimension of the rows in each of its tensors).

    A tensor that is the same object for all clients, usually the received model, is shared and has no rows:
    its dimension is None.
    """

    def column(tensors: list[Tensor]) -> tuple[Tensor, int | None]:
        shared = all(tensor is tensors[0] for tensor in tensors)
        return (tensors[0], None) if shared else (torch.stack(tensors), 0)

    def columns(states: list[State]) -> tuple[State, Any]:
        pairs = {name: column([state[name] for state in states]) for name in states[0]}
        return {name: pair[0] for name, pair in pairs.items()}, {
            name: pair[1] for name, pair in pairs.items()
        }

    fields: list[tuple[Any, Any]] = [
        column([client.start for client in clients]),
        columns([client.received for client in clients]),
        columns([client.state for client in clients]),
        column([client.counts for client in clients]),
        column([client.held for client in clients]),
        column([client.present for client in clients]),
    ]
    return Client(*(values for values, _ in fields)), Client(*(dims for _, dims in fields))
