"""What is needed to use a model: its architecture, the samples it takes, and the classes it returns.

A run's model.safetensors has the description in its header, an exported folder in config.json.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, model_validator
from safetensors import SafetensorError, safe_open

from mnemos.common.plain import parse_json
from mnemos.common.registry import Options
from mnemos.common.shapes import TokenShape
from mnemos.data.dataset import Dataset
from mnemos.data.vocabulary import Vocabulary
from mnemos.errors import ConfigError, DataError
from mnemos.methods.head import Head
from mnemos.models.model import Model, models
from mnemos.version import __version__

HEADER = "mnemos"
"""The key of the description in the header of a safetensors file."""

Size = Annotated[int, Field(ge=1)]
_BYTES = (0.0, 255.0)


class Description(Options):
    """What is needed to use a trained model without the run that has trained it."""

    format: Literal[1] = 1
    mnemos: str = Field(__version__, description="the version that has trained the model")
    model: Annotated[Model, models] = Field(description="the architecture")
    head: Head = Field(Head(), description="how outputs become the classes' logits")
    batch_statistics: bool = Field(
        False, description="whether batch-norm uses each batch's statistics when it predicts, too"
    )
    shape: tuple[Size, ...] = Field(min_length=1, description="of one sample: (C, H, W), (D,) or (words,)")
    kind: str = Field("float32", description="the number type of the training samples")
    mean: tuple[float, ...] = Field(
        description="per channel or feature: samples become (x − mean) / std; empty for texts, as is `std`"
    )
    std: tuple[Annotated[float, Field(gt=0)], ...]
    span: tuple[float, float] | None = Field(
        None, description="black and white in the training samples' units; None: unknown, or no images"
    )
    words: tuple[str, ...] = Field(
        (), description="if samples are texts: the words with the token ids 2, 3, …; 0 is padding, 1 unknown"
    )
    classes: tuple[str, ...] = Field(min_length=1, description="the classes' names, in the outputs' order")
    peers: tuple[int, ...] = Field((), description="the client of each model, if every client has its own")
    data: str = Field("", description="the data set's name")
    experiment: str = Field("", description="the experiment's hash")
    rounds: int = Field(0, ge=0)
    accuracy: float | None = None

    @model_validator(mode="after")
    def _fits(self) -> Description:
        for name in ("mean", "std"):
            found = len(getattr(self, name))
            if found != (0 if self.text else self.shape[0]):
                raise ValueError(f"found {found} numbers in '{name}'; samples have {self.shape[0]} channels")
        return self

    @property
    def image(self) -> bool:
        """Whether samples are images."""
        return len(self.shape) == 3

    @property
    def text(self) -> bool:
        """Whether samples are texts: rows of token ids."""
        return bool(self.words)

    @property
    def takes(self) -> Literal["images", "texts", "features"]:
        """What samples are."""
        return "images" if self.image else "texts" if self.text else "features"

    @property
    def vocabulary(self) -> Vocabulary:
        """The words that the model knows."""
        return Vocabulary(self.words)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of one sample, as models are built with it."""
        return TokenShape(self.shape, self.vocabulary.ids) if self.text else self.shape

    @property
    def branches(self) -> int:
        """How many models there are: more than one if clients have different models."""
        mixture = self.model.mixture
        return 1 if mixture is None else len(mixture.of)

    def branch(self, index: int) -> Description:
        """The description of one of several models."""
        mixture = self.model.mixture
        assert mixture is not None
        one = {"model": mixture.of[index].model, "peers": (), "accuracy": None}
        return self.model_copy(update=one)  # the accuracy is that of all models together


def describe(dataset: Dataset, model: Model, head: Head, **facts: Any) -> Description:
    """The description of a model that was trained on a data set; `facts` are its other fields."""
    return Description(
        model=model,
        head=head,
        shape=tuple(dataset.shape),
        kind=str(dataset.train.samples.dtype).removeprefix("torch."),
        mean=dataset.mean,
        std=dataset.std,
        span=_span(dataset),
        words=() if dataset.vocabulary is None else dataset.vocabulary.words,
        classes=dataset.classes,
        data=dataset.name,
        **facts,
    )


def _span(dataset: Dataset) -> tuple[float, float] | None:
    """Black and white, by which an image file's pixels from 0 to 255 are scaled to the samples' units.

    Bytes reach from 0 to 255, unless they stay in the lower half: the digits have 16 for white.
    """
    samples = dataset.train.samples
    if len(dataset.shape) != 3:
        return None
    if samples.dtype == torch.uint8:
        most = 0.0 if dataset.remote else float(samples.max())
        return _BYTES if most > 127 or not most else (0.0, most)
    if dataset.remote:
        return None
    least, most = float(samples.min()), float(samples.max())
    return (min(least, 0.0), most) if most > 0 else None


def parse_description(text: str | bytes, where: Path | str) -> Description:
    """A description from JSON; `where` is the file that errors name."""
    try:
        values = parse_json(text)
        if not isinstance(values, dict):
            raise ValueError(where)
    except ValueError:
        raise DataError(f"{where}: the model's description is damaged") from None
    try:
        return Description.parse(values)
    except ConfigError as error:
        raise DataError(f"{where}: the model's description can't be used: {error}") from None


def header(path: Path) -> str | None:
    """The description in a safetensors file's header, as JSON; None if it has none."""
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path}: can't be read as safetensors ({error})") from None
    found = metadata.get(HEADER)
    return found if isinstance(found, str) else None
