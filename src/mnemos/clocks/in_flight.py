"""Clients that are training under an asynchronous server, as a part of the server's state.

A model is kept until all clients that started from it have answered. Updates that have been computed and
aren't due yet are kept, too. If they were computed again after an interruption, it would be in a cohort of
other clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from mnemos.clocks.event_schedule import InFlight, Standing
from mnemos.common.devices import send
from mnemos.methods.exchange import Broadcast, State, TrainReply

_TIME, _CLIENTS, _VERSIONS, _DUE = "time", "clients", "versions", "due"
_SENT, _UPDATE = "sent", "update"


Versions = Mapping[int, Broadcast]
"""What clients were sent, by the number of steps that the server had made before it was sent."""


@dataclass(frozen=True)
class ClientsInFlight:
    """Clients that are training, with what they were sent and what they will answer."""

    standing: Standing
    versions: Versions
    updates: Mapping[int, TrainReply]
    """By client, of those that have been computed already."""

    @classmethod
    def of(cls, protocol: State, device: torch.device) -> ClientsInFlight:
        """The clients in flight, from a server's state; `device`: where to put models and updates."""
        columns = (protocol[name].tolist() for name in (_CLIENTS, _VERSIONS, _DUE) if name in protocol)
        jobs = tuple(InFlight(*values) for values in zip(*columns, strict=True))
        versions, updates = {}, {}
        for job in jobs:
            if job.version not in versions:
                parts = send(_below(protocol, f"{_SENT}.{job.version}"), device)
                vectors = parts["model"], parts["buffers"]
                versions[job.version] = Broadcast(job.version + 1, *vectors, _below(parts, "received"))
            parts = _below(protocol, f"{_UPDATE}.{job.client}")
            if parts:
                samples, steps, loss = parts.pop("numbers").tolist()
                parts = send(parts, device)
                numbers = (job.client, job.version + 1, int(samples), int(steps), loss)
                tensors = (parts["delta"], parts["buffers"])
                updates[job.client] = TrainReply(
                    *numbers, *tensors, _below(parts, "change"), _below(parts, "state")
                )
        return cls(Standing(time_of(protocol), jobs), versions, updates)

    def state(self) -> State:
        """The same as named tensors."""
        jobs = self.standing.in_flight
        state = timed(self.standing.time)
        state[_CLIENTS] = torch.tensor([job.client for job in jobs], dtype=torch.int64)
        state[_VERSIONS] = torch.tensor([job.version for job in jobs], dtype=torch.int64)
        state[_DUE] = torch.tensor([job.due for job in jobs], dtype=torch.float64)
        for job in jobs:
            broadcast, update = self.versions[job.version], self.updates.get(job.client)
            vectors = {"model": broadcast.model, "buffers": broadcast.buffers}
            parts = {**vectors, **_named("received", broadcast.received)}
            state |= _named(f"{_SENT}.{job.version}", parts)
            if update is not None:
                # Numbers in double precision, in which a loss is known.
                numbers = torch.tensor([update.samples, update.steps, update.loss], dtype=torch.float64)
                parts = {"delta": update.delta, "buffers": update.buffers, "numbers": numbers}
                parts |= _named("change", update.change) | _named("state", update.state)
                state |= _named(f"{_UPDATE}.{job.client}", {name: _own(part) for name, part in parts.items()})
        return state


def screened(protocol: State) -> State:
    """The state without the updates that aren't due yet, as no screen has looked at these."""
    return {name: value for name, value in protocol.items() if not name.startswith(f"{_UPDATE}.")}


def time_of(protocol: State) -> float:
    """The simulated time in a server's state; 0 before the first round."""
    return float(protocol[_TIME]) if _TIME in protocol else 0.0


def timed(time: float) -> State:
    """A simulated time as a server keeps it."""
    return {_TIME: torch.tensor(time, dtype=torch.float64)}


def _own(tensor: Tensor) -> Tensor:
    """The tensor in memory of its own: a row would keep the matrix of a whole chunk of clients alive."""
    return tensor.clone() if tensor.untyped_storage().nbytes() > tensor.nbytes else tensor


def _named(prefix: str, state: Mapping[str, Tensor]) -> State:
    return {f"{prefix}.{name}": value for name, value in state.items()}


def _below(state: State, prefix: str) -> State:
    start = f"{prefix}."
    return {name.removeprefix(start): value for name, value in state.items() if name.startswith(start)}
