"""One engine for clients with different models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby

from mnemos.data.dataset import Dataset
from mnemos.engines.auto import Auto
from mnemos.engines.engine import Engine, Lost, Runner, Work
from mnemos.engines.threads import one_by_one
from mnemos.message import Plan, Task
from mnemos.methods.exchange import Update


def open_each(engine: Engine, plans: Sequence[Plan], dataset: Dataset, work: Work) -> Runner:
    """A runner for tasks with any of these plans, which differ in their models alone."""
    plans = [plan for place, plan in enumerate(plans) if plan not in plans[:place]]
    if len(plans) == 1 or engine.any_plan:
        return engine.open(plans[0], dataset, work)
    why = ""
    if isinstance(engine, Auto):
        # Bits must be the same for all: there is no one choice that could be timed for several models.
        engine = one_by_one(work, engine.exact)
        why = "clients with different models train one by one, unless another engine is asked for"
    with ExitStack() as opened:  # what is open is closed again if a later one can't be
        runners = [opened.enter_context(engine.open(plan, dataset, work)) for plan in plans]
        return SeveralRunner(runners, opened.pop_all(), why)


class SeveralRunner(Runner):
    """A runner a model; each task goes to that of its own."""

    def __init__(self, runners: list[Runner], opened: ExitStack, why: str) -> None:
        super().__init__(runners[0].engine, runners[0].plan)
        self.why = why or runners[0].why
        self._runners, self._opened = runners, opened

    def run(self, cohort: Iterable[Task]) -> Iterator[Update | Lost]:
        """The updates of a cohort; those with one model go through together as long as none is in between."""
        for which, tasks in groupby(cohort, self._which):
            yield from self._runners[which].run(tasks)

    def close(self) -> None:
        """Close them all."""
        self._opened.close()

    def _which(self, task: Task) -> int:
        return next(n for n, runner in enumerate(self._runners) if runner.plan.model == task.plan.model)
