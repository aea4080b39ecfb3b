"""Cross-entropy."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from mnemos.objectives.objective import Objective, objectives
from mnemos.objectives.softmax import near_zero, nll, wide


@objectives.register("ce")
class CrossEntropy(Objective):
    """Cross-entropy, −f_y + log Σ_c exp f_c, over all classes of the federation."""

    over_all_classes: ClassVar[bool] = True

    def __call__(self, logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        """Losses [B], independent of the client's counts."""
        return nll(near_zero(wide(logits)), labels)
