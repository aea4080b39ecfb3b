"""The engine that trains one client after another: the reference for all others, and good for debugging."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pydantic import Field

from mnemos.client.messages import Arithmetic, Plan, TrainRequest
from mnemos.client.trainer import Trainer, intra_op
from mnemos.data.dataset import Dataset
from mnemos.engines.engine import Engine, Runner, Work, blame, engines
from mnemos.methods.exchange import TrainReply


@engines.register("serial")
class Serial(Engine):
    """Trains one client after another, in the main thread."""

    intra_op: int = Field(1, ge=1, description="threads inside one tensor operation")
    compile: bool = Field(False, description="compile the model (pays for large ones only)")

    def arithmetic(self) -> Arithmetic:
        """The reference arithmetic, unless options change it."""
        if self.exact:
            return Arithmetic()
        return Arithmetic(intra_op=self.intra_op, compile=self.compile)

    def open(self, plan: Plan, dataset: Dataset, work: Work) -> Runner:
        """A runner with one replica of the model."""
        return SerialRunner(self, plan.model_copy(update={"arithmetic": self.arithmetic()}), dataset)


class SerialRunner(Runner):
    """Trains one client after another with one replica of the model."""

    def __init__(self, engine: Engine, plan: Plan, dataset: Dataset) -> None:
        super().__init__(engine, plan)
        self._trainer = Trainer(plan, dataset)

    def run(self, cohort: Iterable[TrainRequest]) -> Iterator[TrainReply]:
        """Train the clients of a cohort, each when its update is asked for."""
        with intra_op(self.plan.arithmetic.intra_op):
            for request in cohort:
                try:
                    yield self._trainer(request)
                except Exception as error:  # raised again with the client's number
                    blame(request, error)
