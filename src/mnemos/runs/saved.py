"""The content of a checkpoint: what the server holds after a round, as bytes and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from mnemos.client.packing import pack, unpack
from mnemos.common.plain import whole
from mnemos.errors import DataError
from mnemos.federation.federation import Federation
from mnemos.methods.exchange import COMPARTMENTS, Server, State
from mnemos.version import __version__

_FORMAT = 2
"""Of checkpoints: 2 since the server's state has compartments."""


def pack_server(
    federation: Federation,
    tensors: Mapping[str, Tensor],
    states: Mapping[str, State],
    header: Mapping[str, Any],
) -> bytes:
    """The server after the federation's last round as bytes, with other tensors, states and facts."""
    server = federation.server
    return pack(
        {"model": server.model, "buffers": server.buffers, **tensors},
        {**{name: getattr(server, name) for name in COMPARTMENTS}, **states},
        {
            "format": _FORMAT,
            "round": federation.round,
            "at_chance_since": federation.evaluation.at_chance_since,
            **header,
        },
    )


@dataclass(frozen=True)
class Saved:
    """A checkpoint that has been read, and not yet been compared with an experiment."""

    path: Path
    round: int
    metrics: int
    """The size of the metrics file when it was written."""
    at_chance_since: int | None
    header: dict[str, Any]
    tensors: dict[str, Tensor]
    states: dict[str, State]

    @classmethod
    def read(cls, path: Path) -> Saved:
        """Read a file; a `DataError` if it is damaged or of another version's format."""
        with _reading(path):
            header, tensors, states = unpack(path.read_bytes(), *COMPARTMENTS)
            format = header.get("format", 1)
            since = header["at_chance_since"]
            since = None if since is None else whole(since)
            found = cls(
                path, whole(header["round"]), whole(header["metrics"]), since, header, tensors, states
            )
            _ = tensors["model"], tensors["buffers"]
        if format != _FORMAT:
            raise DataError(
                f"{path}: found format {format} of another version; Mnemos {__version__} reads format "
                f"{_FORMAT}"
            )
        return found

    def reading(self) -> AbstractContextManager[None]:
        """Around the reading of more values: a `DataError` names the file if one is missing or wrong."""
        return _reading(self.path)

    def check(self, federation: Federation, available: int) -> Server:
        """The server, on the federation's devices; a `DataError` if it doesn't fit its model.

        `available` is the metrics file's size now.
        """
        first = federation.server
        model, buffers = self.tensors["model"], self.tensors["buffers"]
        known: list[State] = [getattr(first, name) for name in COMPARTMENTS]
        found = [{**mine, **self.states[name]} for mine, name in zip(known, COMPARTMENTS, strict=True)]
        pairs = [(model, first.model), (buffers, first.buffers)]
        both = zip(found, known, strict=True)
        pairs += [(theirs[name], mine[name]) for theirs, mine in both for name in mine]
        if any(theirs.shape != mine.shape or theirs.dtype != mine.dtype for theirs, mine in pairs):
            raise DataError(f"{self.path}: the checkpoint is of another model than the experiment's")
        if self.metrics > available:
            raise DataError(f"{self.path}: metrics.jsonl is shorter than at the time of this checkpoint")
        # To the devices of those that are there; what isn't there yet is small, and of the host.
        placed = [
            {name: value.to(mine[name].device) if name in mine else value for name, value in theirs.items()}
            for theirs, mine in zip(found, known, strict=True)
        ]
        return Server(model.to(first.model.device), buffers.to(first.buffers.device), *placed)

    def place(self, federation: Federation, server: Server) -> int:
        """Put the federation to the checkpoint's round; returns the size of the metrics file at that time."""
        federation.server = server
        federation.round, federation.evaluation.at_chance_since = self.round, self.at_chance_since
        return self.metrics


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"{path}: can't be read ({error.strerror})") from None
    except (DataError, KeyError, TypeError, ValueError):
        raise DataError(f"{path}: the checkpoint is damaged") from None
