"""Clients that are the natural owners of the data: writers, hospitals, devices."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from mnemos.data.partition import Ints, Partition, partitions
from mnemos.data.partitions._holders import group
from mnemos.errors import ConfigError


@partitions.register("natural")
class Natural(Partition):
    """Each natural owner of the data is a client (as the writers of FEMNIST: Caldas et al., "LEAF", 2018).

    `clients` is their number, chosen at random among the owners with at least `min_samples` samples; 0 means
    all of these. Clients are in the order of their owners' indices.
    """

    clients: int = Field(0, ge=0, le=100_000_000)
    """Number of owners to draw; 0: all of them."""
    min_samples: int = Field(1, ge=1)
    """Owners with fewer samples are left out."""

    @property
    def keeps_owners(self) -> bool:
        """With all owners, however few samples one has."""
        return self.clients == 0 and self.min_samples == 1

    def assign(self, labels: Ints, owners: Ints | None, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Group samples by owner."""
        if owners is None:
            raise ConfigError(
                "found 'natural'; this data set does not say who its samples belong to (an npz file does so "
                "by an array 'owners', a table by data.owner=COLUMN)",
                "name",
            )
        _, ranks, sizes = np.unique(owners, return_inverse=True, return_counts=True)
        fit = np.flatnonzero(sizes >= self.min_samples)
        if not len(fit):
            raise ConfigError(
                f"found {self.min_samples}; no owner has more than {sizes.max(initial=0)} training samples",
                "min_samples",
            )
        if self.clients > len(fit):
            raise ConfigError(
                f"found {self.clients}; the data set has {len(fit)} owners "
                f"with at least {self.min_samples} training samples",
                "clients",
            )
        chosen = np.sort(rng.permutation(fit)[: self.clients]) if self.clients else fit
        client = np.full(len(sizes), -1, np.int64)
        client[chosen] = np.arange(len(chosen))
        holders = client[ranks]
        samples = np.flatnonzero(holders >= 0)
        return group(samples, holders[samples], len(chosen), rng)
