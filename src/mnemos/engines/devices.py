"""Engines on accelerators: which devices they use, and how clients get there and back.

A device computes while the program goes on, and reading a result waits for it. So several clients are begun
one after the other before their losses are read.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import chain
from typing import Any, NoReturn, Self

import torch
from pydantic import Field, field_validator
from torch import Tensor

from mnemos.client.messages import Arithmetic, Plan, TrainRequest
from mnemos.client.precision import tf32
from mnemos.client.step import Trainees, Unread, train, train_unread, with_losses
from mnemos.common.devices import (
    AUTO,
    CPU,
    find_devices,
    is_out_of_memory,
    knows_double,
    release_memory,
)
from mnemos.data.dataset import Dataset
from mnemos.engines.engine import ClientError, Engine, Runner, blame
from mnemos.errors import MnemosError
from mnemos.methods.exchange import State
from mnemos.methods.replies import TrainReplies


class DeviceEngine(Engine):
    """An engine that can train on accelerators."""

    device: str | tuple[str, ...] = Field(
        AUTO,
        description="auto (an accelerator if there is one), cpu, cuda, cuda:1, xpu, mps, or a list of them",
    )

    @field_validator("device", mode="before")
    @classmethod
    def _names(cls, value: Any) -> Any:
        """Refuse what is neither a name nor a list of names, such as the number of a device."""
        names = value if isinstance(value, list | tuple) else [value]
        if not all(isinstance(name, str) for name in names):
            raise ValueError(f"found {value!r}; expected a device's name, such as cuda:0, or a list of names")
        return value

    @property
    def devices(self) -> tuple[torch.device, ...]:
        """The devices of these names; if one is missing, a ConfigError lists those that there are."""
        return find_devices(self.device)

    @property
    def home(self) -> torch.device:
        """The first device, or the CPU if that device lacks double precision, which the server needs."""
        first = self.devices[0]
        return first if knows_double(first) else CPU

    def on_device(self, arithmetic: Arithmetic) -> Arithmetic:
        """The arithmetic on this engine's kind of device; deterministic there if `exact` asks for it."""
        asked = arithmetic.model_copy(update={"deterministic": self.exact})
        return arithmetic_on(self.devices[0].type, asked)

    def settled(self) -> Self:
        """The engine with the names of the devices that it has found, for a run's record."""
        names = tuple(map(str, self.devices))
        return self.model_copy(update={"device": names[0] if len(names) == 1 else names})


def arithmetic_on(kind: str, arithmetic: Arithmetic) -> Arithmetic:
    """An arithmetic as it is on a kind of device."""
    return arithmetic.model_copy(
        update={
            "device": kind,
            "deterministic": arithmetic.deterministic and kind != "cpu",
            # Apple's convolutions have been wrong for channels-last images.
            "channels_last": arithmetic.channels_last and kind != "mps",
        }
    )


class DeviceRunner(Runner):
    """A runner on one or more devices; the first is where replies go."""

    def __init__(self, engine: DeviceEngine, plan: Plan, dataset: Dataset) -> None:
        super().__init__(engine.settled(), plan)
        self.devices, self._home = engine.devices, engine.home
        with ExitStack() as opened:  # leaves the process as it was if the replicas can't be made
            opened.enter_context(deterministic(plan.arithmetic.deterministic))
            # Only the training of clients may be in another precision, and sets it for itself.
            opened.enter_context(tf32(False, self.devices[0]))
            self._prepare(engine, dataset)
            self._opened = opened.pop_all()

    @abstractmethod
    def _prepare(self, engine: Any, dataset: Dataset) -> None:
        """Make what trains clients on each device; the last part of `__init__`, in place of one's own."""

    @abstractmethod
    def _let_go(self) -> None:
        """Drop what `_prepare` has made."""

    def close(self) -> None:
        """Leave the process as it was, and give back memory: the replicas, and data without another user."""
        self._opened.close()
        self._let_go()
        for device in self.devices:
            release_memory(device)

    def train_in_turn(
        self,
        chunks: Iterable[Sequence[TrainRequest]],
        begin: Callable[[int, Sequence[TrainRequest]], Trainees],
        at_once: int,
    ) -> Iterator[TrainReplies]:
        """Train chunks of clients on the devices in turn, and yield the replies of each in order.

        `begin` makes trainees of a chunk for a device, by its index. `at_once` chunks are begun before their
        losses are read.
        """
        waiting: list[Unread] = []
        begun: list[Sequence[TrainRequest]] = []

        def trained(index: int, chunk: Sequence[TrainRequest]) -> Unread:
            clients = begin(index % len(self.devices), chunk)
            replies = train_unread(clients)
            return Unread(clients.losses, clients.loss_reader(), replies)

        for index, chunk in enumerate(chunks):
            begun.append(chunk)
            try:
                waiting.append(trained(index, chunk))
            except Exception as error:  # raised again, with the client's number
                if is_out_of_memory(error):
                    raise
                if isinstance(error, torch.AcceleratorError):
                    _blame_late(begun, error)
                blame_chunk(chunk, error, lambda alone: train(begin(0, [alone])))
            if len(waiting) >= at_once:
                done = _read(waiting, begun)
                waiting, begun = [], []  # what has been read makes room for the next
                yield from (replies.on(self._home) for replies in done)
        if waiting:
            yield from (replies.on(self._home) for replies in _read(waiting, begun))


def _read(waiting: list[Unread], begun: list[Sequence[TrainRequest]]) -> list[TrainReplies]:
    """The replies of chunks with their losses; `begun`: the chunks' requests, for an error's message."""
    try:
        return with_losses(waiting)
    except RuntimeError as error:  # raised again, with the clients' numbers
        if is_out_of_memory(error):
            raise
        _blame_late(begun, error)


def _blame_late(begun: list[Sequence[TrainRequest]], error: Exception) -> NoReturn:
    """Raise a device's error again, which may have happened at any client whose losses haven't been read."""
    *before, last = chain.from_iterable(begun)
    if not before:
        blame(last, error)
    others = ", ".join(str(request.client) for request in before)
    raise ClientError(
        f"client {last.client} or one of those before it ({others}) failed in round {last.round}; a device "
        f"reports errors late: {type(error).__name__}: {error}"
    ) from error


def blame_chunk(
    chunk: Sequence[TrainRequest], error: Exception, train_alone: Callable[[TrainRequest], object]
) -> NoReturn:
    """Raise a chunk's error as that of the first client that also fails alone, or else of all its clients."""
    if isinstance(error, MnemosError):
        raise error
    if len(chunk) == 1:
        blame(chunk[0], error)
    for request in chunk:
        try:
            train_alone(request)
        except Exception as own:  # raised again, with the client's number
            blame(request, own)
    clients = ", ".join(str(request.client) for request in chunk)
    raise ClientError(
        f"clients {clients} failed together in round {chunk[0].round}, and none of them alone: "
        f"{type(error).__name__}: {error}; a smaller engine.chunk may help"
    ) from error


class Mirror:
    """Copies, on one device, of what the clients of a round are sent; each tensor is copied once."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._copies: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(self, request: TrainRequest) -> TrainRequest:
        """The request with its model and what is beside it on the device."""
        if self._device == CPU and request.model.device == CPU:
            return request
        received: State = {name: self._copy(value) for name, value in request.received.items()}
        return replace(request, model=self._copy(request.model), received=received)

    def _copy(self, tensor: Tensor) -> Tensor:
        if tensor.device == self._device or tensor.dtype == torch.float64:  # a few numbers for the host
            return tensor
        if id(tensor) not in self._copies:
            # The original is kept, so that no other tensor can have its identity.
            self._copies[id(tensor)] = tensor, tensor.to(self._device)
        return self._copies[id(tensor)][1]


@contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """Inside, if `wanted`, a GPU uses deterministic algorithms alone, and refuses operations without one."""
    if not wanted:
        yield
        return
    # cuBLAS reads it when it is first used.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.backends.cudnn.benchmark = before[1]
