"""An encoder that is trained on fractals first, once for all runs that ask for it."""

from __future__ import annotations

from mnemos.models.encoder import Encoder
from mnemos.models.model import Model
from mnemos.pretrain.cache import obtain
from mnemos.pretrain.pretraining import Pretraining
from mnemos.pretrain.train import Tell
from mnemos.starts.start import Start, starts


@starts.register("fractals")
class FromFractals(Pretraining, Start):
    """The experiment's model, trained on fractals of its data's size, and kept in the cache folder.

    It has a seed of its own: all seeds of an experiment start from the same encoder.
    """

    def check(self, model: Model, shape: tuple[int, ...]) -> Encoder | None:
        """Refuse what can't be trained."""
        self.verify(model, shape)
        return None

    def encoder(self, model: Model, shape: tuple[int, ...], tell: Tell) -> Encoder | None:
        """The encoder from the cache, or trained now."""
        return obtain(self, model, shape, tell)
