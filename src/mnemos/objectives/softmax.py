"""What the losses share: the negative log-likelihood of re-weighted or calibrated logits."""

from __future__ import annotations

import torch
from torch import Tensor


def wide(logits: Tensor) -> Tensor:
    """The logits in float32 at least: sums of exponentials lose too much in half precision."""
    return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits


def pick(scores: Tensor, labels: Tensor) -> Tensor:
    """Each sample's score at its own label [B]."""
    return scores.gather(1, labels[:, None]).squeeze(1)


def nll(scores: Tensor, labels: Tensor) -> Tensor:
    """−s_y + log Σ_c exp s_c for each sample [B]."""
    return scores.logsumexp(1) - pick(scores, labels)


def only_held(scores: Tensor, counts: Tensor) -> Tensor:
    """The scores of the classes a client holds; the others' count for nothing in a sum of exponentials.

    They become the lowest finite number rather than −∞, so that no difference of two of them is NaN.
    """
    return torch.where(counts > 0, scores, torch.finfo(scores.dtype).min)


def log_proportions(counts: Tensor) -> Tensor:
    """log β_c of the classes a client holds, β_c = n_c / Σ n; 0 for the others, which `only_held` masks."""
    held = counts > 0
    return torch.where(held, (counts / counts.sum().clamp_min(1)).clamp_min(1e-30).log(), 0.0)
