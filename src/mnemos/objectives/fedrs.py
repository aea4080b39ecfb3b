"""Restricted softmax (Li, Zhan, 2021: FedRS, KDD)."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from mnemos.objectives.objective import LabelAware, objectives
from mnemos.objectives.softmax import nll, wide


@objectives.register("fedrs")
class RestrictedSoftmax(LabelAware):
    """Cross-entropy of α_c f_c, with α_c = 1 for classes the client holds and `alpha` for the others."""

    alpha: float = Field(0.5, ge=0, le=1, description="scale of the logits of absent classes")
    soft: bool = Field(False, description="α_c = α + (1 − α) n_c / max n instead, as in the released code")

    def __call__(self, logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        """Losses [B]."""
        if self.soft:
            scale = self.alpha + (1 - self.alpha) * counts / counts.max().clamp_min(1)
        else:
            scale = torch.where(counts > 0, 1.0, self.alpha)
        return nll(wide(logits) * scale, labels)
