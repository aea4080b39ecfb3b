"""Clients that all hold all samples."""

from __future__ import annotations

import numpy as np

from mnemos.data.partition import Ints, Partition, partitions
from mnemos.errors import ConfigError

_MOST = 100_000_000
"""The largest length of the index array (clients × samples), of eight bytes per entry."""


@partitions.register("whole")
class Whole(Partition):
    """Every client holds all training samples; clients differ in the random order of their batches.

    The validation samples are the same for all clients, so no client trains on them. The union of the
    clients' validation samples has each of them once per client.
    """

    def assign(self, labels: Ints, owners: Ints | None, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """The same random permutation for all clients, of which the end is held out."""
        samples = len(labels)
        if self.clients * samples > _MOST:
            raise ConfigError(
                f"found {self.clients}; each holds all {samples} training samples, "
                f"so at most {_MOST // samples} clients are allowed",
                "clients",
            )
        order = np.tile(rng.permutation(samples), self.clients)
        return order, samples * np.arange(self.clients + 1, dtype=np.int64)
