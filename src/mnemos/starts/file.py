"""An encoder from a file."""

from __future__ import annotations

from pydantic import Field

from mnemos.data.folder import expanded
from mnemos.models.encoder import Encoder, load_encoder
from mnemos.models.model import Model
from mnemos.pretrain.train import Tell
from mnemos.starts.start import Start, starts


@starts.register("file")
class File(Start):
    """The encoder of a file that `mnemos pretrain` wrote, or of a run's `model.safetensors`."""

    path: str = Field(min_length=1, description="a safetensors file")

    def check(self, model: Model, shape: tuple[int, ...]) -> Encoder | None:
        """The file's encoder; refuses a file that can't be read."""
        return load_encoder(expanded(self.path))

    def encoder(self, model: Model, shape: tuple[int, ...], tell: Tell) -> Encoder | None:
        """The file's encoder."""
        return self.check(model, shape)
