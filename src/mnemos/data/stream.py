"""Which samples a client holds in a round: the common ground of all streams.

A `Stream` has options only. Opened for an experiment's `Setting` it is a `Flow`, whose answers are pure
functions of the setting, the client and the round: what a flow keeps in memory can be worked out anew.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mnemos.data.partition import Assignment, Ints
from mnemos.registry import Part, Registry

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Setting:
    """What a stream is opened for."""

    assignment: Assignment
    labels: Ints
    """Of all training samples."""
    classes: int
    rounds: int
    seed: int
    choose: Callable[[Ints | int, int], Ints]
    """The cohort of a round, of those who are eligible (an array, or the number of clients)."""


class Flow(ABC):
    """The samples, and the tasks if there are any, of all clients in all rounds; rounds count from 1."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.assignment = setting.assignment

    @abstractmethod
    def samples(self, client: int, round: int) -> Ints:
        """Indices of the client's training samples in a round; if there are none, it sits the round out."""

    def loads(self) -> Ints:
        """How many samples clients have to train on at a time [clients, n]: n numbers for each."""
        return self.assignment.train_sizes()[:, None]

    @cached_property
    def _holders(self) -> Ints | int:
        sizes = self.assignment.train_sizes()
        return self.assignment.clients if sizes.min() > 0 else np.flatnonzero(sizes)

    def eligible(self, round: int) -> Ints | int:
        """Who can be selected in a round: an array, or the number of clients if all of them can."""
        return self._holders

    def cohort(self, round: int) -> Ints:
        """Who is selected in a round."""
        return self.setting.choose(self.eligible(round), round)

    def counts(self, round: int) -> Ints:
        """How many training samples of each class each client has in a round [clients, classes]."""
        runs = [self.samples(client, round) for client in range(self.assignment.clients)]
        return self._counted(np.concatenate(runs), np.repeat(np.arange(len(runs)), list(map(len, runs))))

    def _counted(self, samples: Ints, owners: Ints) -> Ints:
        """How many samples of each class each client has, from samples and whose they are."""
        clients, classes = self.assignment.clients, self.setting.classes
        cells = owners * classes + self.setting.labels[samples]
        return np.bincount(cells, minlength=clients * classes).reshape(clients, classes)

    # What follows is about tasks: of a flow that has none, it speaks of none.

    @property
    def tasks(self) -> tuple[Ints, ...]:
        """The classes of each task."""
        return ()

    def task(self, client: int, round: int) -> int | None:
        """The client's task in a round: a place among `tasks`."""
        return None

    def reached(self, client: int, round: int) -> Ints:
        """The tasks that the client has reached so far, the present one included, in its own order."""
        return np.zeros(0, np.int64)

    def discovered(self, round: int) -> Ints:
        """The tasks that somebody who was selected has trained on up to and including a round."""
        return np.zeros(0, np.int64)

    def timeline(self, clients: Ints | None = None) -> Ints:
        """Every client's task, or that of some clients, in every round [clients, rounds]; −1: none."""
        count = self.assignment.clients if clients is None else len(clients)
        return np.full((count, self.setting.rounds), -1)

    def met(self, client: int, round: int) -> Bools:
        """Which classes belong to tasks that the client has reached so far [classes]; all without tasks."""
        met = np.full(self.setting.classes, not self.tasks)
        for task in self.reached(client, round):
            met[self.tasks[task]] = True
        return met

    def present(self, client: int, round: int) -> Bools:
        """Which classes belong to the task that the client is in [classes]; none without tasks."""
        present = np.zeros(self.setting.classes, bool)
        task = self.task(client, round)
        if task is not None:
            present[self.tasks[task]] = True
        return present


class Stream(Part):
    """How clients' data changes over time."""

    paced: ClassVar[bool] = False
    """Whether it goes by how many rounds there are: such a run can't be made longer."""

    @abstractmethod
    def open(self, setting: Setting) -> Flow:
        """The stream of one experiment; refuses numbers that don't fit it."""


streams: Registry[Stream] = Registry("stream", Stream, "mnemos.data.streams")
