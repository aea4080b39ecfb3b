"""A federation whose samples are with their owners: clients remember and evaluate there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mnemos.clocks.asynchronous import Asynchronous
from mnemos.clocks.clock import Synchronous
from mnemos.data.dataset import Dataset, Split
from mnemos.data.partition import Ints
from mnemos.data.partitions.natural import Natural
from mnemos.data.sources.elsewhere import Elsewhere
from mnemos.data.streams.drift import Drift
from mnemos.engines.engine import Runner
from mnemos.engines.flower import OLDEST, ROUND, Flower, FlowerRunner
from mnemos.errors import ConfigError
from mnemos.experiment import Experiment
from mnemos.measures.counting import Counts, Groups
from mnemos.measures.measure import Told
from mnemos.message import Tally, Task
from mnemos.methods.exchange import Server, State
from mnemos.methods.method import Method
from mnemos.models.mixed import Mixed
from mnemos.rounds.groups import Group
from mnemos.rounds.states import Shelves


class Remote(Group):
    """A group of owners; the server knows of each in which round it has last counted, and no more."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.example = {ROUND: torch.zeros(())}

    def reach(self, runner: FlowerRunner) -> None:
        """Evaluate models over this runner from now on."""
        self.evaluator.close()
        self.evaluator = RemoteEvaluator(runner, self.dataset)

    def tasks(
        self,
        number: int,
        clients: Ints,
        server: Server,
        states: Shelves,
        runner: Runner,
        steps: Mapping[int, int] = MappingProxyType({}),
    ) -> Iterator[Task]:
        """Without what a client remembers before its first round: it knows that itself."""
        oldest = torch.tensor(float(states.oldest))
        for task in super().tasks(number, clients, server, states, runner, steps):
            yield replace(task, state={**task.state, OLDEST: oldest} if ROUND in task.state else {})

    def _remembered(self, state: State, buffers: Tensor) -> State:
        return state


class RemoteEvaluator:
    """Asks owners how a model does on their samples."""

    def __init__(self, runner: FlowerRunner, dataset: Dataset) -> None:
        self._runner, self._dataset = runner, dataset

    def __call__(self, model: Tensor, buffers: Tensor, split: Split, indices: Tensor | None = None) -> Told:
        """What they say, in the order of the samples, which is that of their owners."""
        assert split.owners is not None
        owners = (split.owners if indices is None else split.owners[indices]).numpy()
        test = split is self._dataset.test
        assert test or indices is not None  # by which owners find their own
        samples = {}
        for client in np.unique(owners).tolist():
            count = int(np.count_nonzero(owners == client))
            own = torch.arange(count) if indices is None else indices[torch.from_numpy(owners == client)]
            samples[client] = own
        examine = partial(self._runner.examine, model, buffers, "test" if test else "train", samples)
        found = examine()
        right, losses = (torch.full((len(owners),), float("nan"), dtype=torch.float64) for _ in range(2))
        for client, tally in found.items():
            where = torch.from_numpy(np.flatnonzero(owners == client))
            right[where] = (torch.arange(len(where)) < tally.hits).double()
            losses[where] = tally.loss / max(tally.samples, 1)
        return Told.of(right, losses, len(self._dataset.classes), _Owners(examine))

    def close(self) -> None:
        """There is nothing to let go of."""


class _Owners:
    """Those whose samples a model was evaluated on, to be asked more of it."""

    def __init__(self, examine: Callable[..., dict[int, Tally]]) -> None:
        """`examine`: asks them of the model; takes what is to be counted."""
        self._examine = examine

    def counts(self, groups: Groups) -> Counts:
        """How often it is right, by groups of classes."""
        found = (tally.counts for tally in self._examine(groups=groups).values())
        return Counts.sum([counts for counts in found if counts is not None], groups)

    def personalised(self, known: Callable[[int], Ints]) -> dict[int, int]:
        """How often it is right at each client, corrected for the labels of these training samples of its."""
        found = self._examine(known=known)
        return {client: tally.corrected for client, tally in found.items() if tally.corrected is not None}


def check_remote(experiment: Experiment) -> None:
    """Refuse what can't be done with data that is elsewhere; and clients elsewhere without such data."""
    if not isinstance(experiment.data, Elsewhere):
        if isinstance(experiment.engine, Flower):
            raise ConfigError(
                "found flower, which is for data that stays with its owners: see 'mnemos federate serve'",
                "engine",
            )
        return
    partition, clock = experiment.partition, experiment.clock
    known = isinstance(partition, Natural) and partition.clients == 0 and partition.min_samples == 1
    measure = next((type(one).name for one in experiment.measures if not one.remote), None)
    sentences = (
        (
            not isinstance(experiment.engine, Flower),
            "engine",
            f"found {type(experiment.engine).name}, and the data is with its owners; allowed: flower",
        ),
        (not known, "partition", "each owner is a client: it takes natural, with all of them"),
        (isinstance(experiment.model, Mixed), "model", "found mixed; owners share one model"),
        (
            isinstance(clock, Asynchronous),
            "clock",
            "found an asynchronous one, which is a simulation's; a federation goes round by round",
        ),
        (
            isinstance(clock, Synchronous) and (clock.deadline is not None or clock.over_selection > 0),
            "clock",
            "found a deadline or over-selection in simulated time; a federation's are those of engine",
        ),
        (bool(experiment.faults), "faults", "found some, which are a simulation's"),
        (
            isinstance(experiment.stream, Drift),
            "stream",
            "found drift, which is a simulation's: real data changes by itself",
        ),
        (
            type(experiment.method).arrange is not Method.arrange,
            "method",
            f"found {experiment.method.name}, which takes everybody's samples",
        ),
        (experiment.method.meta is not None, "method.meta", "the server of a federation holds no samples"),
        (
            measure is not None,
            "measures",
            f"found {measure}, which goes by single labels or answers; these stay with the owners",
        ),
    )
    engine = experiment.engine
    if isinstance(engine, Flower) and engine.deadline is not None and not experiment.method.partial:
        raise ConfigError(
            f"found {engine.deadline:g}, and {experiment.method.name}'s clients have to be through; allowed "
            "with the server step fednova or the term proximal",
            "engine.deadline",
        )
    for wrong, field, sentence in sentences:
        if wrong:
            raise ConfigError(sentence, field)
