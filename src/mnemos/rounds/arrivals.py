"""What comes back in a round: from clients that trained, and from those that only pretend; and what not."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from mnemos.client import rates, ration
from mnemos.data.dataset import Dataset
from mnemos.engines.engine import Lost, Runner
from mnemos.experiment import Experiment
from mnemos.faults.fault import Pretence, Tampering
from mnemos.faults.free_riders import pretended
from mnemos.message import Task
from mnemos.methods.exchange import Cohort, Server, State, Update
from mnemos.screens.sound import Asked, Form, measurable
from mnemos.vector import Layout

Check = Callable[[Update, Layout], str | None]
"""Looks at one update before it touches the aggregate: the reason to put it aside, or None."""

DROPPED, REJECTED = "dropped", "rejected"
"""How the names of records begin: of clients that weren't heard of, and of updates that were put aside."""


def dropped(reason: str | None) -> str:
    """The name of the record of a client that wasn't heard of."""
    return DROPPED if reason is None else f"{DROPPED}: {reason}"


def rejected(reason: str) -> str:
    """The name of the record of an update that was put aside."""
    return f"{REJECTED}: {reason}"


class Conditions(NamedTuple):
    """Under which a cohort trains."""

    attempt: int = 0
    """How often the round was tried before."""
    late: Mapping[int, str] = MappingProxyType({})
    """Clients that will be too late, and why."""
    steps: Mapping[int, int] = MappingProxyType({})
    """Clients that have to stop early, and after how many steps."""


class Arrival(NamedTuple):
    """A client of the round, heard of or not."""

    client: int
    update: Update | None = None
    """None: the client has vanished."""
    trained: bool = True
    reason: str | None = None
    """Why it is put aside, or was lost, as far as that is known."""


def vanishes(experiment: Experiment, client: int, round: int, attempt: int = 0) -> bool:
    """Whether nothing will be heard of a client in an attempt at a round."""
    return any(fault.vanishes(client, round, experiment.seed, attempt) for fault in experiment.faults)


_ORDINARY = Conditions()


class Arrivals:
    """Lets clients train, or go wrong as the experiment's faults say, and screens what they send."""

    def __init__(self, experiment: Experiment, dataset: Dataset, layout: Layout, population: int) -> None:
        self._experiment, self._dataset, self._layout = experiment, dataset, layout
        beside = {**experiment.method.sends(layout), **experiment.privacy.sends}
        self._form = Form(layout.zeros(), torch.zeros(layout.buffer_size), beside)
        self._pretenders: dict[int, Pretence] = {
            client: fault
            for fault in experiment.faults
            if isinstance(fault, Pretence)
            for client in fault.pretenders(population, experiment.seed).tolist()
        }
        self._tamperers: dict[int, Tampering] = {
            client: fault
            for fault in experiment.faults
            if isinstance(fault, Tampering)
            for client in fault.tamperers(population, experiment.seed).tolist()
        }

    def of(
        self,
        runner: Runner,
        tasks: Iterable[Task],
        server: Server,
        last: Tensor,
        memory: State,
        checks: tuple[Check, ...],
        conditions: Conditions = _ORDINARY,
    ) -> Iterator[Arrival]:
        """The round's clients, in the order of the tasks.

        `last` is the change that led to the model sent, `memory` what bad clients and screens remember, to
        which they add.
        """
        arriving = (
            self._checked(task, self._tampered(one, memory), checks)
            for task, one in self._arriving(runner, tasks, last, conditions)
        )
        if not self._experiment.screens:
            yield from arriving
            return
        arrived = list(arriving)  # screens compare
        sound = tuple(one.update for one in arrived if one.update is not None and one.reason is None)
        reasons: dict[int, str] = {}
        if sound:
            cohort = Cohort(server.model, server.buffers, sound, self._layout)
            for screen in self._experiment.screens:
                reasons = screen.judge(cohort, last, memory) | reasons
            accepted = replace(cohort, updates=tuple(one for one in sound if one.client not in reasons))
            for screen in self._experiment.screens:
                memory |= screen.remember(accepted, memory)
        for one in arrived:
            yield one._replace(reason=one.reason or reasons.get(one.client))

    def relabel(self, client: int) -> Tensor | None:
        """Which class a client takes each class for; None: it knows its labels."""
        fault = self._tamperers.get(client)
        return None if fault is None else fault.relabel(len(self._dataset.classes))

    def _tampered(self, one: Arrival, memory: State) -> Arrival:
        """What a client sends that has trained, and is up to something."""
        fault = self._tamperers.get(one.client)
        if fault is None or one.update is None or not one.trained:
            return one
        return one._replace(update=fault.tamper(one.update, memory))

    def _checked(self, task: Task, one: Arrival, checks: tuple[Check, ...]) -> Arrival:
        """What is wrong with one update by itself; what checks see has the form of one."""
        if one.update is None:
            return one
        reason = self._form.flaw(one.update, Asked.by(task), trained=one.trained)
        if reason is None:
            whole = partial(rates, task, ration(task, batch_norm=False))
            if not (
                measurable(one.update.buffers, self._layout)
                and task.plan.method.plausible(one.update, task.plan.local, whole)
            ):
                reason = "not plausible"
        if reason is None:
            reasons = (check(one.update, self._layout) for check in checks)
            reason = next(filter(None, reasons), None)
        return one._replace(reason=reason)

    def _arriving(
        self, runner: Runner, tasks: Iterable[Task], last: Tensor, conditions: Conditions
    ) -> Iterator[tuple[Task, Arrival]]:
        waiting: deque[tuple[Task, Arrival | None]] = deque()  # in order; None of those who train

        def training() -> Iterator[Task]:
            for task in tasks:
                instead = self._instead(task, last, conditions)
                waiting.append((task, instead))
                if instead is None:
                    yield task

        for heard in runner.run(training()):
            task, instead = waiting.popleft()
            while instead is not None:
                yield task, instead
                task, instead = waiting.popleft()
            if isinstance(heard, Lost):
                yield task, Arrival(task.client, reason=heard.reason)
            else:
                yield task, Arrival(task.client, heard)
        yield from ((task, instead) for task, instead in waiting if instead is not None)

    def _instead(self, task: Task, last: Tensor, conditions: Conditions) -> Arrival | None:
        """What a client does instead of training; None: it trains."""
        if vanishes(self._experiment, task.client, task.round, conditions.attempt):
            return Arrival(task.client)
        if task.client in conditions.late:
            return Arrival(task.client, reason=conditions.late[task.client])
        fault = self._pretenders.get(task.client)
        if fault is None:
            return None
        delta = fault.pretend(task, last)
        return Arrival(task.client, pretended(task, delta, self._dataset, self._layout), trained=False)
