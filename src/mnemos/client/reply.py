"""What a client starts its round with, and the reply that ends it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mnemos.client.messages import TrainRequest
from mnemos.client.workload import apply_label_map
from mnemos.methods.exchange import Client, Finished, Rates, State, TrainReply
from mnemos.optim.local import Local
from mnemos.vector import Layout

_OPTIMIZER = "optimizer."
"""Prefix of the names under which a client keeps its optimiser's state; methods never use it."""


def view(request: TrainRequest, labels: Tensor, classes: int) -> Client:
    """What the method sees of a client; `labels` are those of all training samples."""
    return views([request], labels, classes)[0]


def views(requests: Sequence[TrainRequest], labels: Tensor, classes: int) -> list[Client]:
    """What the method sees of each client; `requests` are of the same plan, and are counted at once."""
    method = requests[0].plan.method
    counts = held = _label_counts(requests, [request.samples for request in requests], labels, classes)
    if method.loss.counted == "all":
        counts = held + _label_counts(requests, [request.held_out for request in requests], labels, classes)
    elif method.loss.counted == "tasks":
        counts = torch.stack([request.met for request in requests])
    present = torch.stack([request.present for request in requests]) | (held > 0)
    columns = method.head.per_output(counts.float()), held.float(), present.float()
    return [
        Client(request.model, request.received, _of_method(request.state), *rows)
        for request, *rows in zip(requests, *columns, strict=True)
    ]


def _label_counts(
    requests: Sequence[TrainRequest], samples: Sequence[Tensor], labels: Tensor, classes: int
) -> Tensor:
    """How many of its samples each client takes for each class [K, classes]."""
    sizes = [len(own) for own in samples]
    found = labels[torch.cat(list(samples))]
    if any(request.label_map is not None for request in requests):
        parts = zip(torch.split(found, sizes), requests, strict=True)
        found = torch.cat([apply_label_map(part, request.label_map) for part, request in parts])
    rows = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    cells = torch.bincount(rows * classes + found, minlength=len(sizes) * classes)
    return cells.view(len(sizes), classes)


def _of_method(state: State) -> State:
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
    delta, said = plan.privacy.protect(
        plan.method.correction.delta(done), request.received, plan.seed, request.round, request.client
    )
    return TrainReply(
        request.client,
        request.round,
        len(request.samples),
        steps,
        math.nan,
        delta,
        trained.buffers,
        {**change, **said},
        {**state, **kept(local, trained.optimizer)},
    )
