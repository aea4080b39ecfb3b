"""The options of pre-training: the fractals, and the training on them."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, field_validator
from torch import nn

from mnemos.client.trainer import has_batch_norm
from mnemos.common import rng
from mnemos.common.registry import Options
from mnemos.data.fractals import Fractals, Ground
from mnemos.data.fractals.systems import check_transforms
from mnemos.errors import ConfigError
from mnemos.models.encoder import body_of, digest, head_of
from mnemos.models.model import Model, build_model
from mnemos.optim.adam import Adam
from mnemos.optim.local import round_steps
from mnemos.optim.optimizer import Optimizer, optimizers
from mnemos.optim.schedule import Cosine, Schedule, schedules
from mnemos.vector import Layout
from mnemos.version import __version__

_FORMAT = 1
"""A version that is raised when the same options give another encoder."""


class Pretraining(Options):
    """Fractals, computed while they are needed, and the training on them."""

    classes: int = Field(100, ge=2, description="fractals, each with a system of its own")
    images: int = Field(500, ge=1, description="images a class")
    labels: Literal["single", "multi"] = Field(
        "single", description="one fractal an image, or one to five smaller ones"
    )
    transforms: tuple[int, int] = Field((2, 4), description="the fewest and the most maps of a system")
    background: Ground = Field("clouds", description="what is behind the fractals")
    epochs: int = Field(1, ge=1, description="passes over the images")
    steps: int | None = Field(None, ge=1, description="instead of epochs: this many batches")
    batch: int = Field(64, ge=1)
    """Images in a batch."""
    optimizer: Annotated[Optimizer, optimizers] = Adam()
    """The optimiser."""
    lr: float = Field(1e-3, gt=0)
    """Learning rate."""
    schedule: Annotated[Schedule, schedules] = Field(Cosine(), description="its time is counted in steps")
    weight_decay: float = Field(0.0, ge=0)
    """Weight decay of the optimiser."""
    seed: int = Field(0, ge=0, lt=2**63, description="of fractals, weights and order")

    @field_validator("transforms")
    @classmethod
    def _in_order(cls, value: tuple[int, int]) -> tuple[int, int]:
        return check_transforms(value)

    @property
    def epoch(self) -> int:
        """The number of full batches in one pass; the remaining images are left out of this pass."""
        return max(1, self.classes * self.images // self.batch)

    @property
    def total(self) -> int:
        """The number of all batches."""
        return round_steps(self.steps, self.epochs, self.epoch)

    def fractals(self, shape: tuple[int, ...]) -> Fractals:
        """The fractals as images of a shape; refuses shapes that fractals can't have."""
        if len(shape) != 3 or shape[1] != shape[2] or shape[0] not in (1, 3) or not 8 <= shape[1] <= 1024:
            raise ConfigError(
                f"the data's samples have the shape {shape}; fractals are square images of 1 or 3 channels "
                "and 8 to 1024 pixels a side"
            )
        channels: Literal[1, 3] = 1 if shape[0] == 1 else 3
        return Fractals(self.classes, shape[1], self.seed, self.transforms, channels, self.background)

    def build(self, model: Model, shape: tuple[int, ...]) -> nn.Module:
        """The model before its first step, with one output per class of fractals."""
        return build_model(model, shape, self.classes, rng.generator(self.seed, "model"))

    def verify(self, model: Model, shape: tuple[int, ...]) -> None:
        """Refuse, with a `ConfigError`, what can't be trained."""
        self.fractals(shape)
        module = self.build(model, shape)
        body_of(module.state_dict(), head_of(module, shape))
        if has_batch_norm(module) and min(self.batch, self.classes * self.images) == 1:
            raise ConfigError("found 1, but batch-norm needs at least 2 samples a batch", "batch")
        try:
            self.optimizer.check(Layout.of(module), kept=False, decay=self.weight_decay)
        except ConfigError as error:
            raise error.under("optimizer") from None

    def key(self, model: Model, shape: tuple[int, ...]) -> str:
        """Sixteen hexadecimal digits of everything that determines the encoder."""
        module = self.build(model, shape)
        # With layers and first weights, because a user's own module may change under the same name.
        parts = [self.facts(model, shape), repr(module), digest(module.state_dict()), torch.__version__]
        return hashlib.sha256(json.dumps([_FORMAT, *parts], sort_keys=True).encode()).hexdigest()[:16]

    def facts(self, model: Model, shape: tuple[int, ...]) -> dict[str, Any]:
        """The model and all options, as plain data."""
        options = {name: self.model_dump(mode="json")[name] for name in Pretraining.model_fields}
        return {
            "data": "fractals",
            "model": model.dump(),
            "shape": list(shape),
            "options": options,
            "mnemos": __version__,
        }
