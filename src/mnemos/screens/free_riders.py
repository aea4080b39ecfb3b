"""Clients that didn't train, known by their updates.

Fraboni, Vidal, Lorenzi, 2021, arXiv 2006.11901, describe what such a client can send: the model as it came,
or disguised by noise, or by what it knows of the model's last change.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from mnemos.methods.exchange import Cohort, State
from mnemos.ranks.layers import QUANTITIES
from mnemos.ranks.spectra import Spectra
from mnemos.screens.screen import Screen, screens


@screens.register("free-riders")
class FreeRiders(Screen):
    """Puts aside updates with nothing of their own: all but a multiple of the last global change, and noise.

    Of every update Δ the part along the last change of the global model is taken off. A client is a free
    rider if what is left

    - is shorter than `short` times the cohort's median (the model as it came, or a replay at any scale); or
    - is noise: EVBMF finds less than `poor` times the cohort's median rank in its layers, and its direction
      agrees with the sum of the others' no more than a random one does, |cos| < 5 / √P.

    A cohort of fewer than three has nobody to compare with, and nobody is put aside; updates that aren't
    finite are no company. Where the model has no layer with a rank, only lengths are compared.
    """

    fewest: ClassVar[int] = 3

    short: float = Field(0.01, gt=0, lt=1, description="length below which nothing was learnt")
    poor: float = Field(0.1, gt=0, lt=1, description="rank below which there is no structure")

    def judge(self, cohort: Cohort, last: Tensor, memory: State) -> dict[int, str]:
        """Who rides free, and how it shows."""
        updates = [update for update in cohort.updates if bool(update.delta.isfinite().all())]
        if len(updates) < self.fewest:
            return {}
        own = torch.stack([update.delta for update in updates])
        along = last / last.norm().clamp_min(torch.finfo(last.dtype).tiny)
        own -= torch.outer(own @ along, along)
        lengths = own.norm(dim=1)
        found = {}
        ranks = Spectra(own, cohort.layout, linear=True).of(QUANTITIES["rank"]).mean(-1).sum(-1)
        others = own.sum(0) - own
        agreement = torch.nn.functional.cosine_similarity(own, others, dim=1).abs()
        random = 5 / math.sqrt(cohort.layout.size)
        for k, update in enumerate(updates):
            if lengths[k] < self.short * lengths.median():
                found[update.client] = "free rider, nothing of its own"
            elif ranks[k] < self.poor * ranks.median() and agreement[k] < random:
                found[update.client] = "free rider, nothing but noise"
        return found
