"""What clients remember between rounds: rows of one matrix, in memory or in a memory-mapped file.

A client's new state is written to a free row. Its old row stays unchanged until no checkpoint refers to it.
So a checkpoint contains no states, only the row of each client, and a process that is killed in the middle
of a round has destroyed nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemos.common.devices import CPU
from mnemos.common.rows import Rows
from mnemos.data.partition import Ints
from mnemos.methods.exchange import State


class ClientStates:
    """What all clients remember, in one matrix per group, as the groups' states differ in width."""

    def __init__(self, examples: Sequence[State], groups: NDArray[np.int16]) -> None:
        """`examples`: one state of each group, for names and shapes; `groups`: the group of each client."""
        self._groups = groups
        self._shapes = [
            {name: tensor.shape for name, tensor in sorted(example.items())} for example in examples
        ]
        self._rows = [Rows(sum(shape.numel() for shape in shapes.values())) for shapes in self._shapes]
        self._row: dict[int, int] = {}
        """The row of each client's state after the last round."""
        self._held: dict[int, int] = {}
        """The rows of states that are held until `commit` or `drop`, by client."""
        self._left: list[tuple[int, int, int]] = []
        """(group, row, round): rows that no client has used since this round, but older checkpoints do."""
        self.oldest = 0
        """There is no checkpoint from before this round."""

    def keep_in(self, path: Path) -> None:
        """Keep states in files: those of the first group in `path`. Call it before there are any states."""
        assert not self._row
        for group, rows in enumerate(self._rows):
            rows.path = path.with_stem(f"{path.stem}-{group}") if group else path

    def __contains__(self, client: int) -> bool:
        return client in self._row

    def __getitem__(self, client: int) -> State:
        group = int(self._groups[client])
        row = torch.from_numpy(self._rows[group][self._row[client]].copy())
        shapes = self._shapes[group]
        if len(shapes) == 1:
            return {name: row.view(shape) for name, shape in shapes.items()}
        parts = torch.split(row, [shape.numel() for shape in shapes.values()])
        return {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}

    def hold(self, client: int, state: State) -> None:
        """Write a client's new state to a free row; `commit` makes it the client's state."""
        group = int(self._groups[client])
        rows = self._rows[group]
        if rows.width:
            row = self._held[client] = self._held[client] if client in self._held else rows.take()
            rows.write(row, [state[name].detach().reshape(-1) for name in self._shapes[group]])

    def hold_all(self, clients: Sequence[int], states: State) -> None:
        """`hold` for some clients of one group; `states` have a row for each."""
        group = int(self._groups[clients[0]])
        table, names = self._rows[group], self._shapes[group]
        if not table.width:
            return
        values = torch.cat([states[name].detach().reshape(len(clients), -1) for name in names], dim=1)
        if values.device != CPU:
            for client, own in zip(clients, values, strict=True):
                row = self._held[client] = self._held[client] if client in self._held else table.take()
                table.write(row, [own])
            return
        rows = [self._held[client] if client in self._held else table.take() for client in clients]
        self._held.update(zip(clients, rows, strict=True))
        table.scatter(rows, values)

    def states_of(self, clients: Sequence[int], fresh: State) -> tuple[State, bool]:
        """(the states of some clients of one group, with a row for each; True).

        A client without a state has the fresh one. If that is all of them, it is (fresh, False).
        """
        known = [index for index, client in enumerate(clients) if client in self._row]
        if not known:
            return fresh, False
        group = int(self._groups[clients[0]])
        table, shapes = self._rows[group], self._shapes[group]
        found = torch.empty(len(clients), table.width)
        if len(known) < len(clients):
            found[:] = torch.cat([fresh[name].reshape(-1).cpu() for name in shapes])
        table.gather([self._row[clients[index]] for index in known], found.numpy(), known)
        parts = torch.split(found, [shape.numel() for shape in shapes.values()], dim=1)
        return {
            name: part.view(len(clients), *shape)
            for (name, shape), part in zip(shapes.items(), parts, strict=True)
        }, True

    def commit(self, round: int) -> None:
        """Make the states that are held the clients' states after this round."""
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
        """Discard the states that are held, because their round or attempt failed."""
        for client, row in self._held.items():
            self._rows[self._groups[client]].free([row])
        self._held = {}

    def forget(self, round: int) -> None:
        """Free rows that only checkpoints from before this round refer to, as these are gone."""
        self.oldest = round
        for group, row, since in self._left:
            if since <= round:
                self._rows[group].free([row])
        self._left = [left for left in self._left if left[2] > round]

    def index(self) -> tuple[Ints, Ints]:
        """(clients, the row of each), for a checkpoint."""
        return np.array([*self._row.keys()], np.int64), np.array([*self._row.values()], np.int64)

    def restore(self, clients: Ints, rows: Ints) -> None:
        """Go on from the index of a checkpoint."""
        for group, table in enumerate(self._rows):
            table.reopen(rows[self._groups[clients] == group].tolist())
        self._row, self._left = dict(zip(clients.tolist(), rows.tolist(), strict=True)), []

    def export(self) -> tuple[Ints, list[Tensor]]:
        """(the clients with a state, in order; each group's states [its clients among these, width])."""
        clients = np.array(sorted(self._row), np.int64)
        rows = [[self._row[client] for client in clients[self._of(group, clients)]] for group in self._all]
        tables = zip(self._rows, rows, strict=True)
        return clients, [
            torch.from_numpy(
                np.stack([table[row] for row in own]) if own else np.empty((0, table.width), "f4")
            )
            for table, own in tables
        ]

    def fill(self, clients: Ints, states: Sequence[Tensor]) -> None:
        """Take over states that `export` has returned, in place of all that are here."""
        self.clear()
        for group, (table, matrix) in enumerate(zip(self._rows, states, strict=True)):
            for client, state in zip(clients[self._of(group, clients)].tolist(), matrix, strict=True):
                row = self._row[client] = table.take()
                table.write(row, [state])

    def clear(self) -> None:
        """Forget all states."""
        for table in self._rows:
            table.reopen([])
        self._row, self._held, self._left = {}, {}, []

    def alike(self, other: ClientStates) -> bool:
        """Whether states here have the names and shapes of the other's."""
        return self._shapes == other._shapes

    def fits(self, clients: Ints, states: Sequence[Tensor]) -> bool:
        """Whether `fill` can take over these states: their number and width are those of the clients here."""
        if len(states) != len(self._rows):
            return False
        sizes = [
            (int(np.count_nonzero(self._of(group, clients))), self._rows[group].width) for group in self._all
        ]
        return all(
            tuple(matrix.shape) == size and matrix.dtype == torch.float32
            for matrix, size in zip(states, sizes, strict=True)
        )

    @property
    def _all(self) -> range:
        """The numbers of the groups."""
        return range(len(self._rows))

    def _of(self, group: int, clients: Ints) -> NDArray[np.bool_]:
        """Which of some clients belong to a group."""
        found: NDArray[np.bool_] = self._groups[clients] == group
        return found

    def spare(self, clients: Ints, rows: Ints, round: int) -> None:
        """Don't reuse the rows in an older checkpoint's index until `forget` is called with this round."""
        for group, table in enumerate(self._rows):
            spared = table.reserve(rows[self._groups[clients] == group].tolist())
            self._left += [(group, row, round) for row in spared]

    def sync(self) -> None:
        """Wait until the disk has everything, so that it survives a loss of power."""
        for rows in self._rows:
            rows.sync()
