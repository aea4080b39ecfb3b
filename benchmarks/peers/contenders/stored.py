"""A work as a data source of Mnemos, and as an experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from contenders.task import Task
from mnemos.data.dataset import Dataset, Source, Split
from mnemos.experiment.experiment import Experiment

ROUNDS = 50
"""Of the experiment; a contest asks for fewer."""


class Stored(Source):
    """The samples of a work; each belongs to the client that holds it."""

    folder: Path

    def load(self) -> Dataset:
        task = Task.read(self.folder)
        sizes = torch.tensor(task.starts).diff()
        owners = torch.arange(task.clients).repeat_interleave(sizes)
        # Without a test set: the contest evaluates for itself.
        test = Split(task.samples[:1], task.labels[:1])
        units = task.samples.shape[1]
        scale = (127.5,) * units if task.samples.dtype == torch.uint8 else None
        names = tuple(map(str, range(task.settings["classes"])))
        return Dataset(
            "work",
            Split(task.samples, task.labels, owners),
            test,
            names,
            scale or (0.0,) * units,
            scale or (1.0,) * units,
            tuple(map(str, range(task.clients))),
        )


def experiment(folder: Path, settings: dict[str, Any]) -> Experiment:
    return Experiment.parse(
        {
            "data": Stored(folder=folder),
            "partition": {"name": "natural", "validation": 0},
            "model": settings["model"],
            "method": settings["method"],
            "local": {key: settings[key] for key in ("epochs", "batch", "lr")},
            "participation": settings["cohort"] / settings["clients"],
            "rounds": ROUNDS,
            "evaluate": {"every": ROUNDS, "test_last": 0},
        }
    )
