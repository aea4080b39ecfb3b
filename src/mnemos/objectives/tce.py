"""Truncated cross-entropy ("Reducing Forgetting in Federated Learning with Truncated Cross-Entropy")."""

from __future__ import annotations

from torch import Tensor

from mnemos.objectives.objective import LabelAware, objectives
from mnemos.objectives.softmax import nll, only_held, wide


@objectives.register("tce")
class TruncatedCrossEntropy(LabelAware):
    """Cross-entropy over the classes the client holds: −f_y + log Σ_{c: n_c > 0} exp f_c."""

    def __call__(self, logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        """Losses [B]."""
        return nll(only_held(wide(logits), counts), labels)
