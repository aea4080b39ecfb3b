"""Checkpoints: everything a run needs to go on, in one file that is replaced in one step."""

from __future__ import annotations

import time
from pathlib import Path

from mnemos.errors import DataError
from mnemos.federation import Federation
from mnemos.files import write_atomically
from mnemos.message import pack, unpack
from mnemos.methods.method import Server, State

_SYNC_EVERY = 10.0
"""Seconds between writes that wait for the disk; a killed process loses nothing without them."""


class Checkpoints:
    """The newest checkpoints of a run: two, in case the newest turns out to be damaged."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._synced = 0.0

    def save(self, federation: Federation, metrics_size: int) -> None:
        """Write the state after the federation's last round."""
        self._folder.mkdir(exist_ok=True)
        server = federation.server
        states = {f"client {client}": state for client, state in federation.states.items()}
        data = pack(
            {"model": server.model, "buffers": server.buffers},
            {"server": server.state, **states},
            {"round": federation.round, "metrics": metrics_size},
        )
        sync = time.monotonic() - self._synced > _SYNC_EVERY
        write_atomically(self._folder / f"round-{federation.round:08d}.safetensors", data, sync=sync)
        if sync:
            self._synced = time.monotonic()
        for old in self._files()[:-2]:
            old.unlink(missing_ok=True)

    def restore(self, federation: Federation) -> int:
        """Put a federation back to the newest readable checkpoint; gives the size of the metrics then."""
        problems = []
        for path in reversed(self._files()):
            try:
                return _restore(path, federation)
            except DataError as error:
                problems.append(str(error))
        if problems:
            raise DataError("; ".join(problems))
        return 0

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("round-*.safetensors"))


def _restore(path: Path, federation: Federation) -> int:
    try:
        header, tensors, states = unpack(path.read_bytes())
        number, size = int(header["round"]), int(header["metrics"])
        model, buffers = tensors["model"], tensors["buffers"]
    except OSError as error:
        raise DataError(f"{path}: can't be read ({error.strerror})") from None
    except (DataError, KeyError, TypeError, ValueError):
        raise DataError(f"{path}: the checkpoint is damaged") from None
    layout = federation.layout
    if model.shape != (layout.size,) or buffers.shape != (layout.buffer_size,):
        raise DataError(f"{path}: the checkpoint is of another model than the experiment's")
    server: State = {**federation.server.state, **states.pop("server", {})}
    federation.server = Server(model, buffers, server)
    federation.states = {int(name.removeprefix("client ")): state for name, state in states.items()}
    federation.round = number
    return size
