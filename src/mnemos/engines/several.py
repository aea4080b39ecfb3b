"""Running an engine for clients with different models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby

from mnemos.client.messages import Plan, TrainRequest
from mnemos.data.dataset import Dataset
from mnemos.engines.auto import Auto
from mnemos.engines.engine import Engine, InBlocks, Lost, Runner, Work, in_blocks
from mnemos.engines.threads import one_by_one
from mnemos.methods.exchange import TrainReply
from mnemos.methods.replies import TrainReplies


def open_each(engine: Engine, plans: Sequence[Plan], dataset: Dataset, work: Work) -> Runner:
    """A runner for requests with any of these plans, which differ in their models alone."""
    plans = [plan for index, plan in enumerate(plans) if plan not in plans[:index]]
    if len(plans) == 1 or engine.any_plan:
        return engine.open(plans[0], dataset, work)
    why = ""
    if isinstance(engine, Auto):
        # All models must be trained with the same engine, and `auto` can time one model only.
        engine = one_by_one(work, engine)
        why = "clients with different models train one by one, unless another engine is asked for"
    with ExitStack() as opened:  # closes the runners that are open if a later one can't be opened
        runners = [opened.enter_context(engine.open(plan, dataset, work)) for plan in plans]
        return SeveralRunner(runners, opened.pop_all(), why)


class SeveralRunner(Runner):
    """A runner for each model; requests go to the runner of their model."""

    def __init__(self, runners: list[Runner], opened: ExitStack, why: str) -> None:
        super().__init__(runners[0].engine, runners[0].plan)
        self.why = why or runners[0].why
        self._runners, self._opened = runners, opened
        self._agree()

    def run(self, cohort: Iterable[TrainRequest]) -> Iterator[TrainReply | Lost]:
        """Train the clients of a cohort; consecutive requests with the same model are run together."""
        return InBlocks(self._blocks(cohort))

    def _blocks(self, cohort: Iterable[TrainRequest]) -> Iterator[TrainReplies | Lost]:
        for index, requests in groupby(cohort, self._runner_index):
            yield from in_blocks(self._runners[index].run(requests))
            self._agree()

    def close(self) -> None:
        """Close all runners."""
        self._opened.close()

    def _agree(self) -> None:
        """Have all runners use the same options, which are the ones on record and those of a resumed run."""
        found = [runner.engine for runner in self._runners]
        for runner in self._runners:
            runner.agree(found)
        self.engine = self._runners[0].engine

    def _runner_index(self, request: TrainRequest) -> int:
        """The index of the runner with the request's model."""
        models = (runner.plan.model for runner in self._runners)
        return next(index for index, model in enumerate(models) if model == request.plan.model)
