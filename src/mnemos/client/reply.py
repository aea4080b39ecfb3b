"""What a client starts its round with, and the reply that ends it."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mnemos.client.messages import TrainRequest
from mnemos.client.workload import apply_label_map
from mnemos.methods.exchange import Client, Finished, Rates, State, TrainReply
from mnemos.optim.local import Local
from mnemos.privacy.privacy import NoPrivacy
from mnemos.vector import Layout

_OPTIMIZER = "optimizer."
"""Prefix of the names under which a client keeps its optimiser's state; methods never use it."""


def view(request: TrainRequest, labels: Tensor, classes: int) -> Client:
    """What the method sees of a client; `labels` are those of all training samples."""
    return views([request], labels, classes)[0]


def views(requests: Sequence[TrainRequest], labels: Tensor, classes: int) -> list[Client]:
    """What the method sees of each client; `requests` are of the same plan, and are counted at once."""
    columns = label_columns(requests, labels, classes)
    return [
        Client(request.model, request.received, of_method(request.state), *rows)
        for request, *rows in zip(requests, *columns, strict=True)
    ]


def label_columns(
    requests: Sequence[TrainRequest], labels: Tensor, classes: int
) -> tuple[Tensor, Tensor, Tensor]:
    """`counts`, `held` and `present` of each client, as matrices with one row per client."""
    method = requests[0].plan.method
    counts = held = _label_counts(requests, [request.samples for request in requests], labels, classes)
    if method.loss.counted == "all":
        counts = held + _label_counts(requests, [request.held_out for request in requests], labels, classes)
    elif method.loss.counted == "tasks":
        counts = torch.stack([request.met for request in requests])
    first = requests[0].present
    if all(request.present is first for request in requests):
        present = first | (held > 0)
    else:
        present = torch.stack([request.present for request in requests]) | (held > 0)
    return method.head.per_output(counts.float()), held.float(), present.float()


def _label_counts(
    requests: Sequence[TrainRequest], samples: Sequence[Tensor], labels: Tensor, classes: int
) -> Tensor:
    """How many of its samples each client takes for each class [K, classes]."""
    sizes = [own.shape[0] for own in samples]
    found = labels[torch.cat(list(samples))]
    if any(request.label_map is not None for request in requests):
        parts = zip(torch.split(found, sizes), requests, strict=True)
        found = torch.cat([apply_label_map(part, request.label_map) for part, request in parts])
    rows = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    cells = torch.bincount(rows * classes + found, minlength=len(sizes) * classes)
    return cells.view(len(sizes), classes)


def of_method(state: State) -> State:
    """What of a client's memory isn't its optimiser's."""
    return {name: value for name, value in state.items() if not name.startswith(_OPTIMIZER)}


def optimizer_state(request: TrainRequest, parameters: Tensor, layout: Layout) -> State:
    """The state of a client's optimiser at the start of its round: the one it has kept, or a fresh one."""
    state = request.plan.local.optimizer.init(parameters, layout)
    for name in state:
        if _OPTIMIZER + name in request.state:  # a copy: a request may be run again
            state[name] = request.state[_OPTIMIZER + name].clone()
    return state


def kept(local: Local, state: State) -> State:
    """What a client remembers of its optimiser's state: all or nothing."""
    return {_OPTIMIZER + name: value for name, value in state.items()} if local.keeps else {}


class Trained(NamedTuple):
    """A client's tensors and numbers after its last step."""

    parameters: Tensor
    buffers: Tensor
    rates: Rates
    """The learning rates of the steps that it made."""
    data_means: State
    """What the method's data passes found, as means over its samples."""
    optimizer: State


def finish(request: TrainRequest, client: Client, trained: Trained) -> TrainReply:
    """The reply of a client that has trained; its loss is NaN until it is read from the device."""
    plan, local, steps = request.plan, request.plan.local, sum(count for count, _ in trained.rates)
    done = Finished(client, trained.parameters, steps, trained.rates, local, trained.data_means)
    change, state = plan.method.upload(done)
    state = {**state, **kept(local, trained.optimizer)}
    return _protected(request, steps, plan.method.correction.delta(done), trained.buffers, change, state)


def finish_together(
    requests: Sequence[TrainRequest], client: Client, trained: Trained, shared: Collection[str]
) -> list[TrainReply]:
    """`finish` of many clients with the same learning rates, by a method whose parts act `by_parameter`.

    Tensors of `client` and `trained` have one row per request, or are the same for all, as those of the
    client's state that are named in `shared`. The replies' tensors are rows of matrices.
    """
    plan, local = requests[0].plan, requests[0].plan.local
    steps = sum(count for count, _ in trained.rates)
    done = Finished(client, trained.parameters, steps, trained.rates, local, trained.data_means)
    change, state = plan.method.upload(done)
    kept_optimizer = kept(local, trained.optimizer)
    unchanged = {name: state.pop(name) for name in shared if state.get(name) is client.state.get(name)}
    deltas = plan.method.correction.delta(done).unbind(0)
    columns = (
        deltas,
        trained.buffers.unbind(0),
        _by_row(change, deltas),
        _by_row({**state, **kept_optimizer}, deltas),
    )
    return [
        _protected(request, steps, delta, buffers, sent, {**unchanged, **remembered})
        for request, delta, buffers, sent, remembered in zip(requests, *columns, strict=True)
    ]


def _protected(
    request: TrainRequest, steps: int, delta: Tensor, buffers: Tensor, change: State, state: State
) -> TrainReply:
    """The reply with these tensors, as the plan's privacy has it."""
    plan = request.plan
    if not isinstance(plan.privacy, NoPrivacy):
        own = request.received, plan.seed, request.round, request.client
        delta, said = plan.privacy.protect(delta, *own)
        change = {**change, **said}
    count = request.samples.shape[0]
    return TrainReply(request.client, request.round, count, steps, math.nan, delta, buffers, change, state)


def _by_row(state: State, like: Sequence[Tensor]) -> list[State]:
    """The rows of a state's matrices, one state for each of `like`."""
    if not state:
        return [{} for _ in like]
    rows = zip(*(values.unbind(0) for values in state.values()), strict=True)
    return [dict(zip(state, row, strict=True)) for row in rows]
