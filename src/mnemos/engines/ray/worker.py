"""The worker process of a Ray cluster: it trains clients, and gets and sends arrays.

Tensors travel as NumPy arrays, because Ray keeps arrays in memory that all processes of a machine share.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import warnings
from contextlib import ExitStack, suppress
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mnemos.client.messages import Plan, TrainRequest
from mnemos.client.precision import tf32
from mnemos.client.trainer import Trainer, intra_op
from mnemos.common.devices import AUTO, CPU, find_devices
from mnemos.common.extras import require
from mnemos.data.dataset import Dataset, Split, sources
from mnemos.data.download import OFFLINE
from mnemos.data.vocabulary import Vocabulary
from mnemos.engines.devices import Mirror, deterministic
from mnemos.methods.exchange import TrainReply
from mnemos.version import __version__

Arrays = dict[str, Any]
"""Named arrays, dictionaries of arrays, and plain values."""

SHARED = ("plan", "model", "buffers", "received")
"""The fields that mostly are the same in all requests of a cohort."""


def versions() -> dict[str, str]:
    """The versions that must be the same on all machines for the same results."""
    return {"Mnemos": __version__, "PyTorch": torch.__version__}


def to_arrays(value: Any) -> Any:
    """Tensors as arrays, also inside dictionaries; other values as they are.

    Tensors of the host share their memory with the arrays.
    """
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    return {name: to_arrays(item) for name, item in value.items()} if isinstance(value, dict) else value


def to_tensors(value: Any) -> Any:
    """Arrays as tensors, also inside dictionaries; other values as they are.

    Arrays are copied, because Ray's are read-only and hold memory of the object store.
    """
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    return {name: to_tensors(item) for name, item in value.items()} if isinstance(value, dict) else value


def as_text(plan: Plan) -> str:
    """A plan as JSON, in which parts are named, so that a worker uses its own code for them."""
    return json.dumps(plan.model_dump(mode="json"))


def shared_of(request: TrainRequest, plan: str, key: int) -> Arrays:
    """The part of a request that it has in common with others; `key` tells different ones apart."""
    found = {name: to_arrays(getattr(request, name)) for name in SHARED}
    return {**found, "plan": plan, "key": key}


def own_of(request: TrainRequest, like: TrainRequest) -> Arrays:
    """The part of a request that it doesn't share with `like`."""
    own = [field.name for field in fields(request) if field.name not in SHARED]
    if request.buffers is not like.buffers:
        own.append("buffers")  # the client keeps buffers of its own
    return {name: to_arrays(getattr(request, name)) for name in own}


def update_of(arrays: Arrays) -> TrainReply:
    """The update that a worker has sent."""
    return TrainReply(**to_tensors(arrays))


class Data(NamedTuple):
    """The part of a data set that training needs."""

    name: str
    samples: Any
    labels: Any
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    vocabulary: Vocabulary | None = None

    @classmethod
    def of(cls, dataset: Dataset) -> Data:
        """The data of a data set, in the same memory."""
        train = dataset.train
        arrays = train.samples.numpy(), train.labels.numpy()
        return cls(dataset.name, *arrays, dataset.classes, dataset.mean, dataset.std, dataset.vocabulary)

    def dataset(self) -> Dataset:
        """A data set in the same memory."""
        with warnings.catch_warnings():
            # The arrays are read-only, and no code writes into a data set: samples are copied into batches.
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            train = Split(torch.from_numpy(self.samples), torch.from_numpy(self.labels))
        nothing = Split(train.samples[:0], train.labels[:0])
        return Dataset(
            self.name, train, nothing, self.classes, self.mean, self.std, vocabulary=self.vocabulary
        )

    def fingerprint(self) -> str:
        """A digest that is equal for the same data only."""
        digest = hashlib.sha256(repr(self._replace(samples=None, labels=None)).encode())
        for array in (self.samples, self.labels):
            digest.update(repr((array.shape, array.dtype)).encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def find(source: str, fingerprint: str, path: list[str]) -> tuple[bool, Data | None]:
    """Look for the data in this machine's files: returns whether the same data were found, and the data.

    `source` is the data source as JSON, `fingerprint` that of the driver's data, `path` its module path.
    """
    os.environ[OFFLINE] = "1"
    _extend(path)
    with suppress(Exception):  # if they can't be read here, they are sent over the network
        data = Data.of(sources.parse(json.loads(source)).load())
        if data.fingerprint() == fingerprint:
            return True, data
    return False, None


class Places(NamedTuple):
    """References to the copy of the data that the workers of a machine share."""

    sent: Any
    """A reference to the data that the driver has put into the object store."""
    here: tuple[Any, Any] | None = None
    """References to the results of `find` on this machine; None if it wasn't called."""

    def fetch(self) -> Data:
        """The data, in shared memory."""
        ray = require("ray", "ray", "ray")
        data: Data
        if self.here is not None:
            found, own = self.here
            with suppress(ray.exceptions.RayError):  # the process that looked for it has died
                if ray.get(found):
                    data = ray.get(own)
                    return data
        data = ray.get(self.sent)
        return data


class Greeting(NamedTuple):
    """A worker's machine, process, versions and device."""

    node: str
    pid: int
    host: str
    versions: dict[str, str]
    device: str
    """The kind of device that it trains on."""


class Worker:
    """Trains one client after another, in a process of its own."""

    def __init__(self, path: list[str], device: str = "cpu") -> None:
        """`path` is the driver's module path, where a user's own parts may be; `device`: of the engine."""
        _extend(path)
        torch.set_num_threads(1)
        self._dataset: Dataset | None = None
        self._trainers: dict[str, tuple[Plan, Trainer]] = {}
        self._key = -1
        self._shared: Arrays = {}
        self._wanted, self._device = device, CPU
        self._mirror = Mirror(CPU)

    def greet(self) -> Greeting:
        """Where the worker runs, and with which versions; a ConfigError if its device isn't there."""
        context = require("ray", "ray", "ray").get_runtime_context()
        # Without a GPU of its own it may still see those of others.
        given = self._wanted != AUTO or any(context.get_accelerator_ids().values())
        (self._device,) = find_devices(self._wanted) if given else (CPU,)
        node, host = context.get_node_id(), platform.node()
        return Greeting(node, os.getpid(), host, versions(), self._device.type)

    def prepare(self, places: Places, plan: str) -> None:
        """Get the data, and make a trainer for a plan."""
        self._dataset = places.fetch().dataset()
        prepared, _ = self._trainer(plan)
        # To the end of the process, which trains and does nothing else.
        self._opened = ExitStack()
        self._opened.enter_context(deterministic(prepared.arithmetic.deterministic))
        self._opened.enter_context(tf32(False, self._device))

    def train(self, shared: Arrays, own: Arrays) -> Arrays:
        """Train a client; the arguments are the two parts of its request, the result is the update."""
        if shared["key"] != self._key:
            self._key, self._shared = shared["key"], to_tensors(shared)
            self._mirror = Mirror(self._device)
        plan, trainer = self._trainer(self._shared["plan"])
        common = {name: self._shared[name] for name in SHARED}
        request = TrainRequest(**{**common, **to_tensors(own), "plan": plan})
        with intra_op(plan.arithmetic.intra_op):
            numbers, tensors, states = trainer(self._mirror(request)).parts()
        return {**numbers, **to_arrays(tensors), **to_arrays(states)}

    def _trainer(self, text: str) -> tuple[Plan, Trainer]:
        """A plan from its JSON, and its trainer, which is kept; there is one for each model."""
        assert self._dataset is not None
        if text not in self._trainers:
            plan = Plan.parse(json.loads(text))
            self._trainers[text] = plan, Trainer(plan, self._dataset, self._device)
        return self._trainers[text]


def _extend(path: list[str]) -> None:
    sys.path += [entry for entry in path if entry not in sys.path]
