"""What a client starts its round with, and the reply that ends it."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from mnemos.client.messages import TrainRequest
from mnemos.client.requests import OPTIMIZER, RequestColumns, Runs
from mnemos.client.workload import apply_label_map
from mnemos.methods.exchange import Client, Finished, Rates, State, TrainReply
from mnemos.methods.replies import Columns as ReplyColumns
from mnemos.methods.replies import TrainReplies
from mnemos.optim.local import Local
from mnemos.privacy.privacy import NoPrivacy
from mnemos.vector import Layout


def view(request: TrainRequest, labels: Tensor, classes: int) -> Client:
    """What the method sees of a client; `labels` are those of all training samples."""
    asked = RequestColumns.of_one(request)
    counts, held, present = label_columns(asked, labels, classes)
    return Client(request.model, request.received, asked.state.value, counts[0], held[0], present[0])


def label_columns(asked: RequestColumns, labels: Tensor, classes: int) -> tuple[Tensor, Tensor, Tensor]:
    """`counts`, `held` and `present` of each client, as matrices with one row per client."""
    method = asked.plan.method
    counts = held = _label_counts(asked, asked.samples, labels, classes)
    if method.loss.counted == "all":
        counts = held + _label_counts(asked, asked.held_out(), labels, classes)
    elif method.loss.counted == "tasks":
        counts = asked.met.rows(len(held))
    present = asked.present.value | (held > 0)
    return method.head.per_output(counts.float()), held.float(), present.float()


def _label_counts(asked: RequestColumns, samples: Runs, labels: Tensor, classes: int) -> Tensor:
    """How many of its samples each client takes for each class [K, classes]."""
    sizes, found = samples.sizes, labels[samples.indices]
    if asked.label_maps is not None:
        parts = zip(torch.split(found, list(sizes)), asked.label_maps, strict=True)
        found = torch.cat([apply_label_map(part, own) for part, own in parts])
    rows = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    cells = torch.bincount(rows * classes + found, minlength=len(sizes) * classes)
    return cells.view(len(sizes), classes)


def optimizer_state(request: TrainRequest, parameters: Tensor, layout: Layout) -> State:
    """The state of a client's optimiser at the start of its round: the one it has kept, or a fresh one."""
    state = request.plan.local.optimizer.init(parameters, layout)
    for name in state:
        if OPTIMIZER + name in request.state:  # a copy: a request may be run again
            state[name] = request.state[OPTIMIZER + name].clone()
    return state


def kept(local: Local, state: State) -> State:
    """What a client remembers of its optimiser's state: all or nothing."""
    return {OPTIMIZER + name: value for name, value in state.items()} if local.keeps else {}


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
    count, delta = request.samples.shape[0], plan.method.correction.delta(done)
    own = request.client, request.round, count, steps, math.nan
    return _protected(request, TrainReply(*own, delta, trained.buffers, change, state))


def finish_together(
    asked: RequestColumns, client: Client, trained: Trained, shared: Collection[str]
) -> TrainReplies:
    """`finish` of many clients with the same learning rates, by a method whose parts act `by_parameter`.

    Tensors of `client` and `trained` have one row per request, or are the same for all, as those of the
    client's state that are named in `shared`. The replies are columns.
    """
    plan, local, count = asked.plan, asked.plan.local, len(asked.keys)
    steps = sum(count for count, _ in trained.rates)
    done = Finished(client, trained.parameters, steps, trained.rates, local, trained.data_means)
    change, state = plan.method.upload(done)
    for name in shared:
        if state[name] is client.state[name]:  # what all have remembered, and still do
            state[name] = state[name].expand(count, *state[name].shape)
    _, rounds, clients = zip(*asked.keys, strict=True)
    replies = TrainReplies(
        ReplyColumns(
            clients,
            rounds,
            asked.samples.sizes,
            [steps] * count,
            [math.nan] * count,
            plan.method.correction.delta(done),
            trained.buffers,
            change,
            {**state, **kept(local, trained.optimizer)},
        )
    )
    if isinstance(plan.privacy, NoPrivacy):
        return replies
    return TrainReplies([_protected(*pair) for pair in zip(asked.requests, replies, strict=True)])


def _protected(request: TrainRequest, reply: TrainReply) -> TrainReply:
    """The reply as the plan's privacy has it."""
    plan = request.plan
    if isinstance(plan.privacy, NoPrivacy):
        return reply
    own = request.received, plan.seed, request.round, request.client
    delta, said = plan.privacy.protect(reply.delta, *own)
    return replace(reply, delta=delta, change={**reply.change, **said})
