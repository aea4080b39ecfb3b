"""Which samples a client holds in a round: the interface of streams.

A `Stream` has options only. Opened for an experiment's `Setting` it is a `Flow`, whose results are pure
functions of the setting, the client and the round: what a flow keeps in memory can be computed again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mnemos.common.registry import Part, Registry
from mnemos.data.partition import Assignment, Ints

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Setting:
    """The experiment that a stream is opened for."""

    assignment: Assignment
    labels: Ints
    """The labels of all training samples."""
    classes: int
    rounds: int
    seed: int
    choose: Callable[[Ints | int, int], Ints]
    """The cohort of a round, from the eligible clients (an array, or their number) and the round."""


class Flow(ABC):
    """The samples, and the tasks if there are any, of all clients in all rounds; rounds count from 1."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.assignment = setting.assignment

    @abstractmethod
    def samples(self, client: int, round: int) -> Ints:
        """Indices of the client's training samples in a round; without any, it can't be selected."""

    def samples_of(self, clients: Ints, round: int) -> tuple[Ints, Ints]:
        """(`samples` of some clients, laid end to end; how many each has)."""
        runs = [self.samples(client, round) for client in clients.tolist()]
        return np.concatenate([np.zeros(0, np.int64), *runs]), np.array([*map(len, runs)], np.int64)

    def loads(self) -> Ints:
        """The sizes of each client's training sets over time [clients, n], such as those of its n tasks."""
        return self.assignment.train_sizes()[:, None]

    @cached_property
    def _holders(self) -> Ints | int:
        sizes = self.assignment.train_sizes()
        return self.assignment.clients if sizes.min() > 0 else np.flatnonzero(sizes)

    def eligible(self, round: int) -> Ints | int:
        """The clients that can be selected in a round: an array, or the number of clients if all can."""
        return self._holders

    def cohort(self, round: int) -> Ints:
        """The clients that are selected in a round."""
        return self.setting.choose(self.eligible(round), round)

    def counts(self, round: int) -> Ints:
        """The number of training samples of each class at each client in a round [clients, classes]."""
        runs = [self.samples(client, round) for client in range(self.assignment.clients)]
        return self._counted(np.concatenate(runs), np.repeat(np.arange(len(runs)), list(map(len, runs))))

    def _counted(self, samples: Ints, owners: Ints) -> Ints:
        """The number of samples of each class at each client, from samples and their clients."""
        clients, classes = self.assignment.clients, self.setting.classes
        cells = owners * classes + self.setting.labels[samples]
        return np.bincount(cells, minlength=clients * classes).reshape(clients, classes)

    @property
    def if_asked(self) -> Flow:
        """What a client holds in a round if it is asked to train, as one of its cohort or as a substitute.

        It differs from the flow itself where clients move on when they are selected.
        """
        return self

    # The following methods are about tasks; these are the results of a flow without tasks.

    @property
    def tasks(self) -> tuple[Ints, ...]:
        """The classes of each task."""
        return ()

    def task(self, client: int, round: int) -> int | None:
        """The client's task in a round, as an index into `tasks`; None without tasks."""
        return None

    def reached(self, client: int, round: int) -> Ints:
        """The tasks that the client has reached so far, the present one included, in its own order."""
        return np.zeros(0, np.int64)

    def discovered(self, round: int) -> Ints:
        """The tasks that selected clients have trained on up to and including a round."""
        return np.zeros(0, np.int64)

    def timeline(self, clients: Ints | None = None) -> Ints:
        """The task of all clients, or of some, in every round [clients, rounds]; −1: none."""
        count = self.assignment.clients if clients is None else len(clients)
        return np.full((count, self.setting.rounds), -1)

    def met(self, client: int, round: int) -> Bools:
        """Which classes belong to tasks that the client has reached so far [classes]; all without tasks."""
        if not self.tasks:
            return self._all
        met = np.zeros(self.setting.classes, bool)
        for task in self.reached(client, round):
            met[self.tasks[task]] = True
        return met

    def present(self, client: int, round: int) -> Bools:
        """Which classes belong to the client's task in a round [classes]; none without tasks."""
        task = self.task(client, round)
        if task is None:
            return self._none
        present = np.zeros(self.setting.classes, bool)
        present[self.tasks[task]] = True
        return present

    @cached_property
    def _all(self) -> Bools:
        return np.ones(self.setting.classes, bool)

    @cached_property
    def _none(self) -> Bools:
        return np.zeros(self.setting.classes, bool)


class Stream(Part):
    """How clients' data changes over time."""

    paced: ClassVar[bool] = False
    """Whether it depends on the number of rounds: such a run can't be made longer."""
    simulated: ClassVar[bool] = False
    """Whether it makes data change that doesn't change by itself."""

    @property
    def follows_cohorts(self) -> tuple[str, str, str] | None:
        """(option, its value, other values) by which clients' data depend on who was selected before."""
        return None

    @abstractmethod
    def open(self, setting: Setting) -> Flow:
        """The flow of one experiment; refuses options that don't fit it."""


streams: Registry[Stream] = Registry("stream", Stream, "mnemos.data.streams")
