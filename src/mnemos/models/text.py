"""Small models of texts: an embedding of token ids, pooled over the words.

Both take rows of token ids and know padding by its id, 0. They are made of plain layers and a mask (not of
`nn.EmbeddingBag` and `padding_idx`), so that a cohort of them runs under `vmap`.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from mnemos.common.shapes import TokenShape
from mnemos.errors import ConfigError
from mnemos.models.model import Classifier, Model, models

_PADDING = 0


class Embedded(nn.Module):
    """Token ids [B, length] as vectors [B, length, width], which are 0 for padding."""

    def __init__(self, ids: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(ids, width)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The vectors, and 1 for each word and 0 for padding [B, length, 1]."""
        real = (x != _PADDING).unsqueeze(-1).to(self.embedding.weight.dtype)
        return self.embedding(x) * real, real


class MeanOfWords(nn.Module):
    """The mean of the words' vectors [B, width]; 0 for a text without words."""

    def __init__(self, ids: int, width: int) -> None:
        super().__init__()
        self.words = Embedded(ids, width)

    def forward(self, x: Tensor) -> Tensor:
        """Σ vectors / number of words."""
        vectors, real = self.words(x)
        mean: Tensor = vectors.sum(1) / real.sum(1).clamp_min(1)
        return mean


class Phrases(nn.Module):
    """The strongest answer of each filter to any phrase of the text [B, filters × sizes]."""

    def __init__(self, ids: int, width: int, filters: int, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.words = Embedded(ids, width)
        self.filters = nn.ModuleList(nn.Conv1d(width, filters, size) for size in sizes)

    def forward(self, x: Tensor) -> Tensor:
        """The maximum of ReLU(filter) over all phrases that begin with a word; 0 for a text without words."""
        vectors, real = self.words(x)
        along, begins = vectors.transpose(1, 2), real.transpose(1, 2)
        answers = (layer(along).relu() for layer in self.filters)
        return torch.cat([(found * begins[:, :, : found.shape[2]]).amax(2) for found in answers], 1)


class TextModel(Model):
    """A model of texts: a body from token ids to features, dropout, hidden layers of ReLU units, a head."""

    convolutions: ClassVar[bool] = False
    takes_numbers: ClassVar[bool] = False
    takes_tokens: ClassVar[bool] = True

    width: PositiveInt = Field(32, description="numbers in a word's vector")
    hidden: tuple[PositiveInt, ...] = Field((), description="units of hidden layers; none: a linear model")
    dropout: float = Field(0.0, ge=0, lt=1, description="share of the text's features that is dropped")

    def build(self, shape: tuple[int, ...], classes: int) -> Classifier:
        """For texts."""
        assert isinstance(shape, TokenShape)
        body, size = self.body(shape)
        layers: list[nn.Module] = [body]
        if self.dropout:
            layers.append(nn.Dropout(self.dropout))
        for units in self.hidden:
            layers += [nn.Linear(size, units), nn.ReLU(inplace=True)]
            size = units
        return Classifier(nn.Sequential(*layers), size, classes)

    @abstractmethod
    def body(self, shape: TokenShape) -> tuple[nn.Module, int]:
        """The layers from token ids to features, and the number of features."""


@models.register("text")
class Text(TextModel):
    """The mean of a text's word vectors, and a linear head on it: word order doesn't count."""

    def body(self, shape: TokenShape) -> tuple[nn.Module, int]:
        """The mean of the words' vectors."""
        return MeanOfWords(shape.ids, self.width), self.width


@models.register("text-cnn")
class TextCNN(TextModel):
    """Filters over phrases of a few words, each with its maximum over the text (Kim, arXiv 1408.5882)."""

    convolutions: ClassVar[bool] = True

    filters: PositiveInt = Field(32, description="filters of each size")
    sizes: tuple[PositiveInt, ...] = Field((2, 3), min_length=1, description="words in a phrase, by filter")

    def body(self, shape: TokenShape) -> tuple[nn.Module, int]:
        """Filters of all sizes, side by side."""
        (length,) = shape
        if max(self.sizes) > length:
            raise ConfigError(f"found {max(self.sizes)}; texts have {length} words at most", "sizes")
        return Phrases(shape.ids, self.width, self.filters, self.sizes), self.filters * len(self.sizes)
