"""A model's weights before the first round: random, or those of a trained encoder.

Only the encoder is taken over, with batch-norm's statistics; the head is drawn by the experiment's seed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mnemos.common.registry import Part, Registry
from mnemos.models.encoder import Encoder
from mnemos.models.model import Model

if TYPE_CHECKING:  # random weights need no training
    from mnemos.pretrain.train import Tell


class Start(Part):
    """The choice of a model's first weights; the base class leaves them random."""

    @property
    def pretrained(self) -> bool:
        """Whether an encoder takes the place of random weights."""
        return type(self).encoder is not Start.encoder

    def check(self, model: Model, shape: tuple[int, ...]) -> Encoder | None:
        """Refuse what can't work, without training; returns the encoder, if it exists already."""
        return None

    def encoder(self, model: Model, shape: tuple[int, ...], tell: Tell) -> Encoder | None:
        """The encoder whose tensors replace the random ones, trained now if need be; None: there is none."""
        return None


starts: Registry[Start] = Registry("start", Start, "mnemos.starts")


@starts.register("random")
class RandomStart(Start):
    """The weights that the model's layers draw by the experiment's seed."""
