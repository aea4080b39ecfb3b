"""One number per layer, and one per network, from the spectra of a layer's two sides."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from mnemos.ranks import quantities
from mnemos.ranks.spectra import Quantity, Spectra, ranked
from mnemos.vector import Layout

Name = Literal[
    "rank",
    "effective-rank",
    "effective-rank-exp",
    "stable-rank",
    "knowledge-gain",
    "condition-number",
    "stable-quality",
]
QUANTITIES: dict[Name, Quantity] = {
    "rank": lambda values, _: quantities.rank(values),
    "effective-rank": lambda values, _: quantities.entropy(values),
    "effective-rank-exp": lambda values, _: quantities.effective_rank(values),
    "stable-rank": lambda values, _: quantities.stable_rank(values),
    "knowledge-gain": quantities.knowledge_gain,
    "condition-number": lambda values, _: quantities.condition_number(values),
    "stable-quality": quantities.stable_quality,
}

Aggregation = Literal["l2", "l2-nonzero", "mean", "geometric", "weighted"]


def layer_values(models: Tensor, layout: Layout, quantity: Name, linear: bool = False) -> Tensor:
    """A quantity of each ranked layer of K models [K, P], the mean of its two sides [K, layers]."""
    return Spectra(models, layout, linear).of(QUANTITIES[quantity]).mean(-1)


def network_value(values: Tensor, layout: Layout, how: Aggregation, linear: bool = False) -> Tensor:
    """One number for a network, from a quantity of its layers' sides [..., layers, 2].

    - `l2`: ln √(Σ x² / d), d the number of values (equation 2.10 of the FedER thesis);
    - `l2-nonzero`: the same with d the number of values that aren't 0, as in its sister code;
    - `mean`, `geometric` (of the values that aren't 0), `weighted` (by the layers' smaller sides).

    The logarithm of a network without any rank is −∞.
    """
    flat = values.flatten(-2)
    if how == "mean":
        return flat.mean(-1)
    positive = (flat > 0).sum(-1).clamp_min(1)
    if how == "geometric":
        logs = torch.where(flat > 0, flat, 1.0).log().sum(-1) / positive
        return torch.where((flat > 0).any(-1), logs.exp(), 0.0)
    if how == "weighted":
        sizes = torch.tensor([min(slot.shape[:2]) for slot in ranked(layout, linear)], dtype=values.dtype)
        return (values.mean(-1) * sizes).sum(-1) / sizes.sum()
    count = positive if how == "l2-nonzero" else flat.shape[-1]
    return (flat.square().sum(-1) / count).sqrt().log()
