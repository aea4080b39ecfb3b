"""Messages, checkpoints and files with tensors."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import torch

from fuzzing import tensors
from fuzzing.attempt import Target
from mnemos.data.load import load
from mnemos.experiment import load_experiment
from mnemos.federation import Federation, model_of
from mnemos.message import Task, update_from_bytes, update_to_bytes
from mnemos.methods.exchange import Update
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


def task(folder: Path) -> Target:
    """What a client gets from a server it doesn't know."""
    sample = _exchanged()[0]
    return Target(
        Task.from_bytes, tensors.files([sample], "mnemos"), [sample], tensors.nasty(sample, "mnemos")
    )


def update(folder: Path) -> Target:
    """What a server gets from clients it doesn't know."""
    sample = _exchanged()[1]
    return Target(
        update_from_bytes, tensors.files([sample], "mnemos"), [sample], tensors.nasty(sample, "mnemos")
    )


def checkpoint(folder: Path) -> Target:
    """A run goes on from it, so everything in it is used."""
    federation = Federation(load_experiment(SMALL))
    federation.states.keep_in(folder / "states")
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
                if client in federation.states:
                    federation.states[client]
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
        module.load_state_dict(layout.state_dict(*load_model(path, layout)), strict=False)

    return Target(read, tensors.files([sample]), [sample], tensors.nasty(sample))


def _exchanged() -> tuple[bytes, bytes]:
    """A task and its update, of a method that sends and keeps something beside the model."""
    federation = Federation(load_experiment(SMALL))
    with closing(federation), federation.open() as runner:
        tasks = list(federation._tasks(1, runner))
        update = next(iter(runner.run(tasks[:1])))
    assert isinstance(update, Update)
    return tasks[0].to_bytes(), update_to_bytes(update)
