"""What one client minimises on a batch."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from mnemos.registry import Part, Registry


class Objective(Part):
    """A loss for each sample, a pure function of tensors."""

    @abstractmethod
    def __call__(self, logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        """Losses [B] from logits [B, C], labels [B] and the client's number of samples of each class [C]."""


objectives: Registry[Objective] = Registry("loss", Objective, "mnemos.objectives")
