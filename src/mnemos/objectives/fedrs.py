"""Restricted softmax (Li, Zhan, 2021: FedRS, KDD)."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from mnemos.common.devices import double
from mnemos.objectives.objective import LabelAware, objectives
from mnemos.objectives.softmax import near_zero, nll, wide


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
        scores = wide(logits)
        # In double precision a product of two float32 numbers is exact; it is rounded once it is near zero.
        return nll(near_zero(double(scores) * scale).to(scores.dtype), labels)
