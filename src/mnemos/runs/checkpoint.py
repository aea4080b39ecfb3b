"""Checkpoints: everything a run needs to go on, in one file that is replaced in one step."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mnemos.data.partition import Ints
from mnemos.errors import DataError
from mnemos.federation import Federation
from mnemos.files import remove_unfinished, write_atomically
from mnemos.message import pack, unpack
from mnemos.methods.exchange import Server
from mnemos.plain import whole
from mnemos.runs.store import Store

_SYNC_EVERY = 10.0
"""Seconds between writes that wait for the disk; a killed process loses nothing without them."""


class Checkpoints:
    """The newest checkpoints of a run: two, in case one is damaged, and the last that waited for the disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._synced = 0.0
        self._safe: Path | None = None

    def save(self, federation: Federation, metrics: Store) -> None:
        """Write the state after the federation's last round, whose records are in the store."""
        self._folder.mkdir(exist_ok=True)
        server = federation.server
        clients, rows = map(torch.from_numpy, federation.states.index())
        sync = time.monotonic() - self._synced > _SYNC_EVERY
        data = pack(
            {"model": server.model, "buffers": server.buffers, "clients": clients, "rows": rows},
            {"server": server.state},
            {
                "round": federation.round,
                "metrics": metrics.size,
                "at_chance_since": federation.at_chance_since,
                "synced": sync,
                "boot": _boot(),
            },
        )
        path = self._folder / f"round-{federation.round:08d}.safetensors"
        if sync:
            metrics.sync()
            federation.states.sync()
        write_atomically(path, data, sync=sync)
        if sync:
            self._synced, self._safe = time.monotonic(), path
        for old in self._files()[:-2]:
            if old != self._safe:
                old.unlink(missing_ok=True)
        federation.states.forget(_round(self._files()[0]))

    def restore(self, federation: Federation, metrics: Store) -> None:
        """Put a federation and its metrics back to the newest checkpoint that both can follow."""
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
        """Leave the states of older checkpoints alone; newer ones nobody can follow any more."""
        for path in self._files():
            if path > newest:
                path.unlink()
            elif path < newest:
                federation.states.spare(*_index(path, federation.assignment.clients), federation.round)

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("round-*.safetensors"))


def _round(path: Path) -> int:
    return int(path.stem.removeprefix("round-"))


def _boot() -> str:
    """What tells one start of the machine from another; nothing, where that can't be known."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _index(path: Path, clients: int) -> tuple[Ints, Ints]:
    """The clients whose states a checkpoint speaks of, and their rows; none if it is damaged."""
    try:
        return _rows(unpack(path.read_bytes())[1], clients)
    except (OSError, DataError, KeyError, ValueError):
        return np.empty(0, np.int64), np.empty(0, np.int64)


def _rows(tensors: Mapping[str, Tensor], population: int) -> tuple[Ints, Ints]:
    """Some of the clients, and the row of each."""
    clients, rows = tensors["clients"], tensors["rows"]
    fine = clients.dtype == rows.dtype == torch.int64 and clients.ndim == 1 and clients.shape == rows.shape
    if not fine or bool((clients < 0).any() or (clients >= population).any() or (rows < 0).any()):
        raise ValueError("the index of states is damaged")
    return clients.numpy(), rows.numpy()


def _restore(path: Path, federation: Federation, available: int) -> int:
    """Take over a checkpoint; gives the size of the metrics at its time."""
    try:
        header, tensors, states = unpack(path.read_bytes())
        number, size = whole(header["round"]), whole(header["metrics"])
        model, buffers = tensors["model"], tensors["buffers"]
        clients, rows = _rows(tensors, federation.assignment.clients)
        since, synced, boot = header["at_chance_since"], header["synced"], header["boot"]
        since = None if since is None else whole(since)
    except OSError as error:
        raise DataError(f"{path}: can't be read ({error.strerror})") from None
    except (DataError, KeyError, TypeError, ValueError):
        raise DataError(f"{path}: the checkpoint is damaged") from None
    first = federation.server
    server = Server(model, buffers, {**first.state, **states.get("server", {})})
    pairs = [(model, first.model), (buffers, first.buffers)]
    pairs += [(server.state[name], known) for name, known in first.state.items()]
    if any(found.shape != known.shape or found.dtype != known.dtype for found, known in pairs):
        raise DataError(f"{path}: the checkpoint is of another model than the experiment's")
    if size > available:
        raise DataError(f"{path}: metrics.jsonl is shorter than at the time of this checkpoint")
    if len(rows) and not synced and boot != _boot():
        # The file may have reached the disk before the rows it speaks of.
        raise DataError(f"{path}: the machine went down before the clients' states were surely on disk")
    federation.server = server
    federation.states.restore(clients, rows)
    federation.round, federation.at_chance_since = number, since
    return size
