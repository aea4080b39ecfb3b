"""Clients that differ only in their number of samples."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from mnemos.data.partition import Ints, Partition, partitions
from mnemos.data.partitions._holders import group, least, redraw
from mnemos.data.proportions import Concentration, cumulative, cut, log_dirichlet


@partitions.register("quantity")
class Quantity(Partition):
    """Shuffled samples, cut into shares p ~ Dir(α·1_K).

    NIID-Bench's `iid-diff-quantity`, whose β is α here (Li et al., "Federated Learning on Non-IID Data
    Silos", ICDE 2022). As with `label-dirichlet`, it draws at most `tries` times until every client has
    `min_samples` (by default 10, but at most half of N/K, and at least one), then samples move from the
    largest clients to those with fewer. With `allow_empty`, the first draw is used as it is.
    """

    alpha: Concentration = 0.5
    """Concentration α: small values make the clients' sizes unequal."""
    min_samples: int | None = Field(None, ge=1)
    """Fewest samples of a client; the shares are drawn again until all clients have them."""
    tries: int = Field(100, ge=1, le=10_000)
    """How often the shares are drawn before it is an error that a client has too few samples."""
    allow_empty: bool = False
    """Whether clients may have no samples."""

    def assign(self, labels: Ints, owners: Ints | None, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Draw sizes, with a bounded number of tries."""
        floor = 0 if self.allow_empty else least(self.min_samples, self.clients, len(labels))
        holders = redraw(lambda: self._cut(len(labels), rng), self.clients, floor, self.tries, rng)
        return group(rng.permutation(len(labels)), holders, self.clients, rng)

    def _cut(self, samples: int, rng: np.random.Generator) -> Ints:
        """The client of each sample, in the order of clients."""
        shares = cumulative(log_dirichlet(self.alpha, (self.clients,), rng), np.ones(self.clients, np.bool_))
        return np.repeat(np.arange(self.clients), cut(shares, samples))
