"""Power-law sizes and Dirichlet labels: the partition of asynchronous federated continual learning."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from mnemos.data.partition import Floats, Ints, Partition, partitions
from mnemos.data.partitions._holders import check_enough, group, levelled, top_up
from mnemos.data.partitions._pools import Pools, by_class
from mnemos.data.proportions import Concentration, log_dirichlet, proportions

_UNASSIGNED = -1
_CELLS = 1 << 21
"""Client × class proportions in memory at a time."""
_SMALLEST = 64
"""The smallest number of clients that are filled together."""


@partitions.register("power-law")
class PowerLaw(Partition):
    """Clients have unequal sizes and unequal labels, and every sample belongs to one of them.

    Sizes are n_k = ⌊N · s_k / Σ s⌉ with s_k ~ Power(a), of density a·x^(a−1) on [0, 1]; if rounding leaves
    Σ n_k ≠ N, random clients get one more or one fewer. Clients are then filled one after the other: client
    k draws p_k ~ Dir(α·1) over the labels of which samples are left, and takes ⌊p_kc · n_k⌉ samples of label
    c, or as many as are left. By rounding, most clients get fewer than n_k samples, and some a few more. The
    remaining samples, smallest label first, fill clients up to n_k in their order; a few of the last clients
    may stay below n_k.

    With a = 3 and α = 1 it is the split of Shenaj et al., "Asynchronous Federated Continual Learning", 2023,
    for CIFAR-100 and 50, 100 or 500 clients. A client without samples gets one from the largest, unless
    `allow_empty` is set.
    """

    exponent: float = Field(3.0, gt=0, le=1e6, description="a: the larger, the more alike the sizes")
    alpha: Concentration = 1.0
    """Concentration α of a client's label proportions: small values make clients hold few labels."""
    allow_empty: bool = False
    """Whether clients may have no samples."""

    def assign(self, labels: Ints, owners: Ints | None, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Draw sizes, then labels client by client, then assign the remaining samples."""
        if not self.allow_empty:
            check_enough(self.clients, len(labels))
        sizes = self._sizes(len(labels), rng)
        pools = by_class(labels, rng)
        holders = self._fill(pools, sizes, rng)
        left = np.flatnonzero(holders == _UNASSIGNED)
        filled = np.bincount(np.delete(holders, left), minlength=self.clients)
        lacking = np.repeat(np.arange(self.clients), np.maximum(sizes - filled, 0))
        holders[left] = lacking[: len(left)]  # there are at least as many gaps, as Σ n_k = N
        if not self.allow_empty:
            holders = top_up(holders, self.clients, 1, rng)
        return group(pools.samples, holders, self.clients, rng)

    def _sizes(self, samples: int, rng: np.random.Generator) -> Ints:
        shares = rng.power(self.exponent, self.clients)
        sizes = np.rint(samples * (shares / shares.sum())).astype(np.int64)
        while missing := samples - int(sizes.sum()):
            able = np.flatnonzero(sizes) if missing < 0 else np.arange(self.clients)
            chosen = rng.choice(able, min(abs(missing), len(able)), replace=False)
            sizes[chosen] += np.sign(missing)
        return sizes if self.allow_empty else levelled(sizes, 1)

    def _draw(self, first: int, clients: int, classes: int, rng: np.random.Generator) -> Floats:
        """Logarithms of the Dirichlet draws [clients, classes] of the clients from `first` on."""
        return log_dirichlet(self.alpha, (clients, classes), rng)

    def _fill(self, pools: Pools, sizes: Ints, rng: np.random.Generator) -> Ints:
        """The client of each pooled sample, or `_UNASSIGNED`.

        Until a label runs out, clients are independent of each other and filled together. Those after the
        client that takes the last sample of a label draw again without it; their first draws weren't used.
        """
        holders = np.full(len(pools.samples), _UNASSIGNED, np.int64)
        stock, ends = pools.counts.copy(), pools.starts + pools.counts
        done, most = 0, max(1, _CELLS // pools.classes)
        block = most
        while done < self.clients and stock.any():
            together = sizes[done : done + block, None]
            shares = proportions(self._draw(done, len(together), pools.classes, rng), stock > 0)
            taken = np.rint(shares * together).astype(np.int64)
            emptied = np.flatnonzero(((np.cumsum(taken, axis=0) >= stock) & (stock > 0)).any(axis=1))
            if len(emptied):
                taken = taken[: emptied[0] + 1]
                taken[-1] = np.minimum(taken[-1], stock - taken[:-1].sum(axis=0))
            given = taken.sum(axis=0)
            first = np.repeat(ends - stock - (np.cumsum(given) - given), given)
            clients = np.tile(np.arange(done, done + len(taken)), pools.classes)
            holders[first + np.arange(len(first))] = np.repeat(clients, taken.T.ravel())
            stock -= given
            done += len(taken)
            block = min(max(2 * len(taken), _SMALLEST), most)
        return holders
