"""A folder of images: `train/<class>/*.png` and `test/<class>/*.png`, or just `<class>/*.png`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from mnemos.data.dataset import Dataset, Source, sources
from mnemos.data.folder import locate
from mnemos.data.sources._arrays import SampleTable, build
from mnemos.data.sources._images import Decoder
from mnemos.errors import DataError

_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}

Files = dict[str, list[Path]]


@sources.register("folder")
class Folder(Source):
    """Your own images, one folder per class; without a test folder, a test part is split off."""

    path: str = Field(min_length=1)
    """The folder, with a folder for each class, or with `train` and `test` that have them."""
    size: int | None = Field(None, ge=1, le=4096)
    """Width and height that images are resized to; if left out, all must be equal already."""
    channels: Literal[1, 3] = 3
    """Channels that images are converted to."""
    test: float = Field(0.2, gt=0, lt=1)
    """Share of each class that is for testing, if there is no test folder."""

    def load(self) -> Dataset:
        """The images, class by class in the order of names."""
        path = locate(self.path)
        if not path.is_dir():
            raise DataError(
                f"{path} is not a folder, and one with a folder of images for each class is expected"
            )
        train, test = (
            None
            if part is None
            else class_files(part, _SUFFIXES, "images", "<class>/<name>.png (or jpg, bmp, webp, …)")
            for part in folder_parts(path)
        )
        assert train is not None
        classes = ordered({*train, *(test or {})})
        decode = Decoder(self.channels, self.size)
        tables = [_table(part, classes, decode) for part in (train, test) if part is not None]
        return build(
            path.name, (tables[0], tables[1] if test is not None else None),
            where=str(path), share=self.test, classes=classes, layout="nchw",
        )  # fmt: skip


def folder_parts(path: Path) -> tuple[Path, Path | None]:
    """The folders with the training classes and the test classes; the second is None if there is none."""
    train, test = path / "train", path / "test"
    if test.is_dir() and not train.is_dir():
        raise DataError(f"{path} has a folder 'test' and no folder 'train'; both or neither are expected")
    return train if train.is_dir() else path, test if test.is_dir() else None


def class_files(folder: Path, suffixes: Collection[str], what: str, expected: str) -> Files:
    """The files of each class's folder; those with other suffixes are ignored.

    `what` is what an error calls the files, and `expected` where they should be.
    """
    found: Files = {}
    for entry in sorted(folder.iterdir()):
        if entry.is_dir() and not entry.name.startswith("."):
            files = [file for file in sorted(entry.rglob("*")) if _is_one(file, suffixes)]
            if files:
                found[entry.name] = files
    if not found:
        raise DataError(f"{folder} has no {what}; they are expected as {expected}")
    return found


def _is_one(file: Path, suffixes: Collection[str]) -> bool:
    return file.suffix.lower() in suffixes and not file.name.startswith(".") and file.is_file()


def ordered(names: set[str]) -> list[str]:
    """Sorted names; by value if all are numbers, so that the folder 10 comes after 9."""
    numbers = all(name.isdecimal() for name in names)
    return sorted(names, key=lambda name: (int(name) if numbers else 0, name))


def _table(files: Files, classes: Sequence[str], decode: Decoder) -> SampleTable:
    listed = [(label, file) for label, name in enumerate(classes) for file in files.get(name, [])]
    first = decode(listed[0][1], str(listed[0][1]))
    samples = np.empty((len(listed), *first.shape), dtype=np.uint8)
    for row, (_, file) in enumerate(listed):
        samples[row] = decode(file, str(file))
    return SampleTable(samples, np.array([label for label, _ in listed], dtype=np.int64))
