"""Checkpoints: everything that a run needs to go on, in one file that is written atomically."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mnemos.client.packing import unpack
from mnemos.common.files import remove_unfinished, write_atomically
from mnemos.data.partition import Ints
from mnemos.errors import DataError
from mnemos.federation.federation import Federation
from mnemos.runs.directory import PATTERN, round_of
from mnemos.runs.kept import KeptCheckpoints
from mnemos.runs.saved import Saved, pack_server
from mnemos.runs.store import Store

_SYNC_EVERY = 10.0
"""Seconds between checkpoints that are synced to disk. A killed process loses nothing either way; a machine
that goes down can lose what wasn't synced."""


class Checkpoints:
    """The newest two checkpoints of a run, in case one is damaged, and the last that was synced to disk.

    Those that the experiment wants to keep are in a folder of their own.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept = KeptCheckpoints(folder)
        self._here: list[Path] | None = None
        """The checkpoints that are there, in order; None: not looked for yet."""
        self._synced = 0.0
        self._safe: Path | None = None

    def save(self, federation: Federation, metrics: Store) -> None:
        """Write the state after the federation's last round; `metrics` has its records already."""
        if self._here is None:
            self._folder.mkdir(exist_ok=True)
            self._here = self._files()
        clients, rows = map(torch.from_numpy, federation.client_states.index())
        sync = time.monotonic() - self._synced > _SYNC_EVERY
        header = {"metrics": metrics.size, "synced": sync, "boot": _boot()}
        data = pack_server(federation, {"clients": clients, "rows": rows}, {}, header)
        path = self._folder / f"round-{federation.round:08d}.safetensors"
        if sync:
            metrics.sync()
            federation.client_states.sync()
        write_atomically(path, data, sync=sync)
        if sync:
            self._synced, self._safe = time.monotonic(), path
        files = [*(known for known in self._here if known != path), path]
        self._here = [known for known in files if known in files[-2:] or known == self._safe]
        for old in files:
            if old not in self._here:
                old.unlink(missing_ok=True)
        federation.client_states.forget(round_of(self._here[0]))
        every = federation.experiment.checkpoints.keep
        if every and federation.round % every == 0:
            self._kept.save(federation, metrics.size)

    def restore(self, federation: Federation, metrics: Store) -> None:
        """Put a federation and its metrics back to the newest checkpoint that is readable and fits both.

        Without any checkpoint, the metrics are emptied, and the federation is left at its start.
        """
        remove_unfinished(self._folder)
        problems = []
        for path in [*reversed(self._files()), *reversed(self._kept.files())]:
            kept = path.parent != self._folder
            try:
                size = (KeptCheckpoints.load if kept else _load)(path, federation, metrics.size)
            except DataError as error:
                problems.append(str(error))
            else:
                metrics.rewind(size)
                self._keep_older(round_of(path), federation, kept=kept)
                return
        if problems:
            older = f" (and {len(problems) - 1} older won't do either)" if len(problems) > 1 else ""
            raise DataError(problems[0] + older)
        metrics.rewind(0)

    def _keep_older(self, newest: int, federation: Federation, *, kept: bool) -> None:
        """Keep the client states that older checkpoints refer to, and remove newer checkpoints.

        `kept`: the states come from a checkpoint that has its own, so the others' rows aren't there any more.
        """
        for path in [*self._files(), *self._kept.files()]:
            if round_of(path) > newest:
                path.unlink()
        for path in self._files():
            if kept:
                path.unlink()
            elif round_of(path) < newest:
                federation.client_states.spare(*_index(path, federation.assignment.clients), federation.round)

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob(PATTERN))


@cache
def _boot() -> str:
    """An identifier that differs each time the machine starts; empty where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _index(path: Path, clients: int) -> tuple[Ints, Ints]:
    """The clients whose states a checkpoint refers to, and the row of each; empty if it is damaged."""
    try:
        return _rows(unpack(path.read_bytes())[1], clients)
    except (OSError, DataError, KeyError, ValueError):
        return np.empty(0, np.int64), np.empty(0, np.int64)


def _rows(tensors: Mapping[str, Tensor], population: int) -> tuple[Ints, Ints]:
    """The clients with a state, and the row of each in the file of states; a ValueError if they are damaged.

    `population` is the number of all clients.
    """
    clients, rows = tensors["clients"], tensors["rows"]
    fine = clients.dtype == rows.dtype == torch.int64 and clients.ndim == 1 and clients.shape == rows.shape
    if not fine or bool((clients < 0).any() or (clients >= population).any() or (rows < 0).any()):
        raise ValueError("the index of states is damaged")
    return clients.numpy(), rows.numpy()


def _load(path: Path, federation: Federation, available: int) -> int:
    """Load a checkpoint into the federation; returns the size of the metrics file when it was written.

    `available` is the metrics file's size now.
    """
    saved = Saved.read(path)
    with saved.reading():
        clients, rows = _rows(saved.tensors, federation.assignment.clients)
        synced, boot = saved.header["synced"], saved.header["boot"]
    server = saved.check(federation, available)
    if len(rows) and not synced and boot != _boot():
        # The checkpoint may have reached the disk before the rows that it refers to.
        raise DataError(f"{path}: the machine went down before the clients' states were surely on disk")
    federation.client_states.restore(clients, rows)
    return saved.place(federation, server)
