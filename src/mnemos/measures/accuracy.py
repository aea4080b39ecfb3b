"""Accuracy by class and by client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import torch

from mnemos.measures.measure import Measure, Moment, Record, measures


@measures.register("class-accuracy")
class ClassAccuracy(Measure):
    """Accuracy on the samples of each class, of the test set where it was evaluated, else of validation."""

    needs_labels: ClassVar[bool] = True

    def records(self, moment: Moment) -> Iterator[Record]:
        """One record a class that has samples."""
        scores = moment.test or moment.validation
        if scores is None:
            return
        name = "test_accuracy" if moment.test else "validation_accuracy"
        counts = torch.bincount(scores.labels)
        right = torch.bincount(scores.labels[scores.hits], minlength=len(counts))
        for label in counts.nonzero().flatten().tolist():
            yield Record(moment.round, name, float(right[label] / counts[label]), cls=label)


@measures.register("client-accuracy")
class ClientAccuracy(Measure):
    """The global model's accuracy on each client's own validation samples."""

    def records(self, moment: Moment) -> Iterator[Record]:
        """One record a client that has validation samples."""
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
