"""The records of a run, and the interface of the measures that make them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from mnemos.common.registry import Part, Registry
from mnemos.data.partition import Assignment, Ints
from mnemos.data.stream import Flow
from mnemos.data.trigger import Mark
from mnemos.measures.counting import Counts, Groups, count
from mnemos.ranks.spectra import Spectra
from mnemos.vector import Layout


@dataclass(frozen=True)
class Record:
    """One measured number: a row of a run's metrics."""

    round: int
    name: str
    value: float
    client: int | None = None
    """The client whose data it was measured on; None: the whole federation's data."""
    model: int | None = None
    """The client whose updated model was measured; None: the global model."""
    task: int | None = None
    cls: int | None = None
    layer: str | None = None
    """The tensor that was measured; None: the whole model."""


@dataclass(frozen=True)
class Scores:
    """A model's predictions on a set of samples."""

    logits: Tensor
    labels: Tensor
    losses: Tensor

    @cached_property
    def predicted(self) -> Tensor:
        """The predicted class of each sample."""
        return self.logits.argmax(1)

    @property
    def hits(self) -> Tensor:
        """Which samples are predicted correctly."""
        return self.predicted == self.labels

    @property
    def accuracy(self) -> float:
        """Share of samples that are predicted correctly."""
        return float(self.hits.numpy().mean())

    @property
    def at_chance(self) -> bool:
        """Whether a constant prediction is as accurate, within two standard deviations of chance."""
        count = len(self.labels)
        best = float(self.labels.bincount().max()) / count
        return best < 1 and self.accuracy <= best + 2 * math.sqrt(best * (1 - best) / count)

    @property
    def loss(self) -> float:
        """Mean cross-entropy."""
        # By numpy: the last bits of torch's sum depend on the number of threads.
        return float(self.losses.double().numpy().mean())

    @property
    def labelled(self) -> bool:
        """Whether labels and predictions are known, and not only which samples are correct."""
        return True

    @property
    def classes(self) -> int:
        """The number of classes."""
        return self.logits.shape[1]

    def counts(self, groups: Groups) -> Counts:
        """How many samples are predicted correctly, by groups of classes."""
        return count(self.logits, self.labels, groups)


class SampleOwners(Protocol):
    """The owners of samples in a federation: each call is one more message to all of them."""

    def counts(self, groups: Groups) -> Counts:
        """How many samples the model predicts correctly, by groups of classes."""

    def personalised(self, known: Callable[[int], Ints]) -> dict[int, int]:
        """How many samples each client predicts correctly with its label proportions as a prior.

        `known` gives the training samples whose labels a client counts.
        """


@dataclass(frozen=True)
class ReportedScores(Scores):
    """What owners report of a model; samples, labels and predictions stay with them.

    An owner reports a mean loss and a number of correct samples. `losses` repeats the mean for each of its
    samples, and `right` is 1 for as many of them as are correct; both are NaN for an owner that didn't
    answer. Logits and labels are empty.
    """

    right: Tensor
    owners: SampleOwners

    @classmethod
    def of(cls, right: Tensor, losses: Tensor, classes: int, owners: SampleOwners) -> ReportedScores:
        """Scores without logits and labels, of a model with this many classes."""
        return cls(torch.empty(0, classes), torch.empty(0, dtype=torch.int64), losses, right, owners)

    def counts(self, groups: Groups) -> Counts:
        """The counts of the owners that answer."""
        return self.owners.counts(groups)

    @property
    def hits(self) -> Tensor:
        """1 for a correct sample, 0 for a wrong one, NaN for an owner that didn't answer."""
        return self.right

    @property
    def accuracy(self) -> float:
        """Share of correct samples at the owners that answered."""
        return _mean(self.right)

    @property
    def loss(self) -> float:
        """Mean loss at the owners that answered."""
        return _mean(self.losses)

    @property
    def at_chance(self) -> bool:
        """False: it can't be known without labels."""
        return False

    @property
    def labelled(self) -> bool:
        """False."""
        return False


def _mean(values: Tensor) -> float:
    known = values.double().numpy()
    known = known[~np.isnan(known)]
    return float(known.mean()) if len(known) else math.nan


@dataclass(frozen=True)
class Moment:
    """The federation after a round, as measures see it."""

    round: int
    model: Tensor
    buffers: Tensor
    layout: Layout
    flow: Flow
    """The samples and tasks of all clients in all rounds."""
    held_out: Ints
    """Indices of the validation samples that `validation` was scored on."""
    validation: Scores | None
    test: Scores | None
    last: int = 0
    """The number of the experiment's last round."""
    marked: Callable[[Mark], Scores] | None = None
    """Scores of the model on the test samples of other classes than a mark's target, with the mark."""

    @property
    def assignment(self) -> Assignment:
        """All samples of each client."""
        return self.flow.assignment

    @cached_property
    def counts(self) -> Ints:
        """The number of training samples of each class at each client in this round [clients, classes]."""
        return self.flow.counts(self.round)

    @cached_property
    def _spectra(self) -> dict[bool, Spectra]:
        return {}

    def spectra(self, linear: bool) -> Spectra:
        """The spectra of the model's layers, computed once for all measures."""
        if linear not in self._spectra:
            self._spectra[linear] = Spectra(self.model[None], self.layout, linear)
        return self._spectra[linear]


@dataclass(frozen=True)
class Opening:
    """The federation at the start of a round, before its clients train."""

    round: int
    last: int
    """The number of the experiment's last round."""
    model: Tensor
    buffers: Tensor
    layout: Layout
    flow: Flow
    """The samples and tasks of all clients in all rounds."""
    cohort: Ints
    evaluate: Callable[[Tensor, Tensor, Tensor], Scores]
    """Scores of a model (parameters, buffers) on samples of the training set, by their indices."""
    test: Callable[[Tensor, Tensor], Scores]
    """Scores of a model (parameters, buffers) on the test set."""

    @property
    def assignment(self) -> Assignment:
        """All samples of each client."""
        return self.flow.assignment


class Watch(Protocol):
    """Measures the models of a round's clients as they arrive, one by one."""

    def see(self, client: int, model: Tensor, buffers: Tensor) -> None:
        """Measure a client's model after its local training."""

    def aggregated(self, model: Tensor, buffers: Tensor) -> None:
        """Measure the server's model after the round, if it matters beside the clients'."""
        return

    def records(self) -> Iterator[Record]:
        """The records of the round, after `aggregated`."""


@dataclass(frozen=True)
class Occasions:
    """What an experiment offers its measures, known before training."""

    flow: Flow
    validations: int
    """The number of rounds that evaluate the model on clients' validation data."""
    tests: int
    """The number of rounds that evaluate it on the test set."""
    test_samples: int
    layout: Layout


class Measure(Part):
    """Records numbers at evaluations, in rounds of its own, or from the models of a round's clients."""

    remote: ClassVar[bool] = False
    """Whether it works in a real federation, where owners report counts, and no labels or predictions."""
    from_the_start: ClassVar[bool] = False
    """Whether it also measures the untrained model, as round 0."""
    in_step: ClassVar[bool] = False
    """Whether a round's clients must have been sent the same model, which asynchronous ones aren't."""
    together: ClassVar[bool] = False
    """Whether one watch sees all clients of a round, even if they were sent different models.

    Its opening then has the server's model before the round.
    """
    one_server: ClassVar[bool] = False
    """Whether there must be one server with one model, which mixed models and peers don't have."""

    @property
    def watches(self) -> bool:
        """Whether it looks at the models of single clients."""
        return type(self).watch is not Measure.watch

    @property
    def mark(self) -> Mark | None:
        """The mark of a backdoor that it looks for, if it does."""
        return None

    def check(self, occasions: Occasions) -> None:
        """Refuse, with a `ConfigError`, an experiment in which it has nothing to measure."""

    def records(self, moment: Moment) -> Iterator[Record]:
        """The records after an evaluation, or after a round that is `due`."""
        return iter(())

    def due(self, round: int, last: int) -> bool:
        """Whether it measures the model after this round even if there is no evaluation."""
        return False

    def watch(self, opening: Opening) -> Watch | None:
        """What measures the models of this round's clients; None if they aren't measured."""
        return None


measures: Registry[Measure] = Registry("measure", Measure, "mnemos.measures")
