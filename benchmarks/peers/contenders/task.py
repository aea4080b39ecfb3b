"""What a contender is given: each client's samples, the initial weights, and who trains in which round."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contenders.models import build

SETTINGS, TENSORS = "task.json", "tensors.pt"
EVALUATED = 512
"""Samples on which a model is evaluated after a round."""


@dataclass(frozen=True)
class Task:
    """One work, read from a folder. Client k has the samples `starts[k]` to `starts[k + 1]`."""

    settings: dict[str, Any]
    samples: Tensor
    """Bytes [N, C, H, W], or floats [N, D]."""
    labels: Tensor
    starts: list[int]
    initial: list[Tensor]
    cohorts: list[list[int]]

    @classmethod
    def read(cls, folder: Path) -> Task:
        settings = json.loads((folder / SETTINGS).read_text())
        tensors = torch.load(folder / TENSORS, weights_only=True, mmap=True)
        starts, cohorts = tensors["starts"].tolist(), tensors["cohorts"].tolist()
        return cls(settings, tensors["samples"], tensors["labels"], starts, tensors["initial"], cohorts)

    @property
    def clients(self) -> int:
        return len(self.starts) - 1

    @property
    def cohort(self) -> int:
        return int(self.settings["cohort"])

    @property
    def epochs(self) -> int:
        return int(self.settings["epochs"])

    @property
    def batch(self) -> int:
        return int(self.settings["batch"])

    @property
    def lr(self) -> float:
        return float(self.settings["lr"])

    @property
    def scaffold(self) -> bool:
        return bool(self.settings["method"] == "scaffold")

    @property
    def convolutional(self) -> bool:
        return self.samples.dim() == 4

    def size(self, client: int) -> int:
        """The number of a client's samples."""
        return self.starts[client + 1] - self.starts[client]

    def chosen(self, round: int) -> list[int]:
        """The clients that train in a round, counted from 0; the same for all that can be told."""
        return self.cohorts[round % len(self.cohorts)]

    def of(self, client: int) -> tuple[Tensor, Tensor]:
        """A client's samples as floats, and their labels."""
        rows = slice(self.starts[client], self.starts[client + 1])
        return self.floats(self.samples[rows]), self.labels[rows]

    @staticmethod
    def floats(samples: Tensor) -> Tensor:
        return (samples.float() - 127.5) / 127.5 if samples.dtype == torch.uint8 else samples

    def model(self) -> nn.Module:
        """The model with its initial weights."""
        model = build(self.settings["model"], self.samples.shape[1:], self.settings["classes"])
        place(model, self.initial)
        return model

    @cached_property
    def _evaluated(self) -> tuple[Tensor, Tensor]:
        rows = torch.linspace(0, len(self.labels) - 1, min(EVALUATED, len(self.labels))).long()
        return self.floats(self.samples[rows]), self.labels[rows]

    @torch.no_grad()
    def loss(self, model: nn.Module) -> float:
        """Cross-entropy on a part of the training data; batch norms use the statistics of this part.

        (Not all peers average the statistics that a norm collects in training.)
        """
        x, y = self._evaluated
        return float(F.cross_entropy(copy.deepcopy(model).train()(x), y))


@torch.no_grad()
def place(model: nn.Module, values: list[Tensor]) -> None:
    """Copy parameters and buffers, given in the model's order, into it."""
    for own, value in zip(model.state_dict().values(), values, strict=True):
        own.copy_(value)
