"""What is recorded, and the interface of everything that measures."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from mnemos.data.partition import Assignment, Ints
from mnemos.registry import Part, Registry
from mnemos.vector import Layout


@dataclass(frozen=True)
class Record:
    """One measured number: a row of a run's metrics."""

    round: int
    name: str
    value: float
    client: int | None = None
    task: int | None = None
    cls: int | None = None


@dataclass(frozen=True)
class Scores:
    """What a model says of a set of samples."""

    predicted: Tensor
    labels: Tensor
    losses: Tensor

    @property
    def hits(self) -> Tensor:
        """Which samples it gets right."""
        return self.predicted == self.labels

    @property
    def accuracy(self) -> float:
        """Share of samples it gets right."""
        return float(self.hits.numpy().mean())

    @property
    def loss(self) -> float:
        """Mean cross-entropy."""
        # By numpy: torch's sum depends on the number of threads in its last bits.
        return float(self.losses.double().numpy().mean())


@dataclass(frozen=True)
class Moment:
    """The federation after a round, as measures see it."""

    round: int
    model: Tensor
    buffers: Tensor
    layout: Layout
    assignment: Assignment
    held_out: Ints
    """Indices of the validation samples `validation` speaks of."""
    validation: Scores | None
    test: Scores | None


class Measure(Part):
    """Something that can be recorded at an evaluation."""

    @abstractmethod
    def records(self, moment: Moment) -> Iterator[Record]:
        """The numbers for one moment."""


measures: Registry[Measure] = Registry("measure", Measure, "mnemos.measures")
