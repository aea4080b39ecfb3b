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
    """A file that `mnemos pretrain` has written, or a run's `model.safetensors`, of the same model."""

    path: str = Field(min_length=1, description="a safetensors file")

    def check(self, model: Model, shape: tuple[int, ...]) -> Encoder | None:
        """The file can be read."""
        return load_encoder(expanded(self.path))

    def encoder(self, model: Model, shape: tuple[int, ...], tell: Tell) -> Encoder | None:
        """The file's tensors."""
        return self.check(model, shape)
