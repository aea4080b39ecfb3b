"""The engine that trains one client after another: the reference for all others, and good for debugging."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pydantic import Field

from mnemos.client.messages import Arithmetic, Plan, TrainRequest
from mnemos.client.step import Trainees
from mnemos.client.trainer import Trainer, intra_op
from mnemos.common.devices import CPU
from mnemos.data.dataset import Dataset
from mnemos.engines.devices import DeviceEngine, DeviceRunner, Mirror
from mnemos.engines.engine import Runner, Work, engines
from mnemos.methods.exchange import TrainReply

_UNREAD_BYTES = 1e9
"""Bytes of updates on a device whose losses haven't been read yet."""


@engines.register("serial")
class Serial(DeviceEngine):
    """Trains one client after another, in the main thread."""

    intra_op: int = Field(1, ge=1, description="threads inside one tensor operation")
    compile: bool = Field(False, description="compile the model (pays for large ones only)")

    def arithmetic(self) -> Arithmetic:
        """The reference arithmetic, unless options change it."""
        if self.exact:
            return self.on_device(Arithmetic())
        return self.on_device(Arithmetic(intra_op=self.intra_op, compile=self.compile))

    def open(self, plan: Plan, dataset: Dataset, work: Work) -> Runner:
        """A runner with one replica of the model on each device."""
        return SerialRunner(self, self.planned(plan), dataset)


class SerialRunner(DeviceRunner):
    """Trains one client after another, with one replica of the model on each device."""

    def _prepare(self, engine: Serial, dataset: Dataset) -> None:
        self._trainers = [Trainer(self.plan, dataset, device) for device in self.devices]
        self._at_once = 1
        if self.devices[0] != CPU:
            layout = self._trainers[0].bound.layout
            vectors = 3 * layout.size  # a reply's change of the model, what is beside it, and a state
            self._at_once = max(len(self.devices), int(_UNREAD_BYTES // (4 * vectors)))

    def _let_go(self) -> None:
        self._trainers = []

    def run(self, cohort: Iterable[TrainRequest]) -> Iterator[TrainReply]:
        """Train the clients of a cohort, each when its update is asked for; on a device, several ahead."""
        mirrors = [Mirror(device) for device in self.devices]

        def begin(device: int, chunk: Sequence[TrainRequest]) -> Trainees:
            return self._trainers[device].trainee(mirrors[device](chunk[0]))

        with intra_op(self.plan.arithmetic.intra_op):
            for replies in self.train_in_turn(([request] for request in cohort), begin, self._at_once):
                yield from replies
