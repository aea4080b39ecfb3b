"""A cohort's clients as rows, and functions of one client over all of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from mnemos.methods.exchange import Batch, Client, State


class Rows:
    """`vmap` over the first rows of a chunk, for functions whose last argument is a `Client`."""

    def __init__(self, active: int, stacked: Client, dims: Client) -> None:
        self._client = _first(active, stacked, dims)
        self._dims = dims

    def apply(self, function: Any, *values: Tensor | Batch) -> Any:
        """The function of (values…, client) for every row."""
        dims = tuple(_rows_of(value) for value in values)
        return vmap(function, in_dims=(*dims, self._dims))(*values, self._client)


def _rows_of(value: Tensor | Batch) -> Any:
    if isinstance(value, Tensor):
        return 0
    drawn = dict.fromkeys(value.drawn, 0)
    return Batch(0, 0, None if value.mask is None else 0, drawn)  # type: ignore[arg-type]


def _first(active: int, stacked: Client, dims: Client) -> Client:
    def cut(tensor: Tensor, dim: int | None) -> Tensor:
        return tensor if dim is None else tensor[:active]

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
    """Clients as one whose tensors have a row a client, and where the rows are.

    What is the same object for all (the received model, as a rule) is shared instead of copied.
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
