"""A fixed number of labels per client."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from mnemos.data.partition import Ints, Partition, partitions
from mnemos.data.partitions._holders import check_enough, even_sizes, group, top_up
from mnemos.data.partitions._pools import by_class
from mnemos.errors import ConfigError

_CELLS = 1 << 21
"""Client × class random keys in memory at a time."""


@partitions.register("labels")
class Labels(Partition):
    """Client i holds label i mod C and `per_client` − 1 random other ones.

    Each label's samples are split equally among its holders (NIID-Bench's `noniid-#label<k>`: Li et al.,
    "Federated Learning on Non-IID Data Silos", ICDE 2022); a remainder goes to the holders with the fewest
    samples so far. Labels that no client holds (only with fewer clients than labels) are left out. If a
    label has fewer samples than holders, a client could end up without any: it gets one from the largest
    client, of any label, unless `allow_empty` is set.
    """

    per_client: int = Field(2, ge=1)
    """Labels of each client."""
    allow_empty: bool = False
    """Whether clients may have no samples."""

    def assign(self, labels: Ints, owners: Ints | None, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Choose labels, then split each among its holders."""
        if not self.allow_empty:
            check_enough(self.clients, len(labels))
        pools = by_class(labels, rng)
        if self.per_client > pools.classes:
            raise ConfigError(
                f"found {self.per_client}; the training samples have {pools.classes} different labels",
                "per_client",
            )
        chosen = _choose(self.clients, pools.classes, self.per_client, rng)
        by_label = np.argsort(chosen.ravel(), kind="stable") // self.per_client
        ends = np.cumsum(np.bincount(chosen.ravel(), minlength=pools.classes))
        holders = np.full(len(pools.samples), -1, np.int64)
        held = np.zeros(self.clients, np.int64)
        for start, count, members in zip(
            pools.starts, pools.counts, np.split(by_label, ends[:-1]), strict=True
        ):
            if len(members):
                members = members[np.argsort(held[members], kind="stable")]
                sizes = even_sizes(int(count), len(members))
                holders[start : start + count] = np.repeat(members, sizes)
                held[members] += sizes
        used = holders >= 0
        samples, holders = pools.samples[used], holders[used]
        if not self.allow_empty:
            holders = top_up(holders, self.clients, 1, rng)
        return group(samples, holders, self.clients, rng)


def _choose(clients: int, classes: int, each: int, rng: np.random.Generator) -> Ints:
    """The labels of each client [clients, each]: i mod C, and those with the smallest random keys."""
    chosen = np.empty((clients, each), np.int64)
    block = max(1, _CELLS // classes)
    for first in range(0, clients, block):
        rows = np.arange(first, min(first + block, clients))
        keys = rng.random((len(rows), classes))
        keys[rows - first, rows % classes] = -1.0
        chosen[rows] = np.argpartition(keys, each - 1, axis=1)[:, :each]
    return chosen
