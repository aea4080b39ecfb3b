"""Logits calibration (Zhang et al., 2022: FedLC, arXiv 2209.00189)."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from mnemos.objectives.objective import LabelAware, objectives
from mnemos.objectives.softmax import near_zero, nll, only_held, pick, wide


@objectives.register("fedlc")
class LogitsCalibration(LabelAware):
    """Cross-entropy of f_c − τ n_c^(−1/4): rare classes must win by a larger margin."""

    tau: float = Field(1.0, ge=0, description="strength of the margins")
    missing: float = Field(1e-8, ge=1e-30, description="n_c of a class the client doesn't hold")
    denominator: Literal["all", "others"] = Field(
        "all", description="others: without the sample's own class, as printed in the paper; unbounded below"
    )

    def __call__(self, logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        """Losses [B]."""
        margins = self.tau * torch.where(counts > 0, counts, self.missing).pow(-0.25)
        if self.denominator == "all":
            return nll(near_zero(wide(logits), lambda scores: scores - margins) - margins, labels)
        others = labels[:, None] != torch.arange(logits.shape[1], device=labels.device)
        scores = near_zero(wide(logits), lambda scores: only_held(scores - margins, others)) - margins
        return only_held(scores, others).logsumexp(1) - pick(scores, labels)
