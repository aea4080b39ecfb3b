"""Label skew with unequal sizes: the most common partition of the field."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from mnemos.data.partition import Ints, Partition, partitions
from mnemos.data.partitions._holders import group, least, redraw
from mnemos.data.partitions._pools import Pools, by_class
from mnemos.data.proportions import Concentration, cumulative, cut, log_dirichlet


@partitions.register("label-dirichlet")
class LabelDirichlet(Partition):
    """Each label's samples are split among the clients by proportions p_c ~ Dir(α·1_K).

    Labels are split one after the other; clients that already hold N/K samples or more are removed from
    p_c, which is renormalised (NIID-Bench's `noniid-labeldir`, whose β is α here: Li et al., "Federated
    Learning on Non-IID Data Silos", ICDE 2022). NIID-Bench draws again while a client has fewer than 10
    samples, possibly forever. Here it draws at most `tries` times, and stops early if more than ten clients
    lack samples, as further tries would fail; then samples move from the largest clients to those with fewer
    than `min_samples` (by default 10, but at most half of N/K, and at least one). With `allow_empty`, the
    first draw is used as it is.
    """

    alpha: Concentration = 0.5
    """Concentration α: small values give each label to few clients."""
    min_samples: int | None = Field(None, ge=1)
    """Fewest samples of a client; the proportions are drawn again until all clients have them."""
    tries: int = Field(100, ge=1, le=10_000)
    """How often the proportions are drawn before it is an error that a client has too few samples."""
    allow_empty: bool = False
    """Whether clients may have no samples."""

    def assign(self, labels: Ints, owners: Ints | None, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Cut label by label, with a bounded number of tries."""
        floor = 0 if self.allow_empty else least(self.min_samples, self.clients, len(labels))
        pools = by_class(labels, rng)
        holders = redraw(lambda: self._cut(pools, rng), self.clients, floor, self.tries, rng)
        return group(pools.samples, holders, self.clients, rng)

    def _cut(self, pools: Pools, rng: np.random.Generator) -> Ints:
        """The client of each pooled sample."""
        holders = np.empty(len(pools.samples), np.int64)
        held = np.zeros(self.clients, np.int64)
        for start, count in zip(pools.starts, pools.counts, strict=True):
            # While samples are left, at least one client has fewer than N/K.
            below = held * self.clients < len(holders)
            shares = cumulative(log_dirichlet(self.alpha, (self.clients,), rng), below)
            sizes = cut(shares, int(count))
            holders[start : start + count] = np.repeat(np.arange(self.clients), sizes)
            held += sizes
        return holders
