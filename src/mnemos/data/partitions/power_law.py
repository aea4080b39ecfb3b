"""Sizes by a power law and Dirichlet labels: the partition of asynchronous federated continual learning."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from mnemos.data.partition import Ints, Partition, partitions
from mnemos.data.partitions._holders import check_enough, group, levelled
from mnemos.data.partitions._pools import Pools, by_class
from mnemos.data.proportions import Concentration, cumulative, cut, log_dirichlet

_NOBODY = -1
_CELLS = 1 << 21
"""Client × class proportions in memory at a time."""
_SMALLEST = 64
"""Clients that are filled together at least."""


@partitions.register("power-law")
class PowerLaw(Partition):
    """Clients have unequal sizes and unequal labels, and every sample belongs to one of them.

    Sizes are n_k = ⌊N · s_k / Σ s⌉ with s_k ~ Power(a), of density a·x^(a−1) on [0, 1]; where rounding leaves
    Σ n_k ≠ N, random clients get one more or one fewer. Clients are then filled one after the other: client
    k draws p_k ~ Dir(α·1) over the labels that are left and takes n_k·p_kc samples of label c (to whole
    numbers, by cutting n_k at the cumulative shares), or as many as there are. What is left at the end fills
    up the clients in their order, those with the smallest label first.

    With a = 3 and α = 1 it is the split of Shenaj et al., "Asynchronous Federated Continual Learning", 2023,
    for CIFAR-100 and 50, 100 or 500 clients. A client without samples gets one from the largest, unless
    `allow_empty` is set.
    """

    exponent: float = Field(3.0, gt=0, le=1e6, description="a: the larger, the more alike the sizes")
    alpha: Concentration = 1.0
    allow_empty: bool = False

    def deal(self, labels: Ints, owners: Ints | None, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Sizes first, then labels client by client, then what is left."""
        if not self.allow_empty:
            check_enough(self.clients, len(labels))
        sizes = self._sizes(len(labels), rng)
        pools = by_class(labels, rng)
        holders = self._fill(pools, sizes, rng)
        left = np.flatnonzero(holders == _NOBODY)
        got = np.bincount(np.delete(holders, left), minlength=self.clients)
        holders[left] = np.repeat(np.arange(self.clients), sizes - got)
        return group(pools.samples, holders, self.clients, rng)

    def _sizes(self, samples: int, rng: np.random.Generator) -> Ints:
        shares = rng.power(self.exponent, self.clients)
        sizes = np.rint(samples * (shares / shares.sum())).astype(np.int64)
        while missing := samples - int(sizes.sum()):
            able = np.flatnonzero(sizes) if missing < 0 else np.arange(self.clients)
            chosen = rng.choice(able, min(abs(missing), len(able)), replace=False)
            sizes[chosen] += np.sign(missing)
        return sizes if self.allow_empty else levelled(sizes, 1)

    def _fill(self, pools: Pools, sizes: Ints, rng: np.random.Generator) -> Ints:
        """The holder of each pooled sample, or nobody.

        Until a label runs out clients don't get in each other's way, so they are filled together. Those after
        the one who takes the last sample of a label draw again, without it: nothing of theirs has been used.
        """
        holders = np.full(len(pools.samples), _NOBODY, np.int64)
        stock, ends = pools.counts.copy(), pools.starts + pools.counts
        done, most = 0, max(1, _CELLS // pools.classes)
        block = most
        while done < self.clients and stock.any():
            together = sizes[done : done + block, None]
            logs = log_dirichlet(self.alpha, (len(together), pools.classes), rng)
            taken = cut(cumulative(logs, stock > 0), together)
            emptied = np.flatnonzero(((np.cumsum(taken, axis=0) >= stock) & (stock > 0)).any(axis=1))
            if len(emptied):
                taken = taken[: emptied[0] + 1]
                taken[-1] = np.minimum(taken[-1], stock - taken[:-1].sum(axis=0))
            given = taken.sum(axis=0)
            first = np.repeat(ends - stock - (np.cumsum(given) - given), given)
            who = np.tile(np.arange(done, done + len(taken)), pools.classes)
            holders[first + np.arange(len(first))] = np.repeat(who, taken.T.ravel())
            stock -= given
            done += len(taken)
            block = min(max(2 * len(taken), _SMALLEST), most)
        return holders
