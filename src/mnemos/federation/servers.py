"""Joins the servers of several groups into one, and splits it again."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from mnemos.clocks.in_flight import screened
from mnemos.errors import DivergedError
from mnemos.federation.groups import Group
from mnemos.methods.exchange import COMPARTMENTS, Server, State


def joined(groups: Sequence[Group], servers: Sequence[Server]) -> Server:
    """One server with the groups' models laid end to end; names of states begin with the group's."""
    if len(servers) == 1:
        return servers[0]

    def union(compartment: str) -> State:
        return {
            f"{group.name}.{name}": value
            for group, server in zip(groups, servers, strict=True)
            for name, value in getattr(server, compartment).items()
        }

    model, buffers = (
        torch.cat([getattr(server, vector) for server in servers]) for vector in ("model", "buffers")
    )
    return Server(model, buffers, *map(union, COMPARTMENTS))


def split(groups: Sequence[Group], server: Server) -> tuple[Server, ...]:
    """The server of each group, from one that `joined` has made."""
    if len(groups) == 1:
        return (server,)
    first = [group.first() for group in groups]
    models = torch.split(server.model, [len(initial.model) for initial in first])
    buffers = torch.split(server.buffers, [len(initial.buffers) for initial in first])

    def own(group: Group, compartment: str) -> State:
        prefix = f"{group.name}."
        values: State = getattr(server, compartment)
        return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}

    return tuple(
        Server(model, buffer, *(own(group, compartment) for compartment in COMPARTMENTS))
        for group, model, buffer in zip(groups, models, buffers, strict=True)
    )


def check_finite(round: int, server: Server, loss: float) -> None:
    """Raise an error unless the loss and all that the server holds are finite.

    Updates in flight are left out: no screen has looked at them yet.
    """
    states = (server.state, screened(server.protocol), server.screens, server.privacy)
    kept = [(f"what the server keeps as {name}", value) for state in states for name, value in state.items()]
    total = torch.tensor(loss, dtype=torch.float64)
    found = [("the model", server.model), ("the model", server.buffers), *kept, ("the training loss", total)]
    for name, value in found:
        if value.is_floating_point() and not _all_finite(value):
            raise DivergedError(f"round {round}: {name} is not finite any more; a smaller local.lr may help")


def _all_finite(value: Tensor) -> bool:
    """Whether a tensor has neither NaN nor infinities: then its least and largest values are finite, too.

    To find these takes a fifth of the time of looking at each value, and less for larger models.
    """
    return not value.numel() or all(map(math.isfinite, torch.stack(value.aminmax()).tolist()))
