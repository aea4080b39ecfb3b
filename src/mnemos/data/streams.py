"""Which samples a client holds in a round, as a pure function of (assignment, client, round)."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from mnemos.data.partition import Assignment, Ints
from mnemos.registry import Part, Registry


class Stream(Part):
    """How a client's data changes over time."""

    @abstractmethod
    def samples(self, assignment: Assignment, client: int, round: int) -> Ints:
        """Indices of the client's training samples in a round."""


streams: Registry[Stream] = Registry("stream", Stream, "mnemos.data.streams")


@streams.register("static")
class Static(Stream):
    """Every client keeps all its samples for ever."""

    def samples(self, assignment: Assignment, client: int, round: int) -> Ints:
        """All of the client's training samples."""
        return assignment.train(client)


def training_counts(stream: Stream, assignment: Assignment, round: int, labels: Ints, classes: int) -> Ints:
    """How many training samples of each class each client has in a round [clients, classes]."""
    clients = assignment.clients
    if type(stream) is Static:  # in one pass: there may be a million clients
        sizes = assignment.train_sizes()
        position = np.arange(len(assignment.order)) - np.repeat(assignment.offsets[:-1], assignment.sizes)
        samples = assignment.order[position < np.repeat(sizes, assignment.sizes)]
    else:
        runs = [stream.samples(assignment, client, round) for client in range(clients)]
        sizes = np.array([len(run) for run in runs])
        samples = np.concatenate(runs)
    owner = np.repeat(np.arange(clients), sizes)
    return np.bincount(owner * classes + labels[samples], minlength=clients * classes).reshape(-1, classes)
