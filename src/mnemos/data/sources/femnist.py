"""FEMNIST in LEAF's JSON format (Caldas et al., 2018): handwriting of 62 classes, by writer.

Each file has `users`, `num_samples` and `user_data`, which maps a writer to `x` (784 floats per image, from
0 to 1, where 1 is the white paper) and `y`. Parsing takes long, so the arrays are kept in a converted file.
"""

from __future__ import annotations

import hashlib
import json
import string
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mnemos.data.dataset import Dataset, Source, Split, sources
from mnemos.data.folder import VARIABLE, cache_folder, data_folder, stamp
from mnemos.data.sources._arrays import finish
from mnemos.data.sources._store import read_arrays, write_arrays
from mnemos.errors import DataError

_CLASSES = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)
_PARTS = ("train", "test")
_VERSION = 1
"""The version of the converted file: files of other versions are rebuilt."""
_KEPT = {"x": np.dtype(np.uint8), "y": np.dtype(np.int64), "owners": np.dtype(np.int64)}
"""Columns of the converted file."""

Arrays = dict[str, NDArray[Any]]


@sources.register("femnist")
class Femnist(Source):
    """Handwritten digits and letters of 28×28 by thousands of writers, who are the natural owners."""

    @classmethod
    def is_there(cls) -> bool:
        """Whether there are files of both parts in the data folder."""
        return all(any((data_folder() / "femnist" / part).glob("*.json")) for part in _PARTS)

    def load(self) -> Dataset:
        """FEMNIST from LEAF's JSON files in the data folder."""
        folder = data_folder() / "femnist"
        files = {part: sorted((folder / part).glob("*.json")) for part in _PARTS}
        for part in _PARTS:
            if not files[part]:
                raise DataError(_advice(folder, part))
        key = _key(folder)
        arrays = _recall(folder, key)
        if arrays is None:
            arrays = _convert(files)
            _keep(folder, key, arrays)
        train, test = (_split(arrays, part) for part in _PARTS)
        return finish("femnist", train, test, _CLASSES, arrays["writers"].tolist())


def _advice(folder: Path, part: str) -> str:
    return (
        f"femnist: there are no JSON files in {folder / part}; they are not published for download, so run "
        "'./preprocess.sh -s niid --sf 1.0 -k 0 -t sample --tf 0.9' in data/femnist of "
        "https://github.com/TalwalkarLab/leaf and put its folders data/train and data/test into "
        f"{folder}, or set {VARIABLE} to the folder that holds 'femnist'"
    )


def _convert(files: dict[str, list[Path]]) -> Arrays:
    """The arrays of all files; owners are indices into the sorted writers."""
    blocks = {part: [block for file in files[part] for block in _read(file)] for part in _PARTS}
    writers = sorted({writer for part in _PARTS for writer, _, _ in blocks[part]})
    index = {writer: position for position, writer in enumerate(writers)}
    arrays: Arrays = {"writers": np.array(writers, dtype=np.str_)}
    for part in _PARTS:
        owners = [np.full(len(labels), index[writer]) for writer, _, labels in blocks[part]]
        arrays[f"x_{part}"] = np.concatenate([pixels for _, pixels, _ in blocks[part]])
        arrays[f"y_{part}"] = np.concatenate([labels for _, _, labels in blocks[part]])
        arrays[f"owners_{part}"] = np.concatenate(owners).astype(np.int64)
    return arrays


def _read(file: Path) -> list[tuple[str, NDArray[np.uint8], NDArray[np.int64]]]:
    """(writer, images [N, 1, 28, 28], labels) for each writer of a file."""
    try:
        with file.open(encoding="utf-8") as stream:
            content = json.load(stream)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file} is not JSON ({error})") from None
    except OSError as error:
        raise DataError(f"{file} can't be read ({error.strerror or error})") from None
    users, counts, data = (
        _key_of(content, key, kind, file)
        for key, kind in (("users", list), ("num_samples", list), ("user_data", dict))
    )
    if len(users) != len(counts):
        raise DataError(f"{file} has {len(users)} 'users' and {len(counts)} 'num_samples'")
    blocks = []
    for user, count in zip(users, counts, strict=True):
        where = f"{file}: writer {user}"
        entry = _key_of(data, user, dict, file)
        labels = _labels(_key_of(entry, "y", list, where), where)
        pixels = _pixels(_key_of(entry, "x", list, where), where)
        if not len(pixels) == len(labels) == count:
            raise DataError(
                f"{where} has {len(pixels)} images and {len(labels)} labels, and {count} are announced"
            )
        blocks.append((str(user), pixels, labels))
    if not blocks:
        raise DataError(f"{file} has no 'users'")
    return blocks


def _key_of(content: Any, key: Any, kind: type, where: object) -> Any:
    found = content.get(key) if isinstance(content, dict) and isinstance(key, str) else None
    if not isinstance(found, kind):
        what = "missing" if found is None else f"a {type(found).__name__}"
        raise DataError(
            f"{where}: '{key}' is {what}, and a {'list' if kind is list else 'mapping'} is expected"
        )
    return found


def _pixels(rows: list[Any], where: str) -> NDArray[np.uint8]:
    if not rows:
        return np.empty((0, 1, 28, 28), dtype=np.uint8)
    try:
        values = np.array(rows, dtype=np.float32).reshape(len(rows), -1)
    except (ValueError, TypeError, OverflowError):
        raise DataError(f"{where} has images that are not lists of equally many numbers") from None
    if values.shape[1] != 784:
        raise DataError(f"{where} has images of {values.shape[1]} pixels, and 784 are expected")
    if not ((values >= 0) & (values <= 1)).all():  # false for NaN, too
        raise DataError(f"{where} has pixels outside 0 to 1")
    return np.rint(values * 255).astype(np.uint8).reshape(-1, 1, 28, 28)


def _labels(values: list[Any], where: str) -> NDArray[np.int64]:
    try:
        labels = np.array(values, dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        raise DataError(f"{where} has labels that are not numbers") from None
    if labels.ndim != 1 or not np.isin(labels, np.arange(len(_CLASSES))).all():
        raise DataError(f"{where} has labels that are not whole numbers from 0 to {len(_CLASSES) - 1}")
    return labels.astype(np.int64)


def _split(arrays: Arrays, part: str) -> Split:
    samples, labels, owners = (
        torch.from_numpy(arrays[f"{column}_{part}"]) for column in ("x", "y", "owners")
    )
    return Split(samples, labels, owners)


def _key(folder: Path) -> str:
    """A key that is equal if the JSON files have the same names, sizes and times."""
    files = [(part, *entry) for part in _PARTS for entry in stamp(folder / part)]
    return hashlib.blake2b(repr((_VERSION, files)).encode(), digest_size=16).hexdigest()


def _converted_files(folder: Path) -> list[Path]:
    """The possible paths of the converted file: in the data folder, or in the user's cache."""
    name = hashlib.blake2b(str(folder.resolve()).encode(), digest_size=8).hexdigest()
    return [folder.parent / ".cache" / "femnist.npz", cache_folder() / "converted" / f"femnist-{name}.npz"]


def _recall(folder: Path, key: str) -> Arrays | None:
    for path in _converted_files(folder):
        with suppress(DataError):  # absent or damaged: it is made again
            arrays = read_arrays(path)
            if str(arrays.get("key")) == key and _whole(arrays):
                return arrays
    return None


def _whole(arrays: Arrays) -> bool:
    """Whether a converted file has all arrays with their types and shapes."""
    columns = {f"{name}_{part}": kind for name, kind in _KEPT.items() for part in _PARTS}
    return (
        arrays.keys() >= {"writers", *columns}
        and arrays["writers"].dtype.kind == "U"
        and arrays["writers"].ndim == 1
        and all(
            arrays[name].dtype == kind and arrays[name].shape[1:] == ((1, 28, 28) if kind == np.uint8 else ())
            for name, kind in columns.items()
        )
    )


def _keep(folder: Path, key: str, arrays: Arrays) -> None:
    for path in _converted_files(folder):
        with suppress(OSError):  # read-only or full: parsing again is slow, not wrong
            write_arrays(path, {**arrays, "key": np.array(key)})
            return
