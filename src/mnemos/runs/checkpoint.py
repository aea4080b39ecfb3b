"""Checkpoints: everything that a run needs to go on, in one file that is written atomically."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mnemos.client.packing import pack, unpack
from mnemos.common.files import remove_unfinished, write_atomically
from mnemos.common.plain import whole
from mnemos.data.partition import Ints
from mnemos.errors import DataError
from mnemos.federation.federation import Federation
from mnemos.methods.exchange import COMPARTMENTS, Server, State
from mnemos.runs.store import Store
from mnemos.version import __version__

_FORMAT = 2
"""Of checkpoints: 2 since the server's state has compartments."""
_SYNC_EVERY = 10.0
"""Seconds between checkpoints that are synced to disk. A killed process loses nothing either way; a machine
that goes down can lose what wasn't synced."""


class Checkpoints:
    """The newest two checkpoints of a run, in case one is damaged, and the last that was synced to disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._synced = 0.0
        self._safe: Path | None = None

    def save(self, federation: Federation, metrics: Store) -> None:
        """Write the state after the federation's last round; `metrics` has its records already."""
        self._folder.mkdir(exist_ok=True)
        server = federation.server
        clients, rows = map(torch.from_numpy, federation.client_states.index())
        sync = time.monotonic() - self._synced > _SYNC_EVERY
        data = pack(
            {"model": server.model, "buffers": server.buffers, "clients": clients, "rows": rows},
            {name: getattr(server, name) for name in COMPARTMENTS},
            {
                "format": _FORMAT,
                "round": federation.round,
                "metrics": metrics.size,
                "at_chance_since": federation.evaluation.at_chance_since,
                "synced": sync,
                "boot": _boot(),
            },
        )
        path = self._folder / f"round-{federation.round:08d}.safetensors"
        if sync:
            metrics.sync()
            federation.client_states.sync()
        write_atomically(path, data, sync=sync)
        if sync:
            self._synced, self._safe = time.monotonic(), path
        for old in self._files()[:-2]:
            if old != self._safe:
                old.unlink(missing_ok=True)
        federation.client_states.forget(_round(self._files()[0]))

    def restore(self, federation: Federation, metrics: Store) -> None:
        """Put a federation and its metrics back to the newest checkpoint that is readable and fits both.

        Without any checkpoint, the metrics are emptied, and the federation is left at its start.
        """
        remove_unfinished(self._folder)
        problems = []
        for path in reversed(self._files()):
            try:
                size = _restore(path, federation, metrics.size)
            except DataError as error:
                problems.append(str(error))
            else:
                metrics.rewind(size)
                self._keep_older(path, federation)
                return
        if problems:
            older = f" (and {len(problems) - 1} older won't do either)" if len(problems) > 1 else ""
            raise DataError(problems[0] + older)
        metrics.rewind(0)

    def _keep_older(self, newest: Path, federation: Federation) -> None:
        """Keep the client states that older checkpoints refer to, and remove newer checkpoints."""
        for path in self._files():
            if path > newest:
                path.unlink()
            elif path < newest:
                federation.client_states.spare(*_index(path, federation.assignment.clients), federation.round)

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("round-*.safetensors"))


def _round(path: Path) -> int:
    return int(path.stem.removeprefix("round-"))


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


def _restore(path: Path, federation: Federation, available: int) -> int:
    """Load a checkpoint into the federation; returns the size of the metrics file when it was written.

    `available` is the metrics file's size now.
    """
    try:
        header, tensors, states = unpack(path.read_bytes(), *COMPARTMENTS)
        format = header.get("format", 1)
        round, size = whole(header["round"]), whole(header["metrics"])
        model, buffers = tensors["model"], tensors["buffers"]
        clients, rows = _rows(tensors, federation.assignment.clients)
        since, synced, boot = header["at_chance_since"], header["synced"], header["boot"]
        since = None if since is None else whole(since)
    except OSError as error:
        raise DataError(f"{path}: can't be read ({error.strerror})") from None
    except (DataError, KeyError, TypeError, ValueError):
        raise DataError(f"{path}: the checkpoint is damaged") from None
    if format != _FORMAT:
        raise DataError(
            f"{path}: found format {format} of another version; Mnemos {__version__} reads format {_FORMAT}"
        )
    first = federation.server
    known: list[State] = [getattr(first, name) for name in COMPARTMENTS]
    found = [{**mine, **states[name]} for mine, name in zip(known, COMPARTMENTS, strict=True)]
    pairs = [(model, first.model), (buffers, first.buffers)]
    pairs += [(theirs[name], mine[name]) for theirs, mine in zip(found, known, strict=True) for name in mine]
    if any(theirs.shape != mine.shape or theirs.dtype != mine.dtype for theirs, mine in pairs):
        raise DataError(f"{path}: the checkpoint is of another model than the experiment's")
    if size > available:
        raise DataError(f"{path}: metrics.jsonl is shorter than at the time of this checkpoint")
    if len(rows) and not synced and boot != _boot():
        # The checkpoint may have reached the disk before the rows that it refers to.
        raise DataError(f"{path}: the machine went down before the clients' states were surely on disk")
    # To the devices of those that are there; what isn't there yet is small, and of the host.
    placed = [
        {name: value.to(mine[name].device) if name in mine else value for name, value in theirs.items()}
        for theirs, mine in zip(found, known, strict=True)
    ]
    federation.server = Server(model.to(first.model.device), buffers.to(first.buffers.device), *placed)
    federation.client_states.restore(clients, rows)
    federation.round, federation.evaluation.at_chance_since = round, since
    return size
