"""One client after the other: the reference for all engines, and the one to debug with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pydantic import Field

from mnemos.client import Trainer, intra_op
from mnemos.data.dataset import Dataset
from mnemos.engines.engine import Engine, Runner, Work, blame, engines
from mnemos.message import Arithmetic, Plan, Task
from mnemos.methods.exchange import Update


@engines.register("serial")
class Serial(Engine):
    """One client after the other, in the main thread."""

    intra_op: int = Field(1, ge=1, description="threads inside one tensor operation")
    compile: bool = Field(False, description="compile the model (pays for large ones only)")

    def arithmetic(self) -> Arithmetic:
        """The reference arithmetic, unless told otherwise."""
        if self.exact:
            return Arithmetic()
        return Arithmetic(intra_op=self.intra_op, compile=self.compile)

    def open(self, plan: Plan, dataset: Dataset, work: Work) -> Runner:
        """One replica."""
        return SerialRunner(self, plan.model_copy(update={"arithmetic": self.arithmetic()}), dataset)


class SerialRunner(Runner):
    """One replica that trains client after client."""

    def __init__(self, engine: Engine, plan: Plan, dataset: Dataset) -> None:
        super().__init__(engine, plan)
        self._trainer = Trainer(plan, dataset)

    def run(self, cohort: Iterable[Task]) -> Iterator[Update]:
        """The updates of a cohort, one after the other."""
        with intra_op(self.plan.arithmetic.intra_op):
            for task in cohort:
                try:
                    yield self._trainer(task)
                except Exception as error:  # named, and raised again
                    blame(task, error)
