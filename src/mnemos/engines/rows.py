"""The clients of a chunk as rows of matrices; `vmap` applies functions of one client to all of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from mnemos.client.messages import Plan, TrainRequest
from mnemos.client.reply import Trained, finish_together, label_columns, optimizer_state
from mnemos.client.requests import Pace, RequestColumns, picked
from mnemos.client.step import Step, Trainees
from mnemos.client.workload import Course, courses, rates, step_rates, workload
from mnemos.common import activity
from mnemos.common.devices import CPU, send
from mnemos.data.batches import Loader
from mnemos.data.dataset import Dataset
from mnemos.engines.closed_form import closed_form, in_closed_form
from mnemos.engines.feed import Feed
from mnemos.engines.stacking import (
    batch_tensors,
    client_like,
    client_rows,
    each_client,
    first_rows,
    one_like,
    own_rows,
    stack,
)
from mnemos.methods.exchange import Batch, Client, Rates, State
from mnemos.methods.replies import TrainReplies
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
        device = loaders.training.device
        asked = RequestColumns.of(requests)
        self._courses = courses(asked, batch_norm)
        order = self._row = [*range(len(requests))]
        """The row of each request: the inverse of `order`, which has the request of each row."""
        if len({course.total for course in self._courses}) > 1:
            order = sorted(order, key=lambda k: -self._courses[k].total)
            self._row = sorted(order, key=order.__getitem__)
            asked = RequestColumns.of(picked(requests, order))
            self._courses = [self._courses[k] for k in order]
        self.plan, self.layout, self._functional, self._loaders = plan, functional.layout, functional, loaders
        self._requests, self._asked = asked.requests, asked
        self._chain = functional.chain if in_closed_form(plan, functional, dataset.shape) else None
        self._feed = Feed(dataset, asked, self._courses, loaders.training, self.layout, batch_norm)
        columns = label_columns(asked, dataset.train.labels, len(dataset.classes))
        self._client, self._dims = stack(asked, columns)
        buffers = asked.buffers.value
        if device != CPU:
            states = [request.state if plan.local.keeps else {} for request in self._requests]
            self._client, buffers, states = send((self._client, buffers, states), device)
            self._requests = [
                replace(request, state=state) for request, state in zip(self._requests, states, strict=True)
            ]
        self.parameters = own_rows(self._client.start, len(requests), self.layout.size)
        self.buffers = own_rows(buffers, len(requests), self.layout.buffer_size)
        self.optimizer = self._first_moments()
        self.losses, self._seen = torch.zeros(len(requests), device=device), torch.zeros(len(requests))
        self._rates = _rates(asked, self._courses, batch_norm)
        self._columns = _columns(self._rates, device)
        # None, and not these rows themselves: a cycle would keep a chunk in memory for too long.
        self._narrowed: Rows | None = None

    def _first_moments(self) -> State:
        """The state of the clients' optimisers before their first step."""
        pairs = zip(self._requests, self.parameters, strict=True)
        first = optimizer_state(*next(pairs), self.layout)
        if not first:
            return {}
        rest = (optimizer_state(request, parameters, self.layout) for request, parameters in pairs)
        return _together([first, *rest])

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
            rows._client = first_rows(count, self._client, self._dims)
            self._narrowed = rows
        return self._narrowed

    def steps(self) -> Iterator[tuple[Rows, Step]]:
        """Each step, with the first rows: the clients that make it."""
        local = self.plan.local
        known = {pace: step_rates(pace) for pace in dict.fromkeys(self._rates)}
        paces = [known[pace] for pace in self._rates]
        counts = local.optimizer.counts_epochs
        ends = [frozenset(course.ends) if counts else frozenset() for course in self._courses]
        for step, fed in enumerate(self._feed.training()):
            active = len(fed.sizes)
            self._seen[:active] += fed.sizes
            over = [row for row in range(active) if step + 1 in ends[row]] if counts else ()
            yield (
                self.first(active),
                Step(fed.batch, fed.counts, [pace[step] for pace in paces[:active]], over),
            )
            activity.step(step + 1, self._courses[0].total, len(self._courses))

    def samples(self) -> Iterator[tuple[Rows, Batch]]:
        """The batches of one pass over all clients' samples."""
        for batch, sizes, _ in self._feed.one_pass(self._loaders.plain):
            yield self.first(len(sizes)), batch

    def trained(self, data_means: State) -> Iterator[tuple[TrainRequest, Client, Trained]]:
        """Each client after its last step, with its request, in the order of the requests."""
        clients = each_client(self._client, self._dims, len(self._requests))
        for row in self._row:
            # Copies: a client's memory must not keep the whole cohort's matrix alive.
            end, buffers = self.parameters[row].clone(), self.buffers[row].clone()
            found, optimizer = (
                {name: value[row].clone() for name, value in values.items()}
                for values in (data_means, self.optimizer)
            )
            done = Trained(end, buffers, self._rates[row], found, optimizer)
            yield self._requests[row], clients[row], done

    def replies(self, data_means: State) -> TrainReplies:
        """The clients' replies; all at once, where the method allows it and all had the same rates."""
        if not (self.plan.method.by_parameter and len(set(self._rates)) == 1):
            return super().replies(data_means)
        shared = {name for name, dim in self._dims.state.items() if dim is None}
        done = Trained(self.parameters, self.buffers, self._rates[0], data_means, self.optimizer)
        return finish_together(self._asked, self._client, done, shared).picked(self._row)

    def correct(self, gradient: Tensor) -> Tensor:
        """The corrected gradients; of all rows at once, where the method allows it."""
        method = self.plan.method
        if method.by_parameter:
            return method.correct(gradient, self.parameters, self._client)
        return super().correct(gradient)

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
        rows = [*chain.from_iterable(map(batch_tensors, values)), *client_rows(self._client, self._dims)]

        def of_one(*row: Tensor) -> _R:
            left = iter(row)
            own = [one_like(value, left) for value in values]
            return function(*own, client_like(self._client, self._dims, left))

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
        lr: Rate = rates[0]  # of all, as a rule
        if self._columns:
            lr = self._columns.get(tuple(rates), lr)

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
        sizes = torch.tensor(self._asked.samples.sizes, device=total.device)
        return total / sizes.view(-1, *[1] * (total.ndim - 1))


def _together(states: list[State]) -> State:
    """The clients' states as one, with one row per client."""
    return {name: torch.stack([state[name] for state in states]) for name in states[0]}


def _rates(asked: RequestColumns, courses: Sequence[Course], batch_norm: bool) -> list[Rates]:
    """Each client's learning rates; worked out once for clients with the same rate, round and steps."""
    keys = [*zip(asked.paces, courses, strict=True)]
    known: dict[tuple[object, ...], Rates] = {}
    by_key: dict[tuple[Pace, Course], Rates] = {}
    for row, key in enumerate(keys):
        if key not in by_key:
            pace, course = key
            alike = pace, course.total, len(course.epoch)
            if alike not in known:
                request = asked.requests[row]
                known[alike] = rates(request, workload(request, batch_norm))
            by_key[key] = known[alike]
    return [by_key[key] for key in keys]


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
