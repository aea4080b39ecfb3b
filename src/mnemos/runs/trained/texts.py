"""Texts for a trained model: as they are, from files and tables, or as token ids."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mnemos.data.sources.text import SUFFIXES, read_text, text_rows
from mnemos.errors import DataError
from mnemos.runs.trained.description import Description

_COLUMN = "text"
_FILES = (*SUFFIXES, ".txt")
_SHOWN = 40
"""Characters of a text that stand for it in a table of predictions."""


class Named(NamedTuple):
    """Texts, and what each of them is called."""

    texts: list[str]
    names: list[str]


def read_tokens(source: object, about: Description) -> tuple[Tensor, list[str]]:
    """The token ids [N, length] of a text, a file, a list of these, or an array of ids; and their names.

    A txt file is one text. A table has a column `text`, or one column alone.
    """
    items = source if isinstance(source, list | tuple) else [source]
    if not items or not all(isinstance(item, str | PathLike) for item in items):
        return _ids(source, about)
    found = [_named(item) for item in items]
    texts = [text for part in found for text in part.texts]
    names = [name for part in found for name in part.names]
    return about.vocabulary.encode(texts, about.shape[0]), names


def _named(item: Any) -> Named:
    if isinstance(item, str) and not _is_file(item):
        if not item.strip():
            raise DataError("found an empty text, and words are expected")
        one_line = " ".join(item.split())
        return Named([item], [one_line if len(one_line) <= _SHOWN else f"{one_line[: _SHOWN - 1]}…"])
    path = Path(item)
    if not path.is_file():
        what = "is a folder, and files are expected" if path.is_dir() else "doesn't exist"
        raise DataError(f"{path} {what}")
    if path.suffix.lower() == ".txt":
        return Named([read_text(path)], [str(path)])
    rows = text_rows(path)
    column = _COLUMN if _COLUMN in rows.columns or len(rows.columns) > 1 else next(iter(rows.columns))
    texts = rows.column(column)
    return Named(texts, [f"{path}:{row}" for row in range(len(texts))] if len(texts) > 1 else [str(path)])


def _is_file(text: str) -> bool:
    """Whether a string is a file's name rather than a text: it ends like one, and is one word or exists."""
    return text.lower().endswith(_FILES) and (len(text.split()) == 1 or Path(text).is_file())


def _ids(source: object, about: Description) -> tuple[Tensor, list[str]]:
    """Token ids as they are: one row, or several."""
    if isinstance(source, Tensor):
        source = source.detach().cpu().numpy()
    try:
        array = np.asarray(source)
    except ValueError:
        array = np.array([], object)
    length, ids = about.shape[0], about.vocabulary.ids
    array = array[None] if array.ndim == 1 else array
    if array.dtype.kind not in "iu" or array.shape[1:] != (length,) or not len(array):
        raise DataError(
            f"found {type(source).__name__} of type {array.dtype}; the model takes texts, files of texts, or "
            f"token ids [N, {length}]"
        )
    if array.min() < 0 or array.max() >= ids:
        raise DataError(f"the array has ids from {array.min()} to {array.max()}; allowed: 0 to {ids - 1}")
    x = torch.from_numpy(np.ascontiguousarray(array, np.int32))
    return x, [str(row) for row in range(len(x))]
