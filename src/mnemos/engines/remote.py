"""What happens at a worker of a cluster: clients' rounds, from arrays to arrays.

Tensors travel as NumPy arrays, because Ray keeps those in memory that all processes of a machine share.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import warnings
from contextlib import suppress
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mnemos.client import Trainer, intra_op
from mnemos.data.dataset import Dataset, Split, sources
from mnemos.data.download import OFFLINE
from mnemos.extras import require
from mnemos.message import Plan, Task
from mnemos.methods.exchange import Update
from mnemos.version import __version__

Arrays = dict[str, Any]
"""Named arrays, dictionaries of arrays, and plain values."""

SHARED = ("plan", "model", "buffers", "received")
"""What is the same in the tasks of a cohort, as a rule."""


def versions() -> dict[str, str]:
    """What has to be the same everywhere for the same results."""
    return {"Mnemos": __version__, "PyTorch": torch.__version__}


def to_arrays(value: Any) -> Any:
    """Tensors as arrays in the same memory, also inside dictionaries."""
    if isinstance(value, Tensor):
        return value.detach().numpy()
    return {name: to_arrays(one) for name, one in value.items()} if isinstance(value, dict) else value


def to_tensors(value: Any) -> Any:
    """Arrays as tensors of their own: what Ray hands out is read-only, and has to be let go of."""
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    return {name: to_tensors(one) for name, one in value.items()} if isinstance(value, dict) else value


def as_text(plan: Plan) -> str:
    """A plan as it travels: parts by name, so that a worker's own code is what runs there."""
    return json.dumps(plan.model_dump(mode="json"))


def shared_of(task: Task, plan: str, key: int) -> Arrays:
    """What a task has in common with others; the key tells it from what came before."""
    found = {name: to_arrays(getattr(task, name)) for name in SHARED}
    return {**found, "plan": plan, "key": key}


def own_of(task: Task, like: Task) -> Arrays:
    """What a task has of its own, beside what it shares with the other."""
    own = [field.name for field in fields(task) if field.name not in SHARED]
    if task.buffers is not like.buffers:
        own.append("buffers")  # of clients that keep their own
    return {name: to_arrays(getattr(task, name)) for name in own}


def update_of(arrays: Arrays) -> Update:
    """The update that a worker has sent."""
    return Update(**to_tensors(arrays))


class Data(NamedTuple):
    """What training needs of a data set."""

    name: str
    samples: Any
    labels: Any
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, dataset: Dataset) -> Data:
        """A data set's, in the same memory."""
        train = dataset.train
        arrays = train.samples.numpy(), train.labels.numpy()
        return cls(dataset.name, *arrays, dataset.classes, dataset.mean, dataset.std)

    def dataset(self) -> Dataset:
        """A data set in the same memory."""
        with warnings.catch_warnings():
            # They are read-only. Nobody writes into a data set: its samples are copied into batches.
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            train = Split(torch.from_numpy(self.samples), torch.from_numpy(self.labels))
        nothing = Split(train.samples[:0], train.labels[:0])
        return Dataset(self.name, train, nothing, self.classes, self.mean, self.std)

    def fingerprint(self) -> str:
        """Equal for the same data only."""
        digest = hashlib.sha256(repr((self.name, self.classes, self.mean, self.std)).encode())
        for array in (self.samples, self.labels):
            digest.update(repr((array.shape, array.dtype)).encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def find(source: str, fingerprint: str, path: list[str]) -> tuple[bool, Data | None]:
    """The data from this machine's own files, and whether they were found there and are the same."""
    os.environ[OFFLINE] = "1"
    _extend(path)
    with suppress(Exception):  # whatever there is instead, or nothing: the data come by the network then
        data = Data.of(sources.parse(json.loads(source)).load())
        if data.fingerprint() == fingerprint:
            return True, data
    return False, None


class Places(NamedTuple):
    """Where the workers of a machine find the data: references to one copy that they share."""

    sent: Any
    """What the driver has put into the object store."""
    here: tuple[Any, Any] | None = None
    """What `find` has found on this machine; None: not looked for."""

    def fetch(self) -> Data:
        """The data, in the shared memory itself."""
        ray = require("ray", "ray", "ray")
        data: Data
        if self.here is not None:
            found, own = self.here
            with suppress(ray.exceptions.RayError):  # who was to look has died
                if ray.get(found):
                    data = ray.get(own)
                    return data
        data = ray.get(self.sent)
        return data


class Greeting(NamedTuple):
    """Where a worker is, and what it runs on."""

    node: str
    pid: int
    host: str
    versions: dict[str, str]


class Worker:
    """Trains clients one after the other, in a process of its own."""

    def __init__(self, path: list[str]) -> None:
        """`path`: where the driver finds modules; a user's own parts may be there."""
        _extend(path)
        torch.set_num_threads(1)
        self._dataset: Dataset | None = None
        self._trainers: dict[str, tuple[Plan, Trainer]] = {}
        self._key = -1
        self._shared: Arrays = {}

    def greet(self) -> Greeting:
        """Who is there."""
        context = require("ray", "ray", "ray").get_runtime_context()
        return Greeting(context.get_node_id(), os.getpid(), platform.node(), versions())

    def prepare(self, places: Places, plan: str) -> None:
        """Get ready for clients of a plan."""
        self._dataset = places.fetch().dataset()
        self._trainer(plan)

    def train(self, shared: Arrays, own: Arrays) -> Arrays:
        """One client's round."""
        if shared["key"] != self._key:
            self._key, self._shared = shared["key"], to_tensors(shared)
        plan, trainer = self._trainer(self._shared["plan"])
        common = {name: self._shared[name] for name in SHARED}
        task = Task(**{**common, **to_tensors(own), "plan": plan})
        with intra_op(plan.arithmetic.intra_op):
            update = trainer(task)
        return {field.name: to_arrays(getattr(update, field.name)) for field in fields(update)}

    def _trainer(self, text: str) -> tuple[Plan, Trainer]:
        assert self._dataset is not None
        if text not in self._trainers:  # one a model of the federation
            plan = Plan.parse(json.loads(text))
            self._trainers[text] = plan, Trainer(plan, self._dataset)
        return self._trainers[text]


def _extend(path: list[str]) -> None:
    sys.path += [entry for entry in path if entry not in sys.path]
