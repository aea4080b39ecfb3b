"""Quantities of a spectrum [..., L], a layer's singular values, in which zeros count as absent.

Of a spectrum without any value, all quantities are 0.
"""

from __future__ import annotations

import torch
from torch import Tensor


def rank(values: Tensor) -> Tensor:
    """The number of positive values."""
    return (values > 0).sum(-1).to(values.dtype)


def entropy(values: Tensor) -> Tensor:
    """H = −Σ p ln p with p = σ / Σ σ, the Shannon entropy of the normalised values: FedER's effective rank.

    Equation 2.9 of the FedER thesis (Fu, 2022) lacks the minus sign.
    """
    total = values.sum(-1, keepdim=True)
    entropies: Tensor = torch.special.entr(values / torch.where(total > 0, total, 1.0))
    return entropies.sum(-1)


def effective_rank(values: Tensor) -> Tensor:
    """e^H, a number of dimensions (Roy, Vetterli, 2007); 0 for a spectrum without values."""
    return torch.where(rank(values) > 0, entropy(values).exp(), 0.0)


def stable_rank(values: Tensor) -> Tensor:
    """Σ σ² / σ₁², the usual definition."""
    return (values / _max(values)).square().sum(-1)


def knowledge_gain(values: Tensor, rows: int) -> Tensor:
    """Σ (σ / σ₁) / L, L the rows of the unfolding: the stable rank of RMSGD, the knowledge gain of AdaS.

    Hosseini, Tuli, Plataniotis, 2022, arXiv 2203.16723.
    """
    return (values / _max(values)).sum(-1) / rows


def condition_number(values: Tensor) -> Tensor:
    """κ = σ₁ divided by the smallest positive value."""
    least = torch.where(values > 0, values, torch.inf).amin(-1)
    return values.amax(-1) / least


def stable_quality(values: Tensor, rows: int) -> Tensor:
    """arctan2(knowledge gain, 1 − 1/κ) (Jaegerman et al., 2021): how much is mapped, and how evenly."""
    condition = condition_number(values)
    inverse = torch.where(condition > 0, 1 / condition.clamp_min(1), 1.0)
    return torch.atan2(knowledge_gain(values, rows), 1 - inverse)


def _max(values: Tensor) -> Tensor:
    """The greatest value, or 1 if there is none, so that quotients by it are 0."""
    greatest = values.amax(-1, keepdim=True)
    return torch.where(greatest > 0, greatest, 1.0)
