"""Clients that receive the model and send updates without training."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from mnemos.client.messages import TrainRequest
from mnemos.client.reply import Trained, finish, optimizer_state, view
from mnemos.client.workload import rates, workload
from mnemos.common import rng
from mnemos.common.devices import send
from mnemos.data.dataset import Dataset
from mnemos.data.partition import Ints
from mnemos.faults.fault import Pretence, faults, some
from mnemos.methods.exchange import TrainReply
from mnemos.vector import Layout, square_sum


@faults.register("free-riders")
class FreeRiders(Pretence):
    """Some clients send an update without training (Fraboni, Vidal, Lorenzi, 2021, arXiv 2006.11901).

    - `unchanged`: the model that they received, Δ = 0;
    - `noise`: Δ = scale · r · N(0, 1), with r the root mean square of the global model's last change (in the
      first round, a hundredth of that of the model itself);
    - `replay`: Δ = scale · the global model's last change (in the first round, 0);
    - `low-rank`: all free riders of a round send the same update, with a tenth of noise of their own. Each
      layer is scale · r · U V with normal factors U and V of rank `rank` (biases and other vectors are
      normal). It has ranks like a learnt update, and free riders agree with each other.
    """

    share: float = Field(0.1, gt=0, le=1, description="share of the clients, at least one")
    kind: Literal["unchanged", "noise", "replay", "low-rank"] = "unchanged"
    """What the clients send."""
    scale: float = Field(1.0, gt=0, description="size of what is sent, of all but `unchanged`")
    rank: int = Field(4, ge=1, description="rank of each layer of what is sent, of `low-rank`")

    def clients(self, population: int, seed: int) -> Ints:
        """A share of the clients, drawn once for the run."""
        return some(self.share, population, seed, "free-riders")

    def pretend(self, request: TrainRequest, last: Tensor, layout: Layout) -> Tensor:
        """The update of a client that didn't train, by kind."""
        if self.kind == "unchanged":
            return torch.zeros_like(request.model)
        if self.kind == "replay":
            return self.scale * last
        size = self.scale * (_rms(last) or 0.01 * _rms(request.model))
        generator = rng.generator(request.plan.seed, "free-riders", request.round, request.client)
        drawn = torch.randn(len(request.model), generator=generator)
        if self.kind == "low-rank":
            drawn = self._agreed(request, layout) + _OWN * drawn
        return size * drawn.to(request.model.device)

    def _agreed(self, request: TrainRequest, layout: Layout) -> Tensor:
        """The part that all free riders of a round have in common, of variance 1."""
        generator = rng.generator(request.plan.seed, "free-riders", request.round)
        update = layout.zeros()
        for slot in layout.parameters:
            matrix = update[slot.start : slot.stop].view(slot.shape[0] if slot.shape else 1, -1)
            rows, columns = matrix.shape
            rank = min(self.rank, rows, columns)
            left = torch.randn(rows, rank, generator=generator)
            right = torch.randn(rank, columns, generator=generator)
            matrix.copy_(left @ right / math.sqrt(rank))
        return update


def pretended(request: TrainRequest, delta: Tensor, dataset: Dataset, layout: Layout) -> TrainReply:
    """The update of a client that sends this change instead of training."""
    device = request.model.device
    client, state, buffers = send(
        (view(request, dataset.train.labels, len(dataset.classes)), request.state, request.buffers), device
    )
    request = replace(request, state=state)
    pace = rates(request, workload(request, batch_norm=False))
    optimizer = optimizer_state(request, request.model, layout)
    # It has no loss: NaN, which `finish` leaves, keeps it out of the records.
    return finish(request, client, Trained(request.model + delta, buffers, pace, {}, optimizer))


_OWN = 0.1
"""Noise of each free rider's own, relative to the common part."""


def _rms(vector: Tensor) -> float:
    return math.sqrt(square_sum(vector) / len(vector))
