"""Reading and writing npz files without pickle."""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mnemos.common.files import replacing
from mnemos.data.sources._room import check_room
from mnemos.errors import DataError

_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    KeyError,
    NotImplementedError,
    MemoryError,
    OverflowError,
    RecursionError,
    tokenize.TokenError,  # numpy parses headers as Python literals
)


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of an npz file by name; their checksums are verified."""
    with _content(path, "npz") as content:
        if not isinstance(content, np.lib.npyio.NpzFile):
            raise DataError(f"{path} holds a single array, and an npz file with named arrays is expected")
        entries = content.zip.infolist() if content.zip else []
        check_room(sum(entry.file_size for entry in entries), path)
        return {name: _entry(content, name, path) for name in content.files}


def read_array(path: Path) -> NDArray[Any]:
    """The array of an npy file."""
    with _content(path, "npy") as content:
        if not isinstance(content, np.ndarray):
            raise DataError(f"{path} holds several arrays, and an npy file is expected")
        return content


@contextmanager
def _content(path: Path, kind: str) -> Iterator[Any]:
    """What numpy reads from a file; whatever is wrong with it is a DataError."""
    try:
        with path.open("rb") as file:  # numpy wouldn't close a damaged file that it opened itself
            yield np.load(file, allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"{path} doesn't exist, and an {kind} file is expected") from None
    except ValueError:  # numpy takes everything that is neither npy nor zip for a pickle
        raise DataError(f"{path} is not an {kind} file") from None
    except OSError as error:
        raise DataError(f"{path} can't be read ({error.strerror or error})") from None
    except _DAMAGED as error:
        raise DataError(f"{path} is a damaged {kind} file ({error})") from None


def write_arrays(path: Path, arrays: Mapping[str, ArrayLike]) -> None:
    """Write an npz file, completely or not at all; arrays of Python objects are refused."""
    converted = {name: np.asarray(values) for name, values in arrays.items()}
    for name, array in converted.items():
        if array.dtype.hasobject:
            raise DataError(f"'{name}' holds Python objects, and numbers or text are expected")
    with suppress(FileExistsError):
        path.parent.mkdir(parents=True)
    with replacing(path) as file:
        np.savez(file, **converted)  # type: ignore[arg-type]


def _entry(content: np.lib.npyio.NpzFile, name: str, path: Path) -> NDArray[Any]:
    try:
        array = content[name]
    except (ValueError, tokenize.TokenError, RecursionError) as error:
        what = "Python objects" if "allow_pickle" in str(error) else "no array that numpy can read"
        raise DataError(f"{path}: '{name}' holds {what}, and numbers or text are expected") from None
    if not isinstance(array, np.ndarray):
        raise DataError(f"{path}: '{name}' is not an array")
    if array.dtype.kind == "U" and not _is_text(array):
        raise DataError(f"{path}: '{name}' holds text that is not Unicode")
    return array


def _is_text(array: NDArray[Any]) -> bool:
    """Whether all characters of an array are valid Unicode, which numpy doesn't check."""
    codes = np.frombuffer(array.tobytes(), np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))
    return not ((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes <= 0xDFFF))).any()
