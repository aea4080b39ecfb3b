"""What clients remember between rounds: rows of one matrix, in memory or in a memory-mapped file.

A client's new state goes into a free row and its old row stays as it is until no checkpoint speaks of it
any more. So a checkpoint needs to hold no states, only which row is whose, and a process that is killed
in the middle of a round has destroyed nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemos.data.partition import Ints
from mnemos.errors import DataError
from mnemos.methods.exchange import State

_BLOCK_BYTES = 16_000_000
_BLOCK_ROWS = 256
"""Rows are had in blocks of about this size, and of no more rows."""


class StateTable:
    """The states of clients, all with the same names and shapes: a row of one matrix each."""

    def __init__(self, example: Mapping[str, Tensor]) -> None:
        """Every state has the names and shapes of the example."""
        self._shapes = {name: tensor.shape for name, tensor in sorted(example.items())}
        self._sizes = [shape.numel() for shape in self._shapes.values()]
        self._width = sum(self._sizes)
        self._per_block = min(_BLOCK_ROWS, max(1, _BLOCK_BYTES // max(1, 4 * self._width)))
        self._path: Path | None = None
        self._blocks: list[NDArray[np.float32]] = []
        self._dirty: set[int] = set()
        self._row: dict[int, int] = {}
        self._held: dict[int, int] = {}
        self._free: list[int] = []
        self._left: list[tuple[int, int]] = []
        """(row, round since which no client has it)."""
        self.oldest = 0
        """Checkpoints before this round are gone."""

    def keep_in(self, path: Path) -> None:
        """Keep the states in a file, from now on; there must not be any yet."""
        assert not self._row
        self._path = path

    def __contains__(self, client: int) -> bool:
        return client in self._row

    def __getitem__(self, client: int) -> State:
        row = torch.from_numpy(self._at(self._row[client]).copy())
        parts = torch.split(row, self._sizes)
        return {
            name: part.view(shape) for (name, shape), part in zip(self._shapes.items(), parts, strict=True)
        }

    def hold(self, client: int, state: State) -> None:
        """Write down a client's new state; it counts from `commit` on."""
        if not self._width:
            return
        row = self._held[client] if client in self._held else self._new()
        parts = [state[name].detach().reshape(-1) for name in self._shapes]
        torch.cat(parts, out=torch.from_numpy(self._at(row)))
        self._dirty.add(row // self._per_block)
        self._held[client] = row

    def commit(self, round: int) -> None:
        """The states held are those after this round."""
        self._left += [(self._row[client], round) for client in self._held if client in self._row]
        self._row.update(self._held)
        self._held = {}
        if self._path is None:
            self.forget(round)

    def drop(self) -> None:
        """Forget the states held: their round came to nothing."""
        self._free += self._held.values()
        self._held = {}

    def forget(self, round: int) -> None:
        """Checkpoints before this round are gone: rows that were left by then can be used again."""
        self.oldest = round
        self._free += [row for row, since in self._left if since <= round]
        self._left = [(row, since) for row, since in self._left if since > round]

    def index(self) -> tuple[Ints, Ints]:
        """Clients, and the row of each."""
        return (
            np.fromiter(self._row.keys(), np.int64, len(self._row)),
            np.fromiter(self._row.values(), np.int64, len(self._row)),
        )

    def restore(self, clients: Ints, rows: Ints) -> None:
        """Take up the rows of an index that was written before."""
        last = int(rows.max()) if len(rows) else -1
        if last >= 0 and self._path is not None:
            size = self._path.stat().st_size if self._path.is_file() else 0
            if size < (last + 1) * 4 * self._width:
                raise DataError(f"{self._path}: it is missing or too short: {size} bytes")
        self._row = dict(zip(clients.tolist(), rows.tolist(), strict=True))
        self._blocks, self._left = [], []
        while len(self._blocks) * self._per_block <= last:
            self._grow()
        used = set(self._row.values())
        self._free = [row for row in range(len(self._blocks) * self._per_block) if row not in used]

    def spare(self, rows: Ints, round: int) -> None:
        """Leave the rows of an older index alone too, until `forget` of this round."""
        while len(rows) and len(self._blocks) * self._per_block <= rows.max():
            first = len(self._blocks) * self._per_block
            self._grow()
            self._free += range(first, first + self._per_block)
        spared = set(rows.tolist()).intersection(self._free)
        self._free = [row for row in self._free if row not in spared]
        self._left += [(row, round) for row in sorted(spared)]

    def sync(self) -> None:
        """Wait until what was written survives a loss of power."""
        for index in self._dirty:
            block = self._blocks[index]
            if isinstance(block, np.memmap):
                block.flush()
        self._dirty.clear()

    def _at(self, row: int) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self._blocks[row // self._per_block][row % self._per_block]
        return found

    def _new(self) -> int:
        if not self._free:
            self._grow()
            last = len(self._blocks) * self._per_block
            self._free = list(range(last - 1, last - self._per_block - 1, -1))
        return self._free.pop()

    def _grow(self) -> None:
        shape = (self._per_block, self._width)
        if self._path is None:
            self._blocks.append(np.zeros(shape, np.float32))
            return
        size = self._per_block * 4 * self._width
        start = len(self._blocks) * size
        with self._path.open("ab") as file:
            file.truncate(max(file.tell(), start + size))
            # Room that isn't there must show now: writing into a map without any kills the process.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), start, size)
        self._blocks.append(np.memmap(self._path, np.float32, "r+", start, shape))


class ClientStates:
    """What all clients remember. Groups of clients have states of different widths, and a table each."""

    def __init__(self, tables: Sequence[StateTable], groups: NDArray[np.int16]) -> None:
        """`groups`: the index of each client's table."""
        self._tables = tables
        self._groups = groups

    def keep_in(self, path: Path) -> None:
        """Keep the states in files, from now on: the first table's in this one."""
        for index, table in enumerate(self._tables):
            table.keep_in(path.with_stem(f"{path.stem}-{index}") if index else path)

    def __contains__(self, client: int) -> bool:
        return client < len(self._groups) and client in self._of(client)

    def __getitem__(self, client: int) -> State:
        return self._of(client)[client]

    def hold(self, client: int, state: State) -> None:
        """Write down a client's new state; it counts from `commit` on."""
        self._of(client).hold(client, state)

    def commit(self, round: int) -> None:
        """The states held are those after this round."""
        for table in self._tables:
            table.commit(round)

    def drop(self) -> None:
        """Forget the states held: their round came to nothing."""
        for table in self._tables:
            table.drop()

    def forget(self, round: int) -> None:
        """Checkpoints before this round are gone."""
        for table in self._tables:
            table.forget(round)

    @property
    def oldest(self) -> int:
        """Checkpoints before this round are gone."""
        return min(table.oldest for table in self._tables)

    def index(self) -> tuple[Ints, Ints]:
        """Clients, and the row of each in its table."""
        clients, rows = zip(*(table.index() for table in self._tables), strict=True)
        return np.concatenate(clients), np.concatenate(rows)

    def restore(self, clients: Ints, rows: Ints) -> None:
        """Take up the rows of an index that was written before."""
        for table, mine in zip(self._tables, self._split(clients), strict=True):
            table.restore(clients[mine], rows[mine])

    def spare(self, clients: Ints, rows: Ints, round: int) -> None:
        """Leave the rows of an older index alone too, until `forget` of this round."""
        for table, mine in zip(self._tables, self._split(clients), strict=True):
            table.spare(rows[mine], round)

    def sync(self) -> None:
        """Wait until what was written survives a loss of power."""
        for table in self._tables:
            table.sync()

    def _of(self, client: int) -> StateTable:
        return self._tables[int(self._groups[client])]

    def _split(self, clients: Ints) -> list[NDArray[np.bool_]]:
        """Which of the clients belong to each table."""
        found = self._groups[clients]
        return [found == index for index in range(len(self._tables))]
