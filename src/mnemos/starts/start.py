"""What a federation's model is before the first round: random, or an encoder that has learned something.

Only the encoder is taken over, with batch-norm's statistics; the head is drawn as the experiment's seed says.
"""

from __future__ import annotations

from mnemos.models.encoder import Encoder
from mnemos.models.model import Model
from mnemos.pretrain.train import Tell
from mnemos.registry import Part, Registry


class Start(Part):
    """The choice of what a model starts from; this one leaves it as it is."""

    def check(self, model: Model, shape: tuple[int, ...]) -> Encoder | None:
        """Refuse, in a moment, what can't work; gives the encoder, if it is there already."""
        return None

    def encoder(self, model: Model, shape: tuple[int, ...], tell: Tell) -> Encoder | None:
        """What takes the place of random weights, however long it takes; None: nothing does."""
        return None


starts: Registry[Start] = Registry("start", Start, "mnemos.starts")


@starts.register("random")
class Random(Start):
    """The weights that the model's layers draw, by the experiment's seed."""
