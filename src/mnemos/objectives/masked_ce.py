"""Masked cross-entropy (Diao, Ding, Tarokh, 2021: HeteroFL, arXiv 2010.01264)."""

from __future__ import annotations

import torch
from torch import Tensor

from mnemos.objectives.objective import LabelAware, objectives
from mnemos.objectives.softmax import near_zero, nll, wide


@objectives.register("masked-ce")
class MaskedCrossEntropy(LabelAware):
    """Cross-entropy after the logits of classes the client doesn't hold are set to 0.

    They stay in the sum as constants, m classes adding m · exp 0, but receive no gradient.
    """

    def __call__(self, logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        """Losses [B]."""
        return nll(near_zero(torch.where(counts > 0, wide(logits), 0.0)), labels)
