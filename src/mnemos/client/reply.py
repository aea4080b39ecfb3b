"""What a client starts its round with, and the reply that ends it."""

from __future__ import annotations

import math
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
    method = request.plan.method
    counts = held = torch.bincount(
        apply_label_map(labels[request.samples], request.label_map), minlength=classes
    )
    if method.loss.counted == "all":
        counts = held + torch.bincount(
            apply_label_map(labels[request.held_out], request.label_map), minlength=classes
        )
    elif method.loss.counted == "tasks":
        counts = request.met
    state = {name: value for name, value in request.state.items() if not name.startswith(_OPTIMIZER)}
    present = request.present | (held > 0)
    counts = method.head.per_output(counts.float())
    return Client(request.model, request.received, state, counts, held.float(), present.float())


def begin(request: TrainRequest, parameters: Tensor, layout: Layout) -> State:
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
