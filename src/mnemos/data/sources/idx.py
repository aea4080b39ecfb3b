"""MNIST and Fashion-MNIST in the idx format (LeCun, Cortes, Burges; Xiao et al., 2017), plain or gzipped.

A file is a big-endian header (a magic number that gives type and number of axes, then the axes' lengths)
and the bytes of the array.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import BinaryIO, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray

from mnemos.data.dataset import Dataset, Source, Split, sources
from mnemos.data.download import RemoteFile, obtain
from mnemos.data.folder import data_folder, what_to_put
from mnemos.data.sources._arrays import finish
from mnemos.data.sources._room import check_room
from mnemos.errors import DataError

_IMAGES, _LABELS = 2051, 2049
_CHUNK = 1 << 20
_MAGIC = {_IMAGES: ("images", 3), _LABELS: ("labels", 1)}


class _Idx(Source):
    """Four idx files in a folder of the data folder."""

    base: ClassVar[str]
    checksums: ClassVar[dict[str, str]]
    """MD5 of the gzipped files, as published."""
    classes: ClassVar[tuple[str, ...]]

    @classmethod
    def is_there(cls) -> bool:
        """Whether all four files are in the data folder."""
        return all(_find(data_folder() / cls.name, name) for name in cls.checksums)

    def load(self) -> Dataset:
        """The data set from the data folder, downloaded if it isn't there."""
        folder = data_folder() / type(self).name
        absent = [name for name in self.checksums if _find(folder, name) is None]
        remotes = [RemoteFile(f"{self.base}{name}.gz", self.checksums[name]) for name in absent]
        advice = what_to_put([f"{name}.gz" for name in absent], folder)
        obtain(type(self).name, remotes, folder, advice)
        train, test = (self._split(folder, part) for part in ("train", "t10k"))
        return finish(type(self).name, train, test, self.classes)

    def _split(self, folder: Path, part: str) -> Split:
        image_file = _existing(folder, f"{part}-images-idx3-ubyte")
        label_file = _existing(folder, f"{part}-labels-idx1-ubyte")
        images, labels = read_idx(image_file, _IMAGES), read_idx(label_file, _LABELS)
        if images.shape[1:] != (28, 28):
            raise DataError(
                f"{image_file} has images of {images.shape[1]}×{images.shape[2]}, and 28×28 is expected"
            )
        if len(images) != len(labels):
            raise DataError(
                f"{image_file} has {len(images)} images and {label_file.name} {len(labels)} labels"
            )
        if len(labels) and labels.max() >= len(self.classes):
            raise DataError(
                f"{label_file}: found the label {labels.max()}, and 0 to {len(self.classes) - 1} are expected"
            )
        return Split(torch.from_numpy(images[:, None]), torch.from_numpy(labels.astype(np.int64)))


@sources.register("mnist")
class Mnist(_Idx):
    """70,000 handwritten digits of 28×28."""

    base = "https://ossci-datasets.s3.amazonaws.com/mnist/"
    checksums: ClassVar[dict[str, str]] = {
        "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
    }
    classes = tuple("0123456789")


@sources.register("fashion-mnist")
class FashionMnist(_Idx):
    """70,000 grey images of clothes of 28×28, as a harder MNIST."""

    base = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
    checksums: ClassVar[dict[str, str]] = {
        "train-images-idx3-ubyte": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte": "bb300cfdad3c16e7a12a480ee83cd310",
    }
    classes = (
        "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
        "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
    )  # fmt: skip


def read_idx(file: Path, magic: int) -> NDArray[np.uint8]:
    """The array of an idx file whose magic number must be 2051 (images) or 2049 (labels)."""
    what, axes = _MAGIC[magic]
    try:
        with _open(file) as stream:
            header = stream.read(4 + 4 * axes)
            if len(header) < 4 + 4 * axes:
                raise DataError(f"{file} has {len(header)} bytes, which is less than the header of {what}")
            found, *shape = struct.unpack(f">{1 + axes}I", header)
            if found != magic:
                raise DataError(
                    f"{file} begins with the magic number {found}, and {magic} ({what}) is expected"
                )
            size = math.prod(shape)
            if file.suffix == ".gz":  # an uncompressed file holds no more than its own size
                check_room(size, file)
            content = _read(stream, size + 1)  # one byte more, to notice surplus ones
    except (EOFError, zlib.error) as error:
        raise DataError(f"{file} is a damaged gzip file ({error})") from None
    except OSError as error:
        raise DataError(f"{file} can't be read ({error.strerror or error})") from None
    if len(content) != size:
        amount = "more" if len(content) > size else f"only {len(content)}"
        raise DataError(f"{file} announces {' × '.join(map(str, shape))} bytes of {what} and has {amount}")
    try:
        return np.frombuffer(content, dtype=np.uint8).reshape(shape)
    except ValueError:  # one axis is empty, and the others are too long for an array
        raise DataError(f"{file} announces {' × '.join(map(str, shape))} bytes of {what}") from None


def _read(stream: BinaryIO, limit: int) -> bytearray:
    """Up to `limit` bytes, read in pieces, as a damaged header may announce more than memory holds."""
    content = bytearray()
    while chunk := stream.read(min(_CHUNK, limit - len(content))):
        content += chunk
    return content


def _open(file: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(file)) if file.suffix == ".gz" else file.open("rb")


def _find(folder: Path, name: str) -> Path | None:
    return next((file for file in (folder / name, folder / f"{name}.gz") if file.is_file()), None)


def _existing(folder: Path, name: str) -> Path:
    file = _find(folder, name)
    if file is None:
        raise DataError(f"{folder / name} has disappeared while the data set was read")
    return file
