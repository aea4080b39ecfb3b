"""The options of a client's local training in a round."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, field_validator

from mnemos.common.registry import Options
from mnemos.data.augment import Augmentation, augmentations
from mnemos.data.partition import Ints
from mnemos.optim.optimizer import Optimizer, optimizers
from mnemos.optim.schedule import ConstantSchedule, Schedule, schedules
from mnemos.optim.sgd import Sgd

_Batches = TypeVar("_Batches", int, float)
_Samples = TypeVar("_Samples", int, Ints)

Precision = Literal["float32", "bf16", "tf32"]


def round_steps(steps: int | None, epochs: int, batches: _Batches) -> _Batches:
    """How many steps a client makes in a round: `steps`, or epochs times the batches of a pass."""
    return epochs * batches if steps is None else steps


class Local(Options):
    """Local training: epochs over the client's samples, or a fixed number of steps."""

    epochs: int = Field(1, ge=1, description="passes over the client's training samples")
    steps: int | None = Field(None, ge=1, description="instead of epochs: this many batches")
    batch: int = Field(64, ge=1, description="samples a step; a smaller last batch is used too")
    fill: bool = Field(False, description="fill a smaller last batch by repeating the client's samples")
    optimizer: Annotated[Optimizer, optimizers] = Sgd()
    """The optimiser of a client."""
    optimizer_state: Literal["fresh", "kept"] = Field(
        "fresh", description="whether a client's optimiser goes on where its last round ended"
    )
    lr: float = Field(0.05, gt=0, description="local learning rate")
    schedule: Annotated[Schedule, schedules] = ConstantSchedule()
    """How the learning rate changes over the rounds."""
    weight_decay: float = Field(0.0, ge=0, description="weight decay, coupled or not as the optimiser has it")
    augment: tuple[Annotated[Augmentation, augmentations], ...] = ()
    """How training images are changed at random."""
    precision: Precision = Field(
        "float32",
        description="of the model's passes: bf16, or tf32 on CUDA devices; everything else is float32",
    )

    @field_validator("precision", mode="before")
    @classmethod
    def _counted_steps(cls, value: Any) -> Any:
        if value == "fp16":
            raise ValueError(
                "found fp16, whose loss scaling skips steps, which methods that count steps can't have; "
                "allowed: float32, bf16, tf32"
            )
        return value

    @property
    def keeps(self) -> bool:
        """Whether the optimiser's state outlives a round."""
        return self.optimizer_state == "kept"

    def batches(self, samples: _Samples) -> _Samples:
        """How many batches a pass over this many samples has: ⌈samples / batch⌉."""
        return -(-samples // self.batch)

    def round_steps(self, samples: int) -> int:
        """How many steps a client with this many samples makes in a round; none without samples."""
        return round_steps(self.steps, self.epochs, self.batches(samples)) if samples else 0
