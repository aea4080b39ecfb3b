"""Clients that all hold everything."""

from __future__ import annotations

import numpy as np

from mnemos.data.partition import Ints, Partition, partitions
from mnemos.errors import ConfigError

_MOST = 100_000_000
"""Places in the index array, eight bytes each: clients × samples."""


@partitions.register("whole")
class Whole(Partition):
    """Every client holds all training samples; clients differ in the order they see them in, which is drawn.

    The validation samples are the same for everyone, so nobody trains on them. In the union of the clients'
    validation samples, each is there once for each client.
    """

    def deal(self, labels: Ints, owners: Ints | None, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """The same random permutation for everyone: its end is held out."""
        samples = len(labels)
        if self.clients * samples > _MOST:
            raise ConfigError(
                f"found {self.clients}; each holds all {samples} training samples, "
                f"so at most {_MOST // samples} clients are allowed",
                "clients",
            )
        order = np.tile(rng.permutation(samples), self.clients)
        return order, samples * np.arange(self.clients + 1, dtype=np.int64)
