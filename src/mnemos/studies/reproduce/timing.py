"""How long recipes take on this machine, from timing one experiment for each model and kind of image.

Timing every cell of all recipes would take an hour. Cells differ in many settings that hardly matter for the
time: loss, norm, optimiser, learning rate, how labels are distributed. The settings that do matter are
counted: rounds, clients in a round, and their steps.
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from pathlib import Path

from mnemos.data.dataset import Dataset, Source
from mnemos.data.download import OFFLINE
from mnemos.data.load import load
from mnemos.data.partitions.whole import Whole
from mnemos.errors import DataError
from mnemos.experiment.experiment import Experiment
from mnemos.methods.presets.centralised import Centralised
from mnemos.models.resnet import ResNet
from mnemos.optim.local import round_steps
from mnemos.studies.estimate import environment, estimate

_ALIKE = {
    "method": "fedavg",
    "partition": {"name": "dirichlet", "clients": 100, "alpha": 0.1, "validation": 0.1},
    "participation": 0.1,
    "local.epochs": 3,
    "local.steps": None,
    "local.lr": 0.01,
    "local.optimizer": "sgd",
    "local.optimizer_state": "fresh",
    "local.schedule": "constant",
    "rounds": 100,
    "evaluate": {"every": 50, "test_last": 0},
    "measures": [],
    "seed": 0,
}
"""Settings that all timed experiments have in common."""


class Timing:
    """Seconds that experiments take; experiments whose steps take the same time are timed once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._data: dict[Source, Dataset | None] = {}
        self._step: dict[str, float | None] = {}

    def seconds(self, experiment: Experiment, cores: int) -> float | None:
        """About how many seconds a run with `cores` cores takes; None if its data isn't on this machine."""
        if experiment.data not in self._data:
            self._data[experiment.data] = _load_offline(experiment.data)
        dataset = self._data[experiment.data]
        if dataset is None:
            return None
        norm = {"model.norm": "group"} if isinstance(experiment.model, ResNet) else {}
        timed = experiment.override({**_ALIKE, **norm})
        key = json.dumps([cores, dataset.shape, timed.model.dump(), timed.local.batch])
        if key not in self._step:
            seconds = estimate(timed, self._folder, cores=cores)
            self._step[key] = None if seconds is None else seconds / _steps(timed, dataset)
        step = self._step[key]
        return None if step is None else step * _steps(experiment, dataset)


def _load_offline(source: Source) -> Dataset | None:
    """Load a data set that is on this machine; None for any other, because a list must not download data."""
    with environment({OFFLINE: "1"}), suppress(DataError):
        return load(source)
    return None


def _steps(experiment: Experiment, dataset: Dataset) -> float:
    """The number of local steps of all clients in all rounds."""
    partition, local, method = experiment.partition, experiment.local, experiment.method
    learners = max(1, math.floor(experiment.participation * partition.clients + 1e-9))
    samples = len(dataset.train)
    if isinstance(method, Centralised) and method.budget == "client":
        learners = 1
    elif not isinstance(partition, Whole):
        samples //= getattr(partition, "population", partition.clients)
    epoch = math.ceil(samples * (1 - partition.validation) / local.batch)
    return experiment.rounds * learners * round_steps(local.steps, local.epochs, epoch)
