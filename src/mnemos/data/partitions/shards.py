"""Shards of sorted samples: the partition of the first federated-learning paper."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from mnemos.data.partition import Ints, Partition, partitions
from mnemos.data.partitions._holders import check_enough, even_sizes, group, top_up
from mnemos.data.partitions._pools import by_class


@partitions.register("shards")
class Shards(Partition):
    """Samples sorted by label and cut into K · `per_client` shards, of which each client gets `per_client`.

    McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", 2017, with
    two shards per client. Shard sizes differ by at most one, so all samples are used. With more shards than
    samples a client could end up without any: it gets one from the largest client, unless `allow_empty` is
    set.
    """

    per_client: int = Field(2, ge=1, le=100_000)
    """Shards of each client."""
    allow_empty: bool = False
    """Whether clients may have no samples."""

    def assign(self, labels: Ints, owners: Ints | None, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Assign a random permutation of the shards."""
        if not self.allow_empty:
            check_enough(self.clients, len(labels))
        samples = by_class(labels, rng).samples
        shards = self.clients * self.per_client
        holders = np.repeat(rng.permutation(shards) // self.per_client, even_sizes(len(labels), shards))
        if not self.allow_empty:
            holders = top_up(holders, self.clients, 1, rng)
        return group(samples, holders, self.clients, rng)
