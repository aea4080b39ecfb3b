"""Many clients as one, whose tensors have one row per client, and single clients of them again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any

import torch
from torch import Tensor

from mnemos.client.requests import RequestColumns
from mnemos.methods.exchange import Batch, Client, State


def batch_tensors(value: Tensor | Batch) -> Iterator[Tensor]:
    """A value, or a batch's tensors, which all have a row for each client."""
    if isinstance(value, Tensor):
        yield value
        return
    yield from (value.x, value.labels)
    if value.mask is not None:
        yield value.mask
    yield from value.drawn.values()


def one_like(value: Tensor | Batch, left: Iterator[Tensor]) -> Tensor | Batch:
    """One client's part of a value, from its rows of the value's tensors."""
    if isinstance(value, Tensor):
        return next(left)
    x, labels = next(left), next(left)
    mask = None if value.mask is None else next(left)
    return Batch(x, labels, mask, {name: next(left) for name in value.drawn})


def client_rows(stacked: Client, dims: Client) -> Iterator[Tensor]:
    """The tensors of stacked clients that have a row for each client."""
    pairs: Iterable[tuple[Any, Any]] = zip(stacked, dims, strict=True)
    for value, dim in pairs:
        if isinstance(value, dict):
            yield from (tensor for name, tensor in value.items() if dim[name] == 0)
        elif dim == 0:
            yield value


def client_like(stacked: Client, dims: Client, left: Iterator[Tensor]) -> Client:
    """One client, from its rows and what is the same for all."""
    # No inner function that calls itself: a function in a cycle would keep the rows until they are collected.
    return Client(*(_part_like(value, dim, left) for value, dim in zip(stacked, dims, strict=True)))


def _part_like(value: Any, dim: Any, left: Iterator[Tensor]) -> Any:
    """A client's tensor, or dictionary of tensors, likewise."""
    if isinstance(value, dict):
        return {name: _part_like(tensor, dim[name], left) for name, tensor in value.items()}
    return next(left) if dim == 0 else value


def first_rows(count: int, stacked: Client, dims: Client) -> Client:
    """The first rows of stacked clients."""

    def cut(tensor: Tensor, dim: int | None) -> Tensor:
        return tensor if dim is None else tensor[:count]

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


def own_rows(values: Tensor, count: int, size: int) -> Tensor:
    """A matrix with `count` rows in memory of its own, from the rows or from the one that all have."""
    return values.expand(count, size).clone(memory_format=torch.contiguous_format)


def stack(asked: RequestColumns, columns: tuple[Tensor, Tensor, Tensor]) -> tuple[Client, Client]:
    """(all clients as one, with one row per client; the dimension of the rows in each of its tensors).

    A tensor that is the same for all clients, usually the received model, has no rows: its dimension is None.
    `columns`: `counts`, `held` and `present` of the clients, one row each.
    """
    stacked = Client(asked.model.value, asked.received.value, asked.state.value, *columns)
    dims: Any = (asked.model.dim, asked.received.dim, asked.state.dim, 0, 0, 0)
    return stacked, Client(*dims)


def each_client(stacked: Client, dims: Client, count: int) -> list[Client]:
    """Each of some stacked clients."""

    def rows(value: Any, dim: Any) -> Iterable[Any]:
        if isinstance(value, dict):
            parts = {name: rows(tensor, dim[name]) for name, tensor in value.items()}
            each = zip(*parts.values(), strict=True) if parts else repeat((), count)
            return (dict(zip(parts, own, strict=True)) for own in each)
        return value.unbind(0) if dim == 0 else repeat(value, count)

    pairs: Iterable[tuple[Any, Any]] = zip(stacked, dims, strict=True)
    columns = [rows(value, dim) for value, dim in pairs]
    return [Client(*own) for own in zip(*columns, strict=True)]
