"""Which client holds which samples: the interface of partitions, and their result."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from mnemos.common.registry import Part, Registry

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Assignment:
    """Clients as consecutive runs of one index array: client k holds `order[offsets[k]:offsets[k+1]]`.

    Two arrays are enough for a million clients. The last share `validation` of each client's samples (rounded
    down) is for validation, the rest, at least one sample, for training.
    """

    order: Ints
    offsets: Ints
    validation: float = 0.0
    noise: Floats | None = None
    """Standard deviation of the Gaussian noise on each client's normalised samples (feature skew)."""

    @property
    def clients(self) -> int:
        """The number of clients."""
        return len(self.offsets) - 1

    @property
    def sizes(self) -> Ints:
        """The number of samples of each client."""
        return np.diff(self.offsets)

    def _held(self, sizes: Ints) -> Ints:
        # The tiny addend: 0.29 × 100 is 28.999… in floating point, and 29 is meant.
        held = (sizes * self.validation + 1e-9).astype(np.int64)
        return np.minimum(held, np.maximum(sizes - 1, 0))

    def _cut(self, client: int) -> int:
        # As `_held`, in Python's numbers: this is asked of every client in every round.
        start, stop = int(self.offsets[client]), int(self.offsets[client + 1])
        held = int((stop - start) * self.validation + 1e-9)
        return stop - min(held, max(stop - start - 1, 0))

    def trains(self, clients: Ints) -> tuple[Ints, Ints]:
        """(indices of the training samples of some clients, laid end to end; how many each has)."""
        starts, sizes = self.offsets[clients], self.offsets[clients + 1] - self.offsets[clients]
        sizes = sizes - self._held(sizes)
        places = np.arange(sizes.sum()) + np.repeat(starts - (np.cumsum(sizes) - sizes), sizes)
        return self.order[places], sizes

    def train(self, client: int) -> Ints:
        """Indices of a client's training samples."""
        return self.order[self.offsets[client] : self._cut(client)]

    def held_out(self, client: int) -> Ints:
        """Indices of a client's validation samples."""
        return self.order[self._cut(client) : self.offsets[client + 1]]

    def training(self) -> tuple[Ints, Ints]:
        """Indices of all training samples, client after client, and the client of each."""
        owners = np.repeat(np.arange(self.clients), self.sizes)
        train = np.arange(len(self.order)) - self.offsets[owners] < self.train_sizes()[owners]
        return self.order[train], owners[train]

    def train_sizes(self) -> Ints:
        """The number of training samples of each client."""
        return self.sizes - self._held(self.sizes)

    def union_held_out(self) -> Ints:
        """Indices of all clients' validation samples."""
        position = np.arange(len(self.order)) - np.repeat(self.offsets[:-1], self.sizes)
        return self.order[position >= np.repeat(self.train_sizes(), self.sizes)]


def pooled(assignment: Assignment) -> Assignment:
    """One client that holds the samples of all, each once; training samples stay training samples."""
    held_out = np.unique(assignment.union_held_out())
    train = np.unique(assignment.training()[0])
    order = np.concatenate([train, held_out])
    return Assignment(order, np.array([0, len(order)]), len(held_out) / len(order))


def held_by(clients: Ints, assignment: Assignment) -> Assignment:
    """What some clients hold, while all others hold nothing."""
    there = np.zeros(assignment.clients, bool)
    there[clients] = True
    sizes = np.where(there, assignment.sizes, 0)
    order = assignment.order[np.repeat(there, assignment.sizes)]
    return replace(assignment, order=order, offsets=np.concatenate([[0], np.cumsum(sizes)]))


def label_distances(labels: Ints, assignment: Assignment) -> tuple[Ints, Floats]:
    """The number of labels of each client, and the distance of its label distribution from the overall one.

    The distance is the total variation ½ Σ_c |p_kc − p_c|: 0 if the distributions are equal, near 1 for a
    client whose labels no other client has.
    """
    owner = np.repeat(np.arange(assignment.clients), assignment.sizes)
    classes = int(labels.max()) + 1
    # Only the pairs that occur: a table of a million clients and all labels would be large and sparse.
    pairs, counts = np.unique(owner * classes + labels[assignment.order], return_counts=True)
    client, label = np.divmod(pairs, classes)
    overall = np.bincount(label, counts, classes) / max(1, counts.sum())
    held = np.bincount(client, np.abs(counts / assignment.sizes[client] - overall[label]), assignment.clients)
    # A label that a client lacks adds all of its overall share.
    lacked = 1 - np.bincount(client, overall[label], assignment.clients)
    return np.bincount(client, minlength=assignment.clients), (held + lacked) / 2


def label_skew(labels: Ints, assignment: Assignment) -> float:
    """Mean distance of the clients' label distributions from the overall one."""
    return float(label_distances(labels, assignment)[1][assignment.sizes > 0].mean())


class Partition(Part):
    """How the training samples are assigned to clients."""

    clients: int = Field(100, ge=1, le=100_000_000)
    """Number of clients K."""
    validation: float = Field(0.1, ge=0, lt=1)
    """Share of a client's samples that is held out for validation."""

    @property
    def keeps_owners(self) -> bool:
        """Whether each natural owner of the data is a client, and none is left out."""
        return False

    def split(self, labels: Ints, owners: Ints | None, rng: np.random.Generator) -> Assignment:
        """The assignment of samples to clients; only `whole` assigns a sample to several clients."""
        order, offsets = self.assign(labels, owners, rng)
        return Assignment(order, offsets, self.validation, self.noise_levels(len(offsets) - 1))

    @abstractmethod
    def assign(self, labels: Ints, owners: Ints | None, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """(order, offsets) as in `Assignment`, from labels and natural owners (None if there are none)."""

    def noise_levels(self, clients: int) -> Floats | None:
        """Standard deviation of each client's feature noise; None for clean features."""
        return None


partitions: Registry[Partition] = Registry("partition", Partition, "mnemos.data.partitions")
