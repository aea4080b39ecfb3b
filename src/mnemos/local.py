"""How long and how a client trains in one round."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from mnemos.data.augment import Augmentation, augmentations
from mnemos.optim.optimizer import Optimizer, optimizers
from mnemos.optim.schedule import Constant, Schedule, schedules
from mnemos.optim.sgd import Sgd
from mnemos.registry import Options


class Local(Options):
    """Local training: epochs over the client's samples, or a number of steps whatever its size."""

    epochs: int = Field(1, ge=1, description="passes over the client's training samples")
    steps: int | None = Field(None, ge=1, description="instead of epochs: this many batches")
    batch: int = Field(64, ge=1, description="samples a step; a smaller last batch is used too")
    fill: bool = Field(False, description="fill a smaller last batch by repeating the client's samples")
    optimizer: Annotated[Optimizer, optimizers] = Sgd()
    optimizer_state: Literal["fresh", "kept"] = Field(
        "fresh", description="whether a client's optimiser goes on where its last round ended"
    )
    lr: float = Field(0.05, gt=0, description="local learning rate")
    schedule: Annotated[Schedule, schedules] = Constant()
    weight_decay: float = Field(0.0, ge=0, description="weight decay, coupled or not as the optimiser has it")
    augment: tuple[Annotated[Augmentation, augmentations], ...] = ()

    @property
    def keeps(self) -> bool:
        """Whether the optimiser's state outlives a round."""
        return self.optimizer_state == "kept"
