"""Clients that take the model and give nothing."""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from mnemos import rng
from mnemos.client import begin, finish, rates, ration, view
from mnemos.data.dataset import Dataset
from mnemos.data.partition import Ints
from mnemos.faults.fault import Pretence, faults, some
from mnemos.message import Task
from mnemos.methods.exchange import Update
from mnemos.vector import Layout, square_sum


@faults.register("free-riders")
class FreeRiders(Pretence):
    """Some clients send an update without having trained (Fraboni, Vidal, Lorenzi, 2021, arXiv 2006.11901).

    - `unchanged`: the model as it came, Δ = 0;
    - `noise`: Δ = scale · r · N(0, 1), with r the root mean square of the global model's last change (in the
      first round, a hundredth of that of the model itself);
    - `replay`: Δ = scale · the global model's last change (in the first round, 0).
    """

    share: float = Field(0.1, gt=0, le=1, description="share of the clients, at least one")
    kind: Literal["unchanged", "noise", "replay"] = "unchanged"
    scale: float = Field(1.0, gt=0, description="size of what is sent, of `noise` and `replay`")

    def pretenders(self, population: int, seed: int) -> Ints:
        """Drawn once."""
        return some(self.share, population, seed, "free-riders")

    def pretend(self, task: Task, last: Tensor) -> Tensor:
        """The update of one that didn't train."""
        if self.kind == "unchanged":
            return torch.zeros_like(task.model)
        if self.kind == "replay":
            return self.scale * last
        size = _rms(last) or 0.01 * _rms(task.model)
        generator = rng.generator(task.plan.seed, "free-riders", task.round, task.client)
        return self.scale * size * torch.randn(len(task.model), generator=generator)


def pretended(task: Task, delta: Tensor, dataset: Dataset, layout: Layout) -> Update:
    """The update of a client that sends this change instead of training."""
    client = view(task, dataset.train.labels, len(dataset.classes))
    pace = rates(task, ration(task, batch_norm=False))
    state = begin(task, task.model, layout)
    # It never saw a loss: what it would claim must not enter the records.
    return finish(task, client, task.model + delta, task.buffers, pace, float("nan"), {}, state)


def _rms(vector: Tensor) -> float:
    return math.sqrt(square_sum(vector) / len(vector))
