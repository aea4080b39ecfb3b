"""Messages, checkpoints and files with tensors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from fuzzing import tensors
from fuzzing.attempt import Target
from mnemos.client.messages import TrainRequest, reply_from_bytes, reply_to_bytes
from mnemos.data.load import load
from mnemos.engines.engine import Lost, Runner
from mnemos.experiment.experiment import load_experiment
from mnemos.federation.assembly import model_of
from mnemos.federation.federation import Federation
from mnemos.methods.exchange import TrainReply
from mnemos.models.encoder import Encoder, load_encoder, place, save_encoder
from mnemos.runs.checkpoint import Checkpoints
from mnemos.runs.store import Store
from mnemos.vector import Layout, load_model, save_model

SMALL = {
    "partition": {"name": "dirichlet", "clients": 4, "alpha": 1.0},
    "model": {"name": "mlp", "hidden": [2]},
    "method": "scaffold",
    "local": {"epochs": 1, "batch": 512},
    "participation": 0.5,
    "rounds": 2,
    "engine": "serial",
}
_LIAR = 2
"""The client whose update is another one's."""
_FILLS = (0.0, 1e-45, 1e20, 3e38, -3e38, math.inf, math.nan)
"""Numbers that are hard to count with."""


def task(folder: Path) -> Target:
    """What a client gets from a server it doesn't know."""
    sample = _exchanged()[0]
    return Target(
        TrainRequest.from_bytes, tensors.files([sample], "mnemos"), [sample], tensors.nasty(sample, "mnemos")
    )


def update(folder: Path) -> Target:
    """What a server gets from clients it doesn't know."""
    sample = _exchanged()[1]
    return Target(
        reply_from_bytes, tensors.files([sample], "mnemos"), [sample], tensors.nasty(sample, "mnemos")
    )


class _Replaying(Runner):
    """Knows what clients send already; `instead`: one of them sends this."""

    def __init__(self, runner: Runner, updates: Mapping[int, TrainReply]) -> None:
        super().__init__(runner.engine, runner.plan)
        self._updates = updates
        self.instead: TrainReply | Lost = Lost(_LIAR, "")

    def run(self, cohort: Iterable[TrainRequest]) -> Iterator[TrainReply | Lost]:
        for task in cohort:
            yield self.instead if task.client == _LIAR else self._updates[task.client]


def round(folder: Path) -> Target:
    """What becomes of a client's update beside honest ones: screened, folded, the model evaluated."""
    described = {
        **SMALL,
        "model": {"name": "mlp", "hidden": [2], "norm": "batch"},
        "local": {"steps": 1, "batch": 32},
        "participation": 1.0,
        "screens": ["norms"],
        "evaluate": {"every": 1, "patience": 0},
    }
    federation = Federation(load_experiment(described))
    first, nobody = federation.server, np.zeros(0, np.int64)
    with federation.open() as runner:
        updates = runner.run(federation.requests(1, runner))
        honest = {update.client: update for update in updates if isinstance(update, TrainReply)}
    replaying, known = _Replaying(runner, honest), honest[_LIAR]

    def read(content: bytes) -> None:
        # What a client remembers isn't taken from it.
        replaying.instead = replace(reply_from_bytes(content), state=known.state)
        federation.server, federation.round = first, 0
        federation.client_states.drop()
        federation.client_states.restore(nobody, nobody)
        federation.advance(replaying)
        assert all(bool(value.isfinite().all()) for value in federation.server.tensors.values())
        list(federation.requests(2, replaying))  # the next round is possible, too

    sample = reply_to_bytes(known)
    names = ("delta", "buffers", *known.change)
    odd = st.dictionaries(st.sampled_from(names), st.sampled_from(_FILLS), min_size=1)
    inputs = st.one_of(tensors.files([sample], "mnemos"), odd.map(partial(_filled, known)))
    nasty = [_filled(known, {name: fill}) for name in names for fill in _FILLS]
    return Target(read, inputs, [sample], [*tensors.nasty(sample, "mnemos"), *nasty])


def _filled(update: TrainReply, fills: Mapping[str, float]) -> bytes:
    """An update some of whose tensors hold one number only."""
    change = {name: _full(value, fills.get(name)) for name, value in update.change.items()}
    delta, buffers = (_full(getattr(update, name), fills.get(name)) for name in ("delta", "buffers"))
    return reply_to_bytes(replace(update, delta=delta, buffers=buffers, change=change))


def _full(tensor: Tensor, fill: float | None) -> Tensor:
    return tensor if fill is None else torch.full_like(tensor, fill)


def checkpoint(folder: Path) -> Target:
    """A run goes on from it, so everything in it is used."""
    federation = Federation(load_experiment(SMALL))
    federation.client_states.keep_in(folder / "states")
    path = folder / "checkpoints" / "round-00000001.safetensors"
    with closing(Store(folder / "metrics.jsonl")) as metrics, federation.open() as runner:
        metrics.append(federation.advance(runner).records)
        Checkpoints(path.parent).save(federation, metrics)
    sample = path.read_bytes()
    whole = (folder / "metrics.jsonl").read_bytes()

    def read(content: bytes) -> None:
        path.write_bytes(content)
        (folder / "metrics.jsonl").write_bytes(whole)
        with closing(Store(folder / "metrics.jsonl")) as metrics:
            Checkpoints(path.parent).restore(federation, metrics)
        with federation.open() as runner:  # the next round is possible, too
            for client in range(4):
                if client in federation.client_states:
                    federation.client_states[client]
            federation.advance(runner)

    return Target(read, tensors.files([sample], "mnemos"), [sample], tensors.nasty(sample, "mnemos"))


def encoder(folder: Path) -> Target:
    """A file of someone else, put in the place of a model's weights."""
    experiment = load_experiment(SMALL)
    dataset = load(experiment.data)
    module = model_of(experiment, dataset)
    path = folder / "encoder.safetensors"
    body = {name: tensor for name, tensor in module.state_dict().items() if not name.startswith("head.")}
    about = {"model": experiment.model.dump(), "accuracy": 0.5, "options": {"labels": "single", "classes": 9}}
    save_encoder(path, Encoder(body, about))
    sample = path.read_bytes()

    def read(content: bytes) -> None:
        path.write_bytes(content)
        found = load_encoder(path)
        place(found, module, dataset.shape)
        assert isinstance(found.doubt, str)
        assert len(found.digest) == 16
        assert found.accuracy is None or isinstance(found.accuracy, float)

    return Target(
        read,
        tensors.files([sample], "mnemos.encoder"),
        [sample],
        tensors.nasty(sample, "mnemos.encoder"),
    )


def model(folder: Path) -> Target:
    """A run's model."""
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    layout = Layout.of(module)
    path = folder / "model.safetensors"
    save_model(path, module, *layout.gather(module.state_dict()))
    sample = path.read_bytes()

    def read(content: bytes) -> None:
        path.write_bytes(content)
        load_model(path, module)

    return Target(read, tensors.files([sample]), [sample], tensors.nasty(sample))


def _exchanged() -> tuple[bytes, bytes]:
    """A task and its update, of a method that sends and keeps something beside the model."""
    federation = Federation(load_experiment(SMALL))
    with closing(federation), federation.open() as runner:
        tasks = list(federation.requests(1, runner))
        update = next(iter(runner.run(tasks[:1])))
    assert isinstance(update, TrainReply)
    return tasks[0].to_bytes(), reply_to_bytes(update)
