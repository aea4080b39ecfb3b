"""Re-weighted softmax cross-entropy (WSM), and balanced softmax, which has the same gradient."""

from __future__ import annotations

from torch import Tensor

from mnemos.objectives.objective import LabelAware, objectives
from mnemos.objectives.softmax import log_proportions, near_zero, nll, wide


@objectives.register("wsm")
class ReweightedSoftmax(LabelAware):
    """Cross-entropy whose softmax weights each class by its share of the client's samples.

    −f_y + log Σ_c β_c exp f_c, with β_c the share of class c among the client's samples.

    Legate, Caccia, Belilovsky, 2023, arXiv 2304.05260, equation 4. Classes the client doesn't hold have
    β_c = 0: they are neither pushed down nor pulled up.
    """

    def __call__(self, logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        """Losses [B]."""
        shares = log_proportions(counts)
        scores = near_zero(wide(logits), shares.add)
        return nll(scores, labels, shares)


@objectives.register("balanced")
class BalancedSoftmax(LabelAware):
    """Cross-entropy of logits that are shifted by the log of the client's class counts.

    −f_y − log n_y + log Σ_c n_c exp f_c (Ren et al., 2020, arXiv 2007.10740), with the client's counts.

    It differs from `wsm` by −log β_y, which no parameter can change: the gradients are the same.
    """

    def __call__(self, logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        """Losses [B]."""
        shares = log_proportions(counts)
        return nll(near_zero(wide(logits), shares.add) + shares, labels)
