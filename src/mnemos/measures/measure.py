"""What is recorded, and the interface of everything that measures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from mnemos.data.partition import Assignment, Ints
from mnemos.data.stream import Flow
from mnemos.measures.counting import Counts, Groups, count
from mnemos.ranks.spectra import Spectra
from mnemos.registry import Part, Registry
from mnemos.vector import Layout


@dataclass(frozen=True)
class Record:
    """One measured number: a row of a run's metrics."""

    round: int
    name: str
    value: float
    client: int | None = None
    """Whose data it was measured on; none: the whole federation's."""
    model: int | None = None
    """The client whose updated model it was measured of; none: the global model."""
    task: int | None = None
    cls: int | None = None
    layer: str | None = None
    """The tensor it was measured of; none: the whole model."""


@dataclass(frozen=True)
class Scores:
    """What a model says of a set of samples."""

    logits: Tensor
    labels: Tensor
    losses: Tensor

    @cached_property
    def predicted(self) -> Tensor:
        """The class it takes each sample for."""
        return self.logits.argmax(1)

    @property
    def hits(self) -> Tensor:
        """Which samples it gets right."""
        return self.predicted == self.labels

    @property
    def accuracy(self) -> float:
        """Share of samples it gets right."""
        return float(self.hits.numpy().mean())

    @property
    def at_chance(self) -> bool:
        """Whether a constant answer is as good, but for two standard deviations of luck."""
        count = len(self.labels)
        best = float(self.labels.bincount().max()) / count
        return best < 1 and self.accuracy <= best + 2 * math.sqrt(best * (1 - best) / count)

    @property
    def loss(self) -> float:
        """Mean cross-entropy."""
        # By numpy: torch's sum depends on the number of threads in its last bits.
        return float(self.losses.double().numpy().mean())

    @property
    def labelled(self) -> bool:
        """Whether there is a label and an answer for each sample, and not only whether it was right."""
        return True

    @property
    def classes(self) -> int:
        """How many there are."""
        return self.logits.shape[1]

    def counts(self, groups: Groups) -> Counts:
        """How often it is right, by groups of classes."""
        return count(self.logits, self.labels, groups)


class Owners(Protocol):
    """Those who have the samples: each question is one more message to all of them."""

    def counts(self, groups: Groups) -> Counts:
        """How often the model is right, by groups of classes."""

    def personalised(self, known: Callable[[int], Ints]) -> dict[int, int]:
        """How often it is right at each client, corrected for the labels of these training samples of its."""


@dataclass(frozen=True)
class Told(Scores):
    """What owners say of a model, who keep samples, labels and answers to themselves.

    `losses` and `right` are those of the owners' samples, one owner's all alike or all right first; not a
    number for an owner of whom nothing was heard. The rest is empty.
    """

    right: Tensor
    owners: Owners

    @classmethod
    def of(cls, right: Tensor, losses: Tensor, classes: int, owners: Owners) -> Told:
        """Nothing but what was right, and how wrong the rest was."""
        return cls(torch.empty(0, classes), torch.empty(0, dtype=torch.int64), losses, right, owners)

    def counts(self, groups: Groups) -> Counts:
        """Of the owners who are heard of."""
        return self.owners.counts(groups)

    @property
    def hits(self) -> Tensor:
        """1 for right, 0 for wrong."""
        return self.right

    @property
    def accuracy(self) -> float:
        """Of what was heard of."""
        return _mean(self.right)

    @property
    def loss(self) -> float:
        """Of what was heard of."""
        return _mean(self.losses)

    @property
    def at_chance(self) -> bool:
        """Nobody can tell without labels."""
        return False

    @property
    def labelled(self) -> bool:
        """No."""
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
    """Who holds what, and is at which task."""
    held_out: Ints
    """Indices of the validation samples `validation` speaks of."""
    validation: Scores | None
    test: Scores | None
    last: int = 0
    """The number of the experiment's last round."""

    @property
    def assignment(self) -> Assignment:
        """All samples of each client."""
        return self.flow.assignment

    @cached_property
    def counts(self) -> Ints:
        """How many training samples of each class each client has in this round [clients, classes]."""
        return self.flow.counts(self.round)

    @cached_property
    def _spectra(self) -> dict[bool, Spectra]:
        return {}

    def spectra(self, linear: bool) -> Spectra:
        """The spectra of the model's layers, worked out once for all measures that ask."""
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
    """Who holds what, and is at which task."""
    cohort: Ints
    evaluate: Callable[[Tensor, Tensor, Tensor], Scores]
    """Scores of a model (parameters, buffers) on training-set samples, by their indices."""
    test: Callable[[Tensor, Tensor], Scores]
    """Its scores on the test set."""

    @property
    def assignment(self) -> Assignment:
        """All samples of each client."""
        return self.flow.assignment


class Watch(Protocol):
    """Looks on while a round's clients come back one by one."""

    def see(self, client: int, model: Tensor, buffers: Tensor) -> None:
        """A client's model after its local training."""

    def records(self) -> Iterator[Record]:
        """What was measured, once all are back."""


@dataclass(frozen=True)
class Occasions:
    """What there is to measure on, before anything is trained."""

    flow: Flow
    validations: int
    """In how many rounds the model is evaluated on clients' validation data."""
    tests: int
    """In how many on the test set."""
    test_samples: int
    layout: Layout


class Measure(Part):
    """Something that can be recorded: at an evaluation, in rounds of its own, or of a round's updates."""

    remote: ClassVar[bool] = False
    """Whether it can do with what owners tell in a federation: counts, and no single label or answer."""
    from_the_start: ClassVar[bool] = False
    """Whether it looks at the model before it is trained, too: after a round 0."""

    def check(self, occasions: Occasions) -> None:
        """Refuse an experiment in which it couldn't measure anything."""

    def records(self, moment: Moment) -> Iterator[Record]:
        """The numbers for one evaluation, or one of its own rounds."""
        return iter(())

    def due(self, round: int, last: int) -> bool:
        """Whether it wants to look at the model after this round too, if there is no evaluation."""
        return False

    def watch(self, opening: Opening) -> Watch | None:
        """Someone to look on in this round, if it is of interest."""
        return None


measures: Registry[Measure] = Registry("measure", Measure, "mnemos.measures")
