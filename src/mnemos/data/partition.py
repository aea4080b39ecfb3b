"""Who holds which sample: the common ground of all partitions."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from mnemos.registry import Part, Registry

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Assignment:
    """Clients as consecutive runs of one index array: client k holds `order[offsets[k]:offsets[k+1]]`.

    Two arrays serve a million clients. Each client's last `validation` share (rounded down) is for
    validation, the rest for training: never none of a client that has any.
    """

    order: Ints
    offsets: Ints
    validation: float = 0.0
    noise: Floats | None = None
    """Standard deviation of the Gaussian noise on each client's normalised samples (feature skew)."""

    @property
    def clients(self) -> int:
        """How many clients there are."""
        return len(self.offsets) - 1

    @property
    def sizes(self) -> Ints:
        """How many samples each client holds."""
        return np.diff(self.offsets)

    def _held(self, sizes: Ints) -> Ints:
        # The tiny addend: 0.29 × 100 is 28.999… in floating point, and 29 is meant.
        held = (sizes * self.validation + 1e-9).astype(np.int64)
        return np.minimum(held, np.maximum(sizes - 1, 0))

    def _cut(self, client: int) -> int:
        run = self.offsets[client : client + 2]
        return int(run[1] - self._held(np.diff(run))[0])

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
        """How many training samples each client holds."""
        return self.sizes - self._held(self.sizes)

    def union_held_out(self) -> Ints:
        """Indices of all clients' validation samples."""
        position = np.arange(len(self.order)) - np.repeat(self.offsets[:-1], self.sizes)
        return self.order[position >= np.repeat(self.train_sizes(), self.sizes)]


def pooled(assignment: Assignment) -> Assignment:
    """One holder of everybody's samples, each once, for training what was for training."""
    held_out = np.unique(assignment.union_held_out())
    train = np.unique(assignment.training()[0])
    order = np.concatenate([train, held_out])
    return Assignment(order, np.array([0, len(order)]), len(held_out) / len(order))


def label_distances(labels: Ints, assignment: Assignment) -> tuple[Ints, Floats]:
    """How many labels each client holds, and how far its label distribution is from that of all.

    The distance is the total variation ½ Σ_c |p_kc − p_c|: 0 for a client like all, near 1 for one with
    labels of its own.
    """
    owner = np.repeat(np.arange(assignment.clients), assignment.sizes)
    classes = int(labels.max()) + 1
    # Only the pairs that occur: a table of a million clients and all labels would be large, and empty.
    pairs, counts = np.unique(owner * classes + labels[assignment.order], return_counts=True)
    of, label = np.divmod(pairs, classes)
    overall = np.bincount(label, counts, classes) / max(1, counts.sum())
    held = np.bincount(of, np.abs(counts / assignment.sizes[of] - overall[label]), assignment.clients)
    # A label that a client lacks is away from its share by all of it.
    lacked = 1 - np.bincount(of, overall[label], assignment.clients)
    return np.bincount(of, minlength=assignment.clients), (held + lacked) / 2


def label_skew(labels: Ints, assignment: Assignment) -> float:
    """Mean distance of the clients' label distributions from that of all."""
    return float(label_distances(labels, assignment)[1][assignment.sizes > 0].mean())


class Partition(Part):
    """How the training samples are dealt out to clients."""

    clients: int = Field(100, ge=1, le=100_000_000)
    validation: float = Field(0.1, ge=0, lt=1)

    def split(self, labels: Ints, owners: Ints | None, rng: np.random.Generator) -> Assignment:
        """Deal out the samples; only `whole` gives one to several clients."""
        order, offsets = self.deal(labels, owners, rng)
        return Assignment(order, offsets, self.validation, self.noise_levels(len(offsets) - 1))

    @abstractmethod
    def deal(self, labels: Ints, owners: Ints | None, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """(order, offsets) as in `Assignment`, from labels and natural owners (None if there are none)."""

    def noise_levels(self, clients: int) -> Floats | None:
        """Standard deviation of each client's feature noise; None for clean features."""
        return None


partitions: Registry[Partition] = Registry("partition", Partition, "mnemos.data.partitions")
