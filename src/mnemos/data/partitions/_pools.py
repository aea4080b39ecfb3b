"""The samples of each class, shuffled, from which partitions take samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mnemos.data.partition import Ints


@dataclass(frozen=True)
class Pools:
    """Sample indices class after class, each class shuffled.

    Classes are numbered by rank among the labels that occur, so none is empty.
    """

    samples: Ints
    counts: Ints
    """The number of samples of each class."""

    @property
    def classes(self) -> int:
        """The number of classes that occur."""
        return len(self.counts)

    @property
    def starts(self) -> Ints:
        """The start of each class in `samples`."""
        return np.cumsum(self.counts) - self.counts

    def hand_out(self, drawn: Ints) -> Ints:
        """A sample for each drawn class: the class's first, then its second, …"""
        counts = np.bincount(drawn, minlength=self.classes)
        rank = np.arange(len(drawn)) - np.repeat(np.cumsum(counts) - counts, counts)
        given = np.empty(len(drawn), np.int64)
        given[np.argsort(drawn, kind="stable")] = self.samples[np.repeat(self.starts, counts) + rank]
        return given


def by_class(labels: Ints, rng: np.random.Generator) -> Pools:
    """The pools of a data set."""
    _, ranks, counts = np.unique(labels, return_inverse=True, return_counts=True)
    shuffled = rng.permutation(len(labels))
    samples = shuffled[np.argsort(ranks[shuffled], kind="stable")]
    return Pools(samples.astype(np.int64), counts.astype(np.int64))
