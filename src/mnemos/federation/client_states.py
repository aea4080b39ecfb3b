"""What clients remember between rounds: rows of one matrix, in memory or in a memory-mapped file.

A client's new state goes into a free row and its old row stays as it is until no checkpoint speaks of it
any more. So a checkpoint needs to hold no states, only which row is whose, and a process that is killed
in the middle of a round has destroyed nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from mnemos.common.rows import Rows
from mnemos.data.partition import Ints
from mnemos.methods.exchange import State


class ClientStates:
    """What all clients remember. The groups of clients have states of different widths, and a matrix each."""

    def __init__(self, examples: Sequence[State], groups: NDArray[np.int16]) -> None:
        """`examples`: a state of each group, whose names and shapes all have; `groups`: of each client."""
        self._groups = groups
        self._shapes = [
            {name: tensor.shape for name, tensor in sorted(example.items())} for example in examples
        ]
        self._rows = [Rows(sum(shape.numel() for shape in shapes.values())) for shapes in self._shapes]
        self._row: dict[int, int] = {}
        self._held: dict[int, int] = {}
        self._left: list[tuple[int, int, int]] = []
        """(group, row, round since which no client has it)."""
        self.oldest = 0
        """Checkpoints before this round are gone."""

    def keep_in(self, path: Path) -> None:
        """Keep the states in files, from now on: the first group's in this one. There must be none yet."""
        assert not self._row
        for group, rows in enumerate(self._rows):
            rows.path = path.with_stem(f"{path.stem}-{group}") if group else path

    def __contains__(self, client: int) -> bool:
        return client in self._row

    def __getitem__(self, client: int) -> State:
        group = int(self._groups[client])
        row = torch.from_numpy(self._rows[group][self._row[client]].copy())
        shapes = self._shapes[group]
        parts = torch.split(row, [shape.numel() for shape in shapes.values()])
        return {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}

    def hold(self, client: int, state: State) -> None:
        """Write down a client's new state; it counts from `commit` on."""
        group = int(self._groups[client])
        rows = self._rows[group]
        if rows.width:
            row = self._held[client] = self._held[client] if client in self._held else rows.take()
            rows.write(row, [state[name].detach().reshape(-1) for name in self._shapes[group]])

    def commit(self, round: int) -> None:
        """The states held are those after this round."""
        for rows in self._rows:
            rows.fetch()
        self._left += [
            (int(self._groups[client]), self._row[client], round)
            for client in self._held
            if client in self._row
        ]
        self._row.update(self._held)
        self._held = {}
        if self._rows[0].path is None:
            self.forget(round)

    def drop(self) -> None:
        """Forget the states held: their round came to nothing."""
        for client, row in self._held.items():
            self._rows[self._groups[client]].free([row])
        self._held = {}

    def forget(self, round: int) -> None:
        """Checkpoints before this round are gone: rows that were left by then can be used again."""
        self.oldest = round
        for group, row, since in self._left:
            if since <= round:
                self._rows[group].free([row])
        self._left = [left for left in self._left if left[2] > round]

    def index(self) -> tuple[Ints, Ints]:
        """Clients, and the row of each."""
        return np.array([*self._row.keys()], np.int64), np.array([*self._row.values()], np.int64)

    def restore(self, clients: Ints, rows: Ints) -> None:
        """Take up the rows of an index that was written before."""
        for group, table in enumerate(self._rows):
            table.reopen(rows[self._groups[clients] == group].tolist())
        self._row, self._left = dict(zip(clients.tolist(), rows.tolist(), strict=True)), []

    def spare(self, clients: Ints, rows: Ints, round: int) -> None:
        """Leave the rows of an older index alone too, until `forget` of this round."""
        for group, table in enumerate(self._rows):
            spared = table.reserve(rows[self._groups[clients] == group].tolist())
            self._left += [(group, row, round) for row in spared]

    def sync(self) -> None:
        """Wait until what was written survives a loss of power."""
        for rows in self._rows:
            rows.sync()
