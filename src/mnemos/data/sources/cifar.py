"""CIFAR-10 and CIFAR-100 in their binary format (Krizhevsky, 2009).

A file is a sequence of records: one label byte (CIFAR-100: a coarse and a fine one), then 3,072 pixel bytes,
channel by channel and row by row.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch

from mnemos.data.dataset import Dataset, Source, Split, sources
from mnemos.data.download import RemoteFile, obtain
from mnemos.data.folder import data_folder, missing, what_to_put
from mnemos.data.sources._archive import unpack
from mnemos.data.sources._arrays import finish
from mnemos.errors import DataError

_PIXELS = 3 * 32 * 32


class _Cifar(Source):
    """Reads the files of both data sets."""

    folder: ClassVar[str]
    remote: ClassVar[RemoteFile]
    train_files: ClassVar[tuple[str, ...]]
    test_files: ClassVar[tuple[str, ...]]
    extra_files: ClassVar[tuple[str, ...]]
    label_bytes: ClassVar[int]

    @classmethod
    def is_there(cls) -> bool:
        """Whether all files are in the data folder, or the archive that has them."""
        there = not missing(data_folder() / cls.folder, (*cls.train_files, *cls.test_files))
        return there or (data_folder() / cls.remote.file).is_file()

    def _load(self, label: int, count: int, names_file: str) -> Dataset:
        """The data set of `count` classes whose labels are byte `label` of each record."""
        folder = self._find()
        train = self._read([folder / name for name in self.train_files], label, count)
        test = self._read([folder / name for name in self.test_files], label, count)
        return finish(type(self).name, train, test, _class_names(folder / names_file, count))

    def _find(self) -> Path:
        """The folder with all files, downloaded and unpacked if they are missing."""
        folder = data_folder() / self.folder
        needed = (*self.train_files, *self.test_files)
        archive = data_folder() / self.remote.file
        if not missing(folder, needed):
            return folder
        advice = f"{what_to_put(needed, folder)}; {archive.name} in {archive.parent} will do, too"
        downloaded = not archive.is_file()
        if downloaded:
            obtain(type(self).name, [self.remote], archive.parent, advice)
        unpack(archive, {*needed, *self.extra_files}, folder)
        if absent := missing(folder, needed):
            raise DataError(f"{archive} holds no {absent[0]}; {advice}")
        if downloaded:
            archive.unlink(missing_ok=True)
        return folder

    def _read(self, files: list[Path], label: int, count: int) -> Split:
        records = [self._records(file) for file in files]
        for file, batch in zip(files, records, strict=True):
            highest = int(batch[:, label].max())
            if highest >= count:
                raise DataError(f"{file}: found the label {highest}, and 0 to {count - 1} are expected")
        pixels = np.concatenate([batch[:, self.label_bytes :] for batch in records])
        labels = np.concatenate([batch[:, label] for batch in records])
        samples = torch.from_numpy(pixels.reshape(-1, 3, 32, 32))
        return Split(samples, torch.from_numpy(labels.astype(np.int64)))

    def _records(self, file: Path) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
        record = self.label_bytes + _PIXELS
        try:
            content = np.fromfile(file, dtype=np.uint8)
        except OSError as error:
            raise DataError(f"{file} can't be read ({error.strerror or error})") from None
        if not len(content) or len(content) % record:
            raise DataError(
                f"{file} has {len(content)} bytes, and whole records of {record} bytes are expected"
            )
        return content.reshape(-1, record)


@sources.register("cifar10")
class Cifar10(_Cifar):
    """60,000 colour images of 32×32 in 10 classes."""

    folder = "cifar-10-batches-bin"
    remote = RemoteFile(
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"
    )
    train_files = tuple(f"data_batch_{index}.bin" for index in range(1, 6))
    test_files = ("test_batch.bin",)
    extra_files = ("batches.meta.txt",)
    label_bytes = 1

    def load(self) -> Dataset:
        """CIFAR-10 from the data folder, downloaded if it isn't there."""
        return self._load(0, 10, "batches.meta.txt")


@sources.register("cifar100")
class Cifar100(_Cifar):
    """60,000 colour images of 32×32 in 100 classes, or in 20 coarse ones."""

    labels: Literal["fine", "coarse"] = "fine"
    """The 100 fine classes, or the 20 coarse ones."""

    folder = "cifar-100-binary"
    remote = RemoteFile(
        "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"
    )
    train_files = ("train.bin",)
    test_files = ("test.bin",)
    extra_files = ("fine_label_names.txt", "coarse_label_names.txt")
    label_bytes = 2

    def load(self) -> Dataset:
        """CIFAR-100 from the data folder, downloaded if it isn't there."""
        fine = self.labels == "fine"
        return self._load(1 if fine else 0, 100 if fine else 20, f"{self.labels}_label_names.txt")


def _class_names(file: Path, count: int) -> list[str]:
    """The names of the classes, one per line of a file; their numbers if there is no such file."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return [str(label) for label in range(count)]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} can't be read as text ({error})") from None
    names = [line.strip() for line in text.splitlines() if line.strip()]
    if len(names) != count:
        raise DataError(f"{file} has {len(names)} names of classes, and {count} are expected")
    return names
