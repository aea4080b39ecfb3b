"""Arrays from compressed images (PNG, JPEG, …), all of one shape."""

from __future__ import annotations

import io
import struct
import zlib
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from mnemos.errors import DataError

_DAMAGED = (
    OSError,
    ValueError,
    SyntaxError,
    EOFError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)
"""Errors that Pillow's decoders raise for files that are not images or are cut off."""

_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
"""The formats that are read. Pillow has more, but starts another program for Encapsulated PostScript."""

_GREY = {"1", "L", "LA", "La"}


class Decoder:
    """Decodes images one after another, and refuses those whose shape differs from the first one's."""

    def __init__(self, channels: int | None, size: int | tuple[int, int] | None) -> None:
        """`size` that images are resized to: one number, or width and height; None: they keep theirs."""
        self.channels = channels
        self.size = (size, size) if isinstance(size, int) else size
        self._first: tuple[str, tuple[int, ...]] | None = None

    @property
    def used(self) -> bool:
        """Whether any image was decoded."""
        return self._first is not None

    def __call__(self, content: bytes | Path | Image.Image, where: str) -> NDArray[np.uint8]:
        """One image as [C, H, W]; `where` names it in errors."""
        pixels = self._decode(content, where)
        if self._first is None:
            self._first = (where, pixels.shape)
        first, shape = self._first
        if pixels.shape != shape:
            raise DataError(
                f"{where} is {describe_pixels(pixels.shape)} and {first} is {describe_pixels(shape)}; "
                f"set {_remedy(pixels.shape, shape)} to make all images alike"
            )
        return pixels

    def _decode(self, content: bytes | Path | Image.Image, where: str) -> NDArray[np.uint8]:
        try:
            with _opened(content) as image:
                if image.mode.startswith(("I", "F")):
                    raise DataError(
                        f"{where} has pixels of mode {image.mode}, and 8 bits a channel are expected"
                    )
                channels = self.channels or (1 if image.mode in _GREY else 3)
                # Through RGBA: Pillow warns if it drops a palette's transparency on its own.
                opaque = image.convert("RGBA") if "transparency" in image.info else image
                plain = opaque.convert("L" if channels == 1 else "RGB")
                if self.size is not None:
                    plain = plain.resize(self.size, Image.Resampling.BILINEAR)
                pixels = np.array(plain, dtype=np.uint8)
        except _DAMAGED as error:
            raise DataError(f"{where} can't be read as an image ({_short(error)})") from None
        return pixels[None] if channels == 1 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _opened(content: bytes | Path | Image.Image) -> AbstractContextManager[Image.Image]:
    """The image of a file or of its content; one that is open already stays open."""
    if isinstance(content, Image.Image):
        return nullcontext(content)
    return Image.open(io.BytesIO(content) if isinstance(content, bytes) else content, formats=_FORMATS)


def describe_pixels(shape: tuple[int, ...]) -> str:
    """`8×8 with 1 channel`, from [C, H, W]."""
    channels, height, width = shape
    return f"{height}×{width} with {channels} channel{'s' if channels > 1 else ''}"


def _remedy(shape: tuple[int, ...], other: tuple[int, ...]) -> str:
    """The options that make images of two shapes alike."""
    names = ["'channels'"] * (shape[0] != other[0]) + ["'size'"] * (shape[1:] != other[1:])
    return " and ".join(names)


def _short(error: BaseException) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "its format is not known"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
