"""The interface of objectives: the loss that one client minimises on a batch."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from mnemos.common.registry import Part, Registry

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Losses [B] from logits [B, C], labels [B] and the client's number of samples of each class [C]."""
Counting = Literal["train", "all", "tasks"]


class Objective(Part):
    """A loss for each sample, a pure function of tensors."""

    over_all_classes: ClassVar[bool] = False
    """Whether it is plain cross-entropy, whichever classes the client holds."""

    @property
    def counted(self) -> Counting:
        """What is counted: training labels, validation labels too, or each class of the tasks met once."""
        return "train"

    @abstractmethod
    def __call__(self, logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        """Losses [B] from logits [B, C], labels [B] and the client's number of samples of each class [C].

        The counts are those of the present round, so they follow a client whose data changes.
        """


class LabelAware(Objective):
    """A loss that depends on how many samples of each class the client holds."""

    counting: Counting = Field(
        "train",
        description="the labels a client counts; all: those held out for validation too; tasks: each class "
        "of the tasks it has met so far once",
    )

    @property
    def counted(self) -> Counting:
        """The option `counting`."""
        return self.counting


objectives: Registry[Objective] = Registry("loss", Objective, "mnemos.objectives", "losses")
