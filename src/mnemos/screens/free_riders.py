"""A screen that recognises clients that didn't train by their updates.

Fraboni, Vidal, Lorenzi, 2021, arXiv 2006.11901, describe what such a client can send: the model that it
received, plain, with noise, or with the model's last change.
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
class FreeRiderScreen(Screen):
    """Rejects updates that consist of a multiple of the last global change, and noise.

    The component along the last change of the global model is removed from every update Δ. A client is a
    free rider if the rest

    - is shorter than `short` times the cohort's median (an unchanged model, or a replay at any scale); or
    - is noise: EVBMF finds less than `poor` times the cohort's median rank in its layers, and its direction
      agrees with the sum of the others' no more than a random one does, |cos| < 5 / √P.

    In a cohort of fewer than three finite updates there is nothing to compare, and none is rejected. If the
    model has no layer with a rank, only lengths are compared.
    """

    fewest: ClassVar[int] = 3

    short: float = Field(0.01, gt=0, lt=1, description="length below which nothing was learnt")
    poor: float = Field(0.1, gt=0, lt=1, description="rank below which there is no structure")

    def judge(self, cohort: Cohort, last: Tensor, memory: State) -> dict[int, str]:
        """The free riders, each with the reason."""
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
