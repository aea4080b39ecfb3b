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


_NOTHING = -1e30
"""For −∞: its exponential is 0, and no sum or difference with a logit is anything but finite."""


def only_held(scores: Tensor, counts: Tensor) -> Tensor:
    """The scores of the classes a client holds; the others' count for nothing in a sum of exponentials."""
    return torch.where(counts > 0, scores, _NOTHING)


def log_proportions(counts: Tensor) -> Tensor:
    """log β_c, β_c = n_c / Σ n; to be added to scores, of which absent classes then count for nothing."""
    # log β is the log-softmax of log n. Few operations, because they are taken in every step.
    return counts.log().clamp_min(_NOTHING).log_softmax(0)
