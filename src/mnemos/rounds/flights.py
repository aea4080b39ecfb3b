"""What is under way between two moves of an asynchronous server, as a part of the server's state.

So it is in every checkpoint, and a run that was broken off goes on with the same clients, models and updates.
What a client has computed is kept, and not computed again after a resume: that could change its last bits
on an engine that computes several clients as one, beside others than the first time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from mnemos.methods.exchange import Server, State, Update
from mnemos.rounds.traffic import Flight, Standing

_PREFIX = "clock."
_TIME = "clock.time"
_CLIENTS, _VERSIONS, _DUE = "clock.clients", "clock.versions", "clock.due"
_SENT = "clock.sent"
_UPDATE = "clock.update"


@dataclass(frozen=True)
class Flights:
    """Clients under way, with what they were sent and what they will answer."""

    standing: Standing
    sent: Mapping[int, Server]
    """What was sent after so many moves of the server: model, buffers and, as state, the broadcast."""
    updates: Mapping[int, Update]
    """By client, of those that have been computed already."""

    @classmethod
    def of(cls, state: State) -> Flights:
        """Those that a server's state tells of; none before the first round."""
        columns = (state[name].tolist() for name in (_CLIENTS, _VERSIONS, _DUE) if name in state)
        flights = tuple(Flight(*values) for values in zip(*columns, strict=True))
        sent = {flight.version: _sent(_below(state, f"{_SENT}.{flight.version}")) for flight in flights}
        updates = {
            flight.client: _update(flight, parts)
            for flight in flights
            if (parts := _below(state, f"{_UPDATE}.{flight.client}"))
        }
        return cls(Standing(time_of(state), flights), sent, updates)

    def into(self, server: Server) -> Server:
        """A server that tells of these, and of no others."""
        state = {name: value for name, value in server.state.items() if not name.startswith(_PREFIX)}
        flights = self.standing.flights
        state |= timed(self.standing.time)
        state[_CLIENTS] = torch.tensor([flight.client for flight in flights], dtype=torch.int64)
        state[_VERSIONS] = torch.tensor([flight.version for flight in flights], dtype=torch.int64)
        state[_DUE] = torch.tensor([flight.due for flight in flights], dtype=torch.float64)
        for flight in flights:
            sent, update = self.sent[flight.version], self.updates.get(flight.client)
            state |= _named(
                f"{_SENT}.{flight.version}",
                {"model": sent.model, "buffers": sent.buffers, **_named("received", sent.state)},
            )
            if update is not None:
                # Numbers in double precision, in which a loss is known.
                numbers = [update.samples, update.steps, update.loss]
                parts = {
                    "numbers": torch.tensor(numbers, dtype=torch.float64),
                    "delta": update.delta,
                    "buffers": update.buffers,
                    **_named("change", update.change),
                    **_named("state", update.state),
                }
                state |= _named(f"{_UPDATE}.{flight.client}", parts)
        return Server(server.model, server.buffers, state)


def settled(state: State) -> State:
    """What a server's state tells beside updates on their way, which nobody has looked at yet."""
    return {name: value for name, value in state.items() if not name.startswith(f"{_UPDATE}.")}


def time_of(state: State) -> float:
    """The simulated time that a server's state tells."""
    return float(state[_TIME]) if _TIME in state else 0.0


def timed(time: float) -> State:
    """What a server's state has of a simulated time."""
    return {_TIME: torch.tensor(time, dtype=torch.float64)}


def _sent(parts: State) -> Server:
    return Server(parts["model"], parts["buffers"], _below(parts, "received"))


def _update(flight: Flight, parts: State) -> Update:
    samples, steps, loss = parts["numbers"].tolist()
    return Update(
        flight.client,
        flight.version + 1,
        int(samples),
        int(steps),
        loss,
        parts["delta"],
        parts["buffers"],
        _below(parts, "change"),
        _below(parts, "state"),
    )


def _named(prefix: str, state: Mapping[str, Tensor]) -> State:
    return {f"{prefix}.{name}": value for name, value in state.items()}


def _below(state: State, prefix: str) -> State:
    start = f"{prefix}."
    return {name.removeprefix(start): value for name, value in state.items() if name.startswith(start)}
