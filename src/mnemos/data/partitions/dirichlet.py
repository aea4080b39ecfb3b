"""Label skew with equal sizes: the partition of the WSM and TCE papers."""

from __future__ import annotations

import numpy as np

from mnemos.data.partition import Floats, Ints, Partition, partitions
from mnemos.data.partitions._holders import check_enough
from mnemos.data.partitions._pools import by_class
from mnemos.data.proportions import Concentration, cumulative, log_dirichlet

_CELLS = 1 << 21
"""Client × class probabilities in memory at a time."""
_LARGEST, _SMALLEST = 1 << 18, 64
"""Bounds of the number of samples drawn at once."""


@partitions.register("dirichlet")
class Dirichlet(Partition):
    """Each client draws its label proportions q_k ~ Dir(α·1_C), then n = ⌊N/K⌋ samples.

    Clients are filled one after the other. Each sample's label is drawn from q_k, and the sample from those
    of that label that no client holds yet; a label that has run out is removed from every q_k, which is
    renormalised (Legate et al., "Re-Weighted Softmax Cross-Entropy to Control Forgetting in Federated
    Learning", 2023; after Hsu et al., "Measuring the Effects of Non-Identical Data Distribution", 2019).
    Small α: few labels per client; large α: like `iid`. The remaining N − K·n samples are not used.

    While no label has run out, the number X_c of client k's samples with label c is Dirichlet-multinomial:

        E[X_c] = n/C,  Var[X_c] = n · (1/C)(1 − 1/C) · (n + Cα) / (1 + Cα)

    A client's validation samples are the last ones that it drew.
    """

    alpha: Concentration = 0.1
    """Concentration α: small values make clients hold few labels."""

    def assign(self, labels: Ints, owners: Ints | None, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Draw the labels of all clients' samples, then take samples with these labels."""
        check_enough(self.clients, len(labels))
        size = len(labels) // self.clients
        pools = by_class(labels, rng)
        drawn = draw_labels(self.alpha, self.clients, size, pools.counts, rng)
        return pools.hand_out(drawn), size * np.arange(self.clients + 1, dtype=np.int64)


def draw_labels(alpha: float, clients: int, size: int, counts: Ints, rng: np.random.Generator) -> Ints:
    """The labels that clients draw, client after client, from `counts` samples of each label."""
    drawn = np.empty(clients * size, np.int64)
    stock = counts.copy()
    block = max(1, _CELLS // len(counts))
    for first in range(0, clients, block):
        last = min(first + block, clients)
        logs = log_dirichlet(alpha, (last - first, len(counts)), rng)
        _fill(drawn[first * size : last * size], size, logs, stock, rng)
    return drawn


def _fill(drawn: Ints, size: int, logs: Floats, stock: Ints, rng: np.random.Generator) -> None:
    """Draw the labels of a block of clients, taking them from the stock.

    This is the sample-by-sample procedure itself, not an approximation: until a label runs out, draws are
    independent of one another and can be made together. From the first draw of a label that has run out,
    draws are discarded and repeated without the label; they are independent of those that are kept. This
    happens at most C times, and the next chunk is then small, so that few draws are discarded.

    No row can become all zero: proportions are kept as logarithms, which stay finite, so a client whose
    labels have run out continues with the next most likely one, as it would in exact arithmetic.
    """
    done, chunk = 0, _LARGEST
    while done < len(drawn):
        client = np.arange(done, min(done + chunk, len(drawn))) // size
        first = int(client[0])
        odds = cumulative(logs[first : int(client[-1]) + 1], stock > 0)
        labels = _pick(odds, client - first, rng)
        kept = _served(labels, stock)
        drawn[done : done + kept] = labels[:kept]
        stock -= np.bincount(labels[:kept], minlength=len(stock))
        done += kept
        chunk = min(max(2 * kept, _SMALLEST), _LARGEST)


def _pick(odds: Floats, rows: Ints, rng: np.random.Generator) -> Ints:
    """A label for each row index: the first whose cumulative odds in that row exceed a uniform draw."""
    classes = odds.shape[1]
    flat, start = odds.ravel(), rows * classes
    uniform = rng.random(len(rows))
    low, high = np.zeros(len(rows), np.int64), np.full(len(rows), classes - 1)
    for _ in range((classes - 1).bit_length()):
        middle = (low + high) // 2
        beyond = flat[start + middle] <= uniform
        low = np.where(beyond, middle + 1, low)
        high = np.where(beyond, high, middle)
    return low


def _served(labels: Ints, stock: Ints) -> int:
    """The number of draws before the first one of a label that has run out."""
    over = np.flatnonzero(np.bincount(labels, minlength=len(stock)) > stock)
    return min((int(np.flatnonzero(labels == c)[stock[c]]) for c in over), default=len(labels))
