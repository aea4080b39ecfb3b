"""Clients with identically distributed data."""

from __future__ import annotations

import numpy as np

from mnemos.data.partition import Ints, Partition, partitions
from mnemos.data.partitions._holders import check_enough, even_sizes, offsets


@partitions.register("iid")
class Iid(Partition):
    """All samples, shuffled and split into equal shares (sizes differ by at most one)."""

    def assign(self, labels: Ints, owners: Ints | None, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Cut a random permutation into equal runs."""
        check_enough(self.clients, len(labels))
        return rng.permutation(len(labels)), offsets(even_sizes(len(labels), self.clients))
