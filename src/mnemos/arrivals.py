"""What comes back in a round: from clients that trained, and from those that only pretend; and what not."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from torch import Tensor

from mnemos.data.dataset import Dataset
from mnemos.engines.engine import Lost, Runner
from mnemos.experiment import Experiment
from mnemos.faults import Pretence, pretended
from mnemos.message import Task
from mnemos.methods.exchange import Cohort, Update
from mnemos.vector import Layout

Check = Callable[[Update, Layout], str | None]
"""Looks at one update before it touches the aggregate: the reason to put it aside, or None."""


class Arrival(NamedTuple):
    """A client of the round, heard of or not."""

    client: int
    update: Update | None = None
    """None: the client has vanished."""
    trained: bool = True
    reason: str | None = None
    """Why it is put aside, or was lost, as far as that is known."""


class Arrivals:
    """Lets clients train, or go wrong as the experiment's faults say, and screens what they send."""

    def __init__(self, experiment: Experiment, dataset: Dataset, layout: Layout, population: int) -> None:
        self._experiment, self._dataset, self._layout = experiment, dataset, layout
        self._pretenders: dict[int, Pretence] = {
            client: fault
            for fault in experiment.faults
            if isinstance(fault, Pretence)
            for client in fault.pretenders(population, experiment.seed).tolist()
        }

    def of(
        self,
        runner: Runner,
        tasks: Iterable[Task],
        start: Tensor,
        last: Tensor,
        checks: tuple[Check, ...],
    ) -> Iterator[Arrival]:
        """The round's clients, in the order of the tasks; `last` is the change that led to the model sent."""
        arriving = self._checked(self._arriving(runner, tasks, last), checks)
        if not self._experiment.screens:
            yield from arriving
            return
        arrived = list(arriving)  # screens compare
        sound = tuple(one.update for one in arrived if one.update is not None and one.reason is None)
        reasons: dict[int, str] = {}
        if sound:
            cohort = Cohort(start, sound, self._layout)
            for screen in self._experiment.screens:
                reasons = screen.judge(cohort, last) | reasons
        for one in arrived:
            yield one._replace(reason=one.reason or reasons.get(one.client))

    def vanishes(self, task: Task) -> bool:
        """Whether nothing will be heard of a client."""
        seed = self._experiment.seed
        return any(fault.vanishes(task.client, task.round, seed) for fault in self._experiment.faults)

    def _checked(self, arriving: Iterable[Arrival], checks: tuple[Check, ...]) -> Iterator[Arrival]:
        for one in arriving:
            if one.update is None:
                yield one
            else:
                reasons = (check(one.update, self._layout) for check in checks)
                yield one._replace(reason=next(filter(None, reasons), None))

    def _arriving(self, runner: Runner, tasks: Iterable[Task], last: Tensor) -> Iterator[Arrival]:
        waiting: deque[Arrival | None] = deque()  # in order; None of those who train

        def training() -> Iterator[Task]:
            for task in tasks:
                instead = self._instead(task, last)
                waiting.append(instead)
                if instead is None:
                    yield task

        for heard in runner.run(training()):
            while (instead := waiting.popleft()) is not None:
                yield instead
            if isinstance(heard, Lost):
                yield Arrival(heard.client, reason=heard.reason)
            else:
                yield Arrival(heard.client, heard)
        yield from filter(None, waiting)

    def _instead(self, task: Task, last: Tensor) -> Arrival | None:
        """What a client does instead of training; None: it trains."""
        if self.vanishes(task):
            return Arrival(task.client)
        fault = self._pretenders.get(task.client)
        if fault is None:
            return None
        delta = fault.pretend(task, last)
        return Arrival(task.client, pretended(task, delta, self._dataset, self._layout), trained=False)
