"""Data sets of texts: token ids from a vocabulary that is built from the training part, or given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mnemos.data.dataset import Dataset, Split, check
from mnemos.data.sources._arrays import SampleTable, divide
from mnemos.data.vocabulary import Vocabulary, build_vocabulary, check_words, words_of
from mnemos.errors import DataError


@dataclass(frozen=True)
class Texts:
    """Texts with their labels and owners, as they were read."""

    texts: Sequence[str]
    labels: NDArray[Any]
    owners: NDArray[Any] | None = None


@dataclass(frozen=True)
class Tokens:
    """How texts become token ids."""

    most: int
    """The most words of a vocabulary that is built from the training part."""
    length: int
    """The most words of a text that are kept: its first."""
    vocabulary: Vocabulary | None = None
    """A given vocabulary. With it, every text has exactly `length` places, whatever the data."""


def read_words(path: Path) -> Vocabulary:
    """The vocabulary in a file with one word per line."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text") from None
    except OSError as error:
        raise DataError(f"{path} can't be read ({error.strerror or error})") from None
    return check_words([line.strip() for line in lines if line.strip()], str(path))


def text_dataset(
    name: str,
    parts: tuple[Texts, Texts | None],
    tokens: Tokens,
    *,
    where: str,
    share: float,
    classes: Sequence[str] | None = None,
) -> Dataset:
    """A data set from texts for training and texts for testing; `build` in `_arrays` has the same arguments.

    Words are counted in the training part alone: what a model knows of the test part is what it will know of
    any new text.
    """
    given = [part for part in parts if part is not None]
    texts = [text for part in given for text in part.texts]
    rows = np.split(np.arange(len(texts)), np.cumsum([len(part.texts) for part in given])[:-1])
    tables = [SampleTable(row, part.labels, part.owners) for row, part in zip(rows, given, strict=True)]
    divided = divide(
        tables, [torch.from_numpy(row) for row in rows], where=where, share=share, classes=classes
    )
    training = [texts[row] for row in divided.train.samples.tolist()]
    vocabulary, length = tokens.vocabulary, tokens.length
    if vocabulary is None:
        vocabulary = build_vocabulary(training, tokens.most, where)
        length = min(length, max(len(words_of(text)) for text in training))

    def encoded(split: Split) -> Split:
        return replace(
            split, samples=vocabulary.encode([texts[row] for row in split.samples.tolist()], length)
        )

    train, test = encoded(divided.train), encoded(divided.test)
    if not bool(train.samples.any(1).any()) or not bool((train.samples > 1).any()):
        raise DataError(f"{where}: no training text has a word of the vocabulary")
    return check(Dataset(name, train, test, divided.classes, (), (), divided.owners, vocabulary=vocabulary))
