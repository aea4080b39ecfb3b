"""What the server asks of a group's clients in a round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemos.client.messages import TrainRequest
from mnemos.client.requests import Own, Runs, TrainRequests
from mnemos.data.partition import Assignment
from mnemos.data.stream import Flow
from mnemos.federation.round import RoundContext
from mnemos.methods.exchange import Broadcast

if TYPE_CHECKING:
    from mnemos.federation.groups import Group

BUFFERS = "buffers"
"""The name under which a client keeps its buffers, if they stay with it."""
_NONE = torch.zeros(0, dtype=torch.int64)


def requests_to(
    group: Group, ctx: RoundContext, broadcasts: Mapping[int, Broadcast], steps: Mapping[int, int]
) -> TrainRequests:
    """The requests to all clients that have samples; each is made when it is looked at.

    `steps`: how many steps each client makes that has to stop early.
    """
    plan = group.plan.model_copy(update={"arithmetic": ctx.runner.plan.arithmetic})
    fresh, misconduct = group.method.client_state(group.layout), group.misconduct
    assignment, flow, met, present = group.flow.assignment, group.flow.if_asked, _Tensors(), _Tensors()

    def make(client: int, samples: Tensor) -> TrainRequest:
        broadcast = broadcasts[client]
        model, buffers = group.start(broadcast, client)
        state = fresh
        if client in ctx.client_states:
            state = ctx.client_states[client]
            buffers = state.pop(BUFFERS, buffers)
        return TrainRequest(
            plan=plan,
            round=broadcast.round,
            client=client,
            model=model,
            buffers=buffers,
            received=broadcast.received,
            state=group.sent_state(state, ctx),
            samples=samples,
            held_out=torch.from_numpy(assignment.held_out(client)) if assignment.validation else _NONE,
            met=met(flow.met(client, broadcast.round)),
            present=present(flow.present(client, broadcast.round)),
            noise=0.0 if assignment.noise is None else float(assignment.noise[client]),
            label_map=misconduct.label_map(client),
            steps=steps.get(client),
            trigger=misconduct.trigger(client),
        )

    own = None
    if group.alike and not steps and len({*map(id, broadcasts.values())}) == 1:
        own = Own(partial(_held_out, assignment), partial(ctx.client_states.states_of, fresh=fresh))
    return TrainRequests(plan, *_samples(flow, broadcasts), broadcasts, steps, make, own)


def _samples(flow: Flow, broadcasts: Mapping[int, Broadcast]) -> tuple[list[int], list[Tensor]]:
    """(the clients that have samples in the rounds that they train for, the samples of each)."""
    samples: dict[int, Tensor] = {}
    for round in {broadcast.round for broadcast in broadcasts.values()}:
        clients = [client for client, broadcast in broadcasts.items() if broadcast.round == round]
        found, sizes = flow.samples_of(np.array(clients, np.int64), round)
        samples.update(zip(clients, torch.split(torch.from_numpy(found), sizes.tolist()), strict=True))
    # A stream may leave a client without data for a while.
    there = [client for client in broadcasts if samples[client].shape[0]]
    return there, [samples[client] for client in there]


def _held_out(assignment: Assignment, clients: Sequence[int]) -> Runs:
    """The validation samples of some clients."""
    return Runs.of([torch.from_numpy(assignment.held_out(client)) for client in clients])


class _Tensors:
    """Arrays as tensors; an array that is the same object as the one before is the same tensor."""

    def __init__(self) -> None:
        self._last: tuple[NDArray[np.bool_], Tensor] | None = None

    def __call__(self, array: NDArray[np.bool_]) -> Tensor:
        if self._last is None or self._last[0] is not array:
            self._last = array, torch.from_numpy(array)
        return self._last[1]
