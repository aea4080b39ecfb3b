"""Cross-entropy."""

from __future__ import annotations

from torch import Tensor

from mnemos.objectives.objective import Objective, objectives
from mnemos.objectives.softmax import nll, wide


@objectives.register("ce")
class CrossEntropy(Objective):
    """Cross-entropy, −f_y + log Σ_c exp f_c, over all classes of the federation."""

    def __call__(self, logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        """Losses [B]; what the client holds plays no part."""
        return nll(wide(logits), labels)
