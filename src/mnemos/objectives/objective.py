"""What one client minimises on a batch."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

from pydantic import Field
from torch import Tensor

from mnemos.registry import Part, Registry


class Objective(Part):
    """A loss for each sample, a pure function of tensors."""

    @property
    def counts_held_out(self) -> bool:
        """Whether a client counts its validation labels too, not only those it trains on."""
        return False

    @abstractmethod
    def __call__(self, logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        """Losses [B] from logits [B, C], labels [B] and the client's number of samples of each class [C].

        The counts are taken anew in every round, so they follow a client whose data changes.
        """


class LabelAware(Objective):
    """A loss that depends on how many samples of each class the client holds."""

    counting: Literal["train", "all"] = Field(
        "train", description="the labels a client counts; all: those held out for validation too"
    )

    @property
    def counts_held_out(self) -> bool:
        """Whether a client counts its validation labels too, not only those it trains on."""
        return self.counting == "all"


objectives: Registry[Objective] = Registry("loss", Objective, "mnemos.objectives")
