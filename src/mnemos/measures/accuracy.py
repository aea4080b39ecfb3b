"""Accuracy by class and by client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from mnemos.measures.counting import Groups
from mnemos.measures.measure import Measure, Moment, Record, measures


@measures.register("class-accuracy")
class ClassAccuracy(Measure):
    """Accuracy on each class, of the test set in rounds that evaluate it, otherwise of validation data."""

    remote: ClassVar[bool] = True

    def records(self, moment: Moment) -> Iterator[Record]:
        """One record for each class that has samples."""
        scores = moment.test or moment.validation
        if scores is None:
            return
        name = "test_accuracy" if moment.test else "validation_accuracy"
        counts = scores.counts(Groups.of_classes(scores.classes))
        for label in counts.sizes.nonzero().flatten().tolist():
            yield Record(moment.round, name, float(counts.right[0, label] / counts.sizes[label]), cls=label)


@measures.register("client-accuracy")
class ClientAccuracy(Measure):
    """The global model's accuracy on each client's own validation samples."""

    remote: ClassVar[bool] = True

    def records(self, moment: Moment) -> Iterator[Record]:
        """One record for each client that has validation samples."""
        if moment.validation is None:
            return
        assignment = moment.assignment
        sizes = assignment.sizes - assignment.train_sizes()
        owner = np.repeat(np.arange(assignment.clients), sizes)
        right = np.bincount(owner, weights=moment.validation.hits.numpy(), minlength=assignment.clients)
        for client in np.flatnonzero((sizes > 0) & ~np.isnan(right)).tolist():
            yield Record(
                moment.round, "validation_accuracy", float(right[client] / sizes[client]), client=client
            )
