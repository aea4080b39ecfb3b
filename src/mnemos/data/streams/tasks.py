"""Clients that learn one task, a group of classes, after the other."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from mnemos.common import rng
from mnemos.data.partition import Ints
from mnemos.data.stream import Flow, Setting, Stream, streams
from mnemos.errors import ConfigError

Table = NDArray[np.int32]
"""A table [clients, tasks] of 32-bit integers, to save memory with a million clients."""

_NEVER = np.iinfo(np.int32).max


@streams.register("tasks")
class Tasks(Stream):
    """The classes are split into T tasks, and a client holds its samples of one task at a time.

    Of R rounds, a client's tasks last d_1, …, d_{T−1} = ⌊U(1 − s, 1 + s) · R/T⌉ and d_T = R − Σ d_i, in
    random order, with s = `spread`: the setting of Shenaj et al., "Asynchronous Federated Continual
    Learning", 2023. A duration below 1, which their released code allows, becomes 1 at the cost of the
    longest ones. With s = 0, durations differ by at most one round, and are the same for all clients.

    With `advance: clock`, a client's i-th task begins in round d_1 + … + d_{i−1} + 1. A `lazy` client moves
    on only when it is selected: if its task's time is over by then, it takes the next one, and never more
    than one at a time, so a client that is seldom selected lags behind.

    A client can't be selected if it has no samples of its task, or of the next one if that is due. When the
    time of a task without samples is over, a lazy client's next one becomes due; with `empty: stay` the
    client is never selected again, as in the released code.
    """

    paced: ClassVar[bool] = True

    tasks: int = Field(10, ge=1, le=10_000)
    """Number of tasks T."""
    first: int | None = Field(
        None, ge=1, description="classes of the first task; by default, as of the others"
    )
    order: Literal["own", "same", "natural"] = Field(
        "own", description="of tasks: random for each client, random and the same for all, or as numbered"
    )
    spread: float = Field(0.3, ge=0, le=1, description="how far durations are from their mean at most")
    advance: Literal["lazy", "clock"] = Field(
        "lazy",
        description="when a client moves on: when it is selected and its time is over, or by the round",
    )
    shuffle_classes: bool = Field(False, description="cut the classes in random order, not as numbered")
    empty: Literal["skip", "stay"] = Field(
        "skip", description="what lazy clients do at a task they have no samples of when its time is over"
    )

    @property
    def follows_cohorts(self) -> tuple[str, str, str] | None:
        """Lazy clients' data do."""
        return ("advance", "lazy", "clock") if self.advance == "lazy" else None

    def open(self, setting: Setting) -> Flow:
        """Split the classes into tasks, and draw every client's order and durations."""
        self._check(setting)
        return Schedules(self, setting)

    def _check(self, setting: Setting) -> None:
        if self.tasks > setting.classes:
            raise ConfigError(
                f"found {self.tasks}; the data set has {setting.classes} classes, and every task needs one",
                "tasks",
            )
        if self.tasks > setting.rounds:
            raise ConfigError(
                f"found {self.tasks}; there are {setting.rounds} rounds, and every task lasts one at least",
                "tasks",
            )
        most = setting.classes - (self.tasks - 1)
        least = most if self.tasks == 1 else 1
        if self.first is not None and not least <= self.first <= most:
            raise ConfigError(
                f"found {self.first}; {self.tasks} task(s) of {setting.classes} classes leave "
                + (f"{most}" if least == most else f"{least} to {most}")
                + " for the first",
                "first",
            )

    def cut(self, classes: Ints) -> tuple[Ints, ...]:
        """The classes of each task."""
        if self.first is None or self.tasks == 1:
            return tuple(np.array_split(classes, self.tasks))
        return classes[: self.first], *np.array_split(classes[self.first :], self.tasks - 1)

    def orders(self, clients: int, seed: int) -> Table:
        """The order of tasks of each client."""
        natural = np.arange(self.tasks, dtype=np.int32)
        generator = rng.numpy_generator(seed, "stream.order")
        if self.order == "own":
            return generator.permuted(np.tile(natural, (clients, 1)), axis=1)
        only = natural if self.order == "natural" else generator.permutation(natural)
        return np.broadcast_to(only, (clients, self.tasks))

    def ends(self, clients: int, rounds: int, seed: int) -> Table:
        """The last round of each client's first, second, … task with `advance: clock`."""
        if not self.spread:
            only = rounds * np.arange(1, self.tasks + 1) // self.tasks
            return np.broadcast_to(only.astype(np.int32), (clients, self.tasks))
        generator = rng.numpy_generator(seed, "stream.durations")
        mean, shape = rounds / self.tasks, (clients, self.tasks - 1)
        drawn = generator.uniform(mean * (1 - self.spread), mean * (1 + self.spread), shape)
        durations = np.empty((clients, self.tasks), np.int32)
        durations[:, :-1] = np.rint(drawn)
        durations[:, -1] = rounds - durations[:, :-1].sum(axis=1)
        _level(durations)
        return np.cumsum(generator.permuted(durations, axis=1), axis=1, dtype=np.int32)


@streams.register("aligned")
class Aligned(Tasks):
    """All clients have the same task at the same time, in the order of the tasks' numbers.

    This is the setting of most work on federated class-incremental learning.
    """

    order: Literal["own", "same", "natural"] = "natural"
    spread: float = Field(0.0, ge=0, le=1)
    advance: Literal["lazy", "clock"] = "clock"


class Schedules(Flow):
    """The clients' tasks in all rounds.

    They are kept as the round in which each client reached its first, second, … task. With `advance: clock`
    these rounds are known beforehand. Those of lazy clients depend on earlier cohorts: rounds are replayed
    one after the other, up to the last one that is needed.
    """

    def __init__(self, options: Tasks, setting: Setting) -> None:
        super().__init__(setting)
        clients, seed = self.assignment.clients, setting.seed
        classes = np.arange(setting.classes)
        if options.shuffle_classes:
            classes = rng.numpy_generator(seed, "stream.classes").permutation(classes)
        self._tasks = options.cut(classes)
        self._task_of = np.empty(setting.classes, np.int64)
        for task, members in enumerate(self._tasks):
            self._task_of[members] = task
        self._order = options.orders(clients, seed)
        self._ends = options.ends(clients, setting.rounds, seed)
        self._lazy, self._skips = options.advance == "lazy", options.empty == "skip"
        self._arrived = self._timetable()
        self._discovered = np.full(options.tasks, _NEVER, np.int64)
        self._replayed = 0

    def _timetable(self) -> Table:
        arrived = np.full(self._ends.shape, _NEVER, np.int32)
        if not self._lazy:
            arrived[:, 1:] = self._ends[:, :-1] + 1
        arrived[:, 0] = 0
        return arrived

    @cached_property
    def _held(self) -> Table:
        """The number of samples of each client's first, second, … task."""
        samples, owners = self.assignment.training()
        clients, tasks = self._order.shape
        cells = owners * tasks + self._task_of[self.setting.labels[samples]]
        table = np.bincount(cells, minlength=clients * tasks).astype(np.int32).reshape(clients, tasks)
        return np.take_along_axis(table, self._order.astype(np.int64), axis=1)

    @cached_property
    def _complete(self) -> bool:
        """Whether all clients have samples of every task."""
        return bool(self._held.min() > 0)

    @property
    def tasks(self) -> tuple[Ints, ...]:
        """The classes of each task."""
        return self._tasks

    def samples(self, client: int, round: int) -> Ints:
        """The client's training samples that belong to its task."""
        return self.of_task(client, self.task(client, round))

    def of_task(self, client: int, task: int) -> Ints:
        """The client's training samples that belong to a task."""
        own = self.assignment.train(client)
        held: Ints = own[self._task_of[self.setting.labels[own]] == task]
        return held

    def loads(self) -> Ints:
        """The number of samples of each of a client's tasks."""
        return self._held.astype(np.int64)

    def counts(self, round: int) -> Ints:
        """The counts of all clients in one pass."""
        samples, owners = self.assignment.training()
        clients = np.arange(self.assignment.clients)
        present = self._order[clients, self._positions(clients, round)]
        held = self._task_of[self.setting.labels[samples]] == present[owners]
        return self._counted(samples[held], owners[held])

    def eligible(self, round: int) -> Ints | int:
        """The clients with samples of the task that they would have if they were selected."""
        if self._complete:
            return self.assignment.clients
        clients = np.arange(self.assignment.clients)
        return np.flatnonzero(self._held[clients, self._due(clients, round)])

    def task(self, client: int, round: int) -> int:
        """The client's task; of a lazy client that isn't selected, the one that it still has."""
        return int(self._order[client, self._positions(np.array([client]), round)[0]])

    def reached(self, client: int, round: int) -> Ints:
        """All tasks up to the client's present one, in its order."""
        return self._order[client, : self._positions(np.array([client]), round)[0] + 1].astype(np.int64)

    @cached_property
    def if_asked(self) -> Flow:
        """With the task that is due; by the clock, clients have that whether they are asked or not."""
        return _IfAsked(self) if self._lazy else self

    def reached_if_asked(self, client: int, round: int) -> Ints:
        """All tasks up to the one that the client has if it is asked in a round, in its order."""
        return self._order[client, : self._due(np.array([client]), round)[0] + 1].astype(np.int64)

    def discovered(self, round: int) -> Ints:
        """The discovered tasks in the order of their numbers."""
        self._replay(round)
        return np.flatnonzero(self._discovered <= round)

    def timeline(self, clients: Ints | None = None) -> Ints:
        """The tasks in every round, from the rounds in which clients reach them."""
        self._follow(self.setting.rounds)
        rows = slice(None) if clients is None else clients
        arrived, rounds = self._arrived[rows], np.arange(1, self.setting.rounds + 1)
        positions = sum((later[:, None] <= rounds).astype(np.int64) for later in arrived.T[1:])
        positions = np.zeros((len(arrived), len(rounds)), np.int64) + positions
        return np.take_along_axis(self._order[rows].astype(np.int64), positions, axis=1)

    def _positions(self, clients: Ints, round: int) -> Ints:
        """The clients' positions in their orders of tasks after a round."""
        self._follow(round)
        passed: Ints = np.count_nonzero(self._arrived[clients] <= round, axis=1)
        return passed - 1

    def _due(self, clients: Ints, round: int) -> Ints:
        """The clients' positions in their orders of tasks in a round if they are selected in it."""
        if not self._lazy:
            return self._positions(clients, round)
        positions, last = self._positions(clients, round - 1), self._order.shape[1] - 1
        positions += (round > self._ends[clients, positions]) & (positions < last)
        while self._skips and not self._complete:
            over = (self._held[clients, positions] == 0) & (round > self._ends[clients, positions])
            over &= positions < last
            if not over.any():
                break
            positions += over
        return positions

    def _follow(self, round: int) -> None:
        """Replay the cohorts up to a round, if the clients' tasks depend on them."""
        if self._lazy:
            self._replay(round)

    def _replay(self, until: int) -> None:
        """Move the selected clients on, and note discovered tasks, in all rounds up to `until`."""
        steps = np.arange(self._order.shape[1])
        for round in range(self._replayed + 1, until + 1):
            cohort = self.cohort(round)
            positions = self._due(cohort, round)
            tasks = self._order[cohort, positions]
            self._discovered[tasks] = np.minimum(self._discovered[tasks], round)
            if self._lazy:
                arrived = self._arrived[cohort]
                arrived[(steps <= positions[:, None]) & (arrived > round)] = round
                self._arrived[cohort] = arrived
            self._replayed = round


class _IfAsked(Flow):
    """The tasks of lazy clients in rounds in which they are asked.

    Clients of a round's cohort have moved on already. A substitute, which is asked because others have
    failed, takes the task that is due, as one does that is selected. The schedule doesn't note it: it depends
    on the cohorts that are drawn, and not on failures, so that it is known without training. The next
    time the client is asked, its task is this one or a later one: what is due never goes back.
    """

    def __init__(self, schedules: Schedules) -> None:
        super().__init__(schedules.setting)
        self._schedules = schedules

    @property
    def tasks(self) -> tuple[Ints, ...]:
        """The classes of each task."""
        return self._schedules.tasks

    def samples(self, client: int, round: int) -> Ints:
        """The client's training samples that belong to the task that is due."""
        return self._schedules.of_task(client, self.task(client, round))

    def task(self, client: int, round: int) -> int:
        """The task that is due."""
        return int(self.reached(client, round)[-1])

    def reached(self, client: int, round: int) -> Ints:
        """All tasks up to the one that is due."""
        return self._schedules.reached_if_asked(client, round)


def _level(durations: Table) -> None:
    """Move rounds, one by one, from a row's longest duration to one below 1, in place."""
    rows = np.flatnonzero(durations.min(axis=1) < 1)
    while len(rows):
        durations[rows, durations[rows].argmin(axis=1)] += 1
        durations[rows, durations[rows].argmax(axis=1)] -= 1
        rows = rows[durations[rows].min(axis=1) < 1]
