"""Checkpoints that are kept for good, so that rounds can be played again from there.

Unlike those that a resume goes on from, each holds what its clients remember. So a run needs no more of their
old states than without, and a checkpoint can be copied to another run.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mnemos.common.files import write_atomically
from mnemos.data.partition import Ints
from mnemos.errors import DataError
from mnemos.federation.federation import Federation
from mnemos.runs.directory import PATTERN, round_of
from mnemos.runs.saved import Saved, pack_server

_CLIENTS, _STATES = "clients", "client_states"


class KeptCheckpoints:
    """The kept checkpoints of a run."""

    def __init__(self, checkpoints: Path) -> None:
        """`checkpoints`: the folder of all checkpoints."""
        self.folder = checkpoints / "kept"

    def files(self) -> list[Path]:
        """The files, by round."""
        return sorted(self.folder.glob(PATTERN))

    def nearest(self, round: int) -> list[Path]:
        """The files of this round and of those before it, the latest first."""
        return [path for path in reversed(self.files()) if round_of(path) <= round]

    def save(self, federation: Federation, metrics: int) -> Path:
        """Write the state after the federation's last round; `metrics` is the size of the metrics file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        clients, matrices = federation.client_states.export()
        states = {str(group): matrix for group, matrix in enumerate(matrices)}
        tensors, header = {_CLIENTS: torch.from_numpy(clients)}, {"metrics": metrics}
        path = self.folder / f"round-{federation.round:08d}.safetensors"
        write_atomically(path, pack_server(federation, tensors, {_STATES: states}, header), sync=True)
        return path

    @staticmethod
    def load(path: Path, federation: Federation, available: int) -> int:
        """Load a checkpoint into the federation; returns the size of the metrics file when it was written.

        `available` is the metrics file's size now. A `DataError` says what is wrong with the checkpoint.
        """
        saved = Saved.read(path)
        with saved.reading():
            clients, states = _client_states(saved, federation.assignment.clients)
        server = saved.check(federation, available)
        if not federation.client_states.fits(clients, states):
            raise DataError(f"{path}: what clients remember is of another method than the experiment's")
        federation.client_states.fill(clients, states)
        return saved.place(federation, server)


def _client_states(saved: Saved, population: int) -> tuple[Ints, list[Tensor]]:
    """The clients with a state, and the states of each group; a ValueError if they are damaged."""
    clients = saved.tensors[_CLIENTS].numpy()
    sound = clients.dtype == np.int64 and clients.ndim == 1 and (np.diff(clients) > 0).all()
    if not sound or (len(clients) and (clients[0] < 0 or clients[-1] >= population)):
        raise ValueError("the list of clients is damaged")
    matrices = saved.states.get(_STATES, {})
    return clients, [matrices[str(group)] for group in range(len(matrices))]
