"""Samples for a trained model, from arrays and files, in the units of its training samples."""

from __future__ import annotations

import csv
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL.Image import Image
from torch import Tensor

from mnemos.data.sources._images import Decoder, describe_pixels
from mnemos.data.sources._store import read_array, read_arrays
from mnemos.errors import DataError
from mnemos.runs.trained.description import Description
from mnemos.runs.trained.texts import read_tokens

Array = NDArray[Any]
_NAMES = ("x", "x_test", "samples")
"""Names of the array in an npz file that is taken, if it has several; the first that is there."""


class Samples(NamedTuple):
    """Samples [N, …] in the units of the training samples, and what each of them is called."""

    x: Tensor
    names: list[str]


def read_samples(source: object, about: Description, *, resize: bool = False) -> Samples:
    """The samples of an array or tensor, of a file, of an image, or of a list of files, images or samples.

    For a model of texts, a string is a text. An array is one sample or a batch of them. With `resize`, images
    of another size are scaled.
    """
    if about.text:
        return Samples(*read_tokens(source, about))
    if isinstance(source, str | PathLike | Image):
        return _one(source, about, resize)
    if isinstance(source, list | tuple) and any(isinstance(item, str | PathLike | Image) for item in source):
        parts = [_one(item, about, resize) for item in source]
        return Samples(torch.cat([part.x for part in parts]), [name for part in parts for name in part.names])
    array = _array(source)
    x = _checked(_arranged(array, about, "the array"), about, "the array")
    return Samples(x, [str(index) for index in range(len(x))])


def _one(source: object, about: Description, resize: bool) -> Samples:
    """The samples of one file, one image, or one array."""
    if isinstance(source, Image):
        return Samples(_scaled(_decoded(source, "the image", about, resize), about, "the image"), ["image"])
    if not isinstance(source, str | PathLike):
        return read_samples(source, about)
    path = Path(source)
    name = str(path)
    if not path.is_file():
        what = "is a folder, and files are expected" if path.is_dir() else "doesn't exist"
        raise DataError(f"{name} {what}")
    readers = {".npy": read_array, ".npz": _npz, ".csv": _csv}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        return Samples(_scaled(_decoded(path, name, about, resize), about, name), [name])
    if reader is _csv and len(about.shape) != 1:
        raise DataError(f"{name}: the model takes images {_shape(about)}, and a csv file has rows of numbers")
    x = _checked(_arranged(reader(path), about, name), about, name)
    return Samples(x, [name] if len(x) == 1 else [f"{name}:{row}" for row in range(len(x))])


def _array(source: object) -> Array:
    if isinstance(source, Tensor):
        source = source.detach().cpu().numpy()
    elif isinstance(source, list | tuple) and any(isinstance(item, Tensor) for item in source):
        source = [_array(item) for item in source]
    try:
        array = np.asarray(source)
    except ValueError:
        raise DataError("the samples have different shapes, and all alike are expected") from None
    if array.dtype.kind not in "buif":
        raise DataError(
            f"found {type(source).__name__} of type {array.dtype}; expected numbers, images or files"
        )
    return array


def _npz(path: Path) -> Array:
    """The samples of an npz file: its only array, or the one with one of the usual names."""
    arrays = read_arrays(path)
    name = next(iter(arrays)) if len(arrays) == 1 else next((n for n in _NAMES if n in arrays), None)
    if name is None:
        found = ", ".join(sorted(arrays)) or "none"
        raise DataError(f"{path} has no array 'x'; found {found}, expected one array, or one of that name")
    return arrays[name]


def _csv(path: Path) -> Array:
    """The rows of a csv file with numbers; a first row with names is skipped."""
    rows: list[list[float]] = []
    try:
        with path.open(newline="", encoding="utf-8") as file:
            for line, cells in enumerate(csv.reader(file), 1):
                if not cells:
                    continue
                try:
                    rows.append([float(cell) for cell in cells])
                except ValueError:
                    if line > 1:
                        raise DataError(
                            f"{path}, line {line}: found text, and numbers are expected"
                        ) from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} can't be read as csv ({error})") from None
    if not rows:
        raise DataError(f"{path} has no rows of numbers")
    if len({len(row) for row in rows}) > 1:
        raise DataError(f"{path} has rows of different lengths")
    return np.array(rows, np.float64)


def _decoded(source: Path | Image, name: str, about: Description, resize: bool) -> Array:
    """An image's pixels [C, H, W], from 0 to 255."""
    if not about.image:
        raise DataError(f"{name}: the model takes {_shape(about)}; expected an npy, npz or csv file")
    channels, height, width = about.shape
    if channels not in (1, 3):
        raise DataError(f"{name}: the model takes images of {channels} channels; expected an npy or npz file")
    decode = Decoder(channels, (width, height) if resize else None)
    pixels = decode(source, name)
    if pixels.shape != about.shape:
        raise DataError(
            f"{name} is {describe_pixels(pixels.shape)}, and the model takes {describe_pixels(about.shape)}; "
            "--resize (in Python, resize=True) scales it"
        )
    return pixels


def _scaled(pixels: Array, about: Description, name: str) -> Tensor:
    """Pixels from 0 to 255 [C, H, W] as one sample in the units of the training samples [1, C, H, W]."""
    if about.span is None:
        raise DataError(
            f"{name}: the range of the training samples isn't known, so pixels can't be scaled to it; "
            "expected an npy or npz file with samples in their units"
        )
    black, white = about.span
    return torch.from_numpy((black + pixels / 255.0 * (white - black)).astype(np.float32))[None]


def _arranged(array: Array, about: Description, name: str) -> Array:
    """An array as a batch of samples, with the axes in the order that the model takes."""
    shape = about.shape
    forms: list[tuple[tuple[int, ...], tuple[int, ...] | None]] = [(shape, None)]
    if about.image:
        channels, height, width = shape
        forms.append(((height, width, channels), (0, 3, 1, 2)))
        if channels == 1:
            forms.append(((height, width), None))
    for batch in (array, array[None]):  # a batch, or else one sample
        for form, axes in forms:
            if batch.shape[1:] == form:
                return (batch if axes is None else batch.transpose(axes)).reshape(len(batch), *shape)
    raise DataError(
        f"{name} has the shape {array.shape}, and the model takes {_shape(about)}, or a batch of them"
    )


def _checked(array: Array, about: Description, name: str) -> Tensor:
    """Samples as float32; refuses values that the training samples can't have had."""
    if not len(array):
        raise DataError(f"{name} has no samples")
    x = torch.from_numpy(np.ascontiguousarray(array, np.float32))
    if not bool(torch.isfinite(x).all()):
        raise DataError(f"{name} has values that are not finite (NaN or infinity)")
    if about.image and about.kind == "uint8" and about.span is not None:
        least, most, white = float(x.min()), float(x.max()), about.span[1]
        small = array.dtype.kind == "f" and 0 < most <= 1 < white
        if least < 0 or most > white or small:
            raise DataError(
                f"{name} has values from {least:g} to {most:g}, and the model takes pixels from 0 to "
                f"{white:g}"
            )
    return x


def _shape(about: Description) -> str:
    """The shape of one sample in words."""
    if about.image:
        return f"of {describe_pixels(about.shape)}"
    return (
        f"samples of {about.shape[0]} numbers" if len(about.shape) == 1 else f"samples of shape {about.shape}"
    )
