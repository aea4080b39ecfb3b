"""The folders of data sets and caches, and values that are kept between processes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import platformdirs

from mnemos.common.files import write_atomically
from mnemos.common.plain import parse_json
from mnemos.errors import DataError

VARIABLE = "MNEMOS_DATA"
"""Environment variable that names the data folder."""

Stamp = tuple[tuple[str, int, int], ...]


def cache_folder() -> Path:
    """The folder for files that can be made again: `$MNEMOS_CACHE`, or one in the user's cache."""
    return Path(os.environ.get("MNEMOS_CACHE") or platformdirs.user_cache_dir("mnemos"))


def recall(name: str, key: str) -> Any:
    """The value that `remember` has kept under a key in a file of the cache folder; None if there is none."""
    return _remembered(name).get(key)


def remember(name: str, key: str, value: Any) -> None:
    """Keep a value for later processes; a cache that can't be written is ignored, as it only saves time."""
    path = cache_folder() / name
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps({**_remembered(name), key: value}, indent=1).encode())


def _remembered(name: str) -> dict[str, Any]:
    try:
        known = parse_json((cache_folder() / name).read_text())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def data_folder() -> Path:
    """The folder that holds the published data sets: `$MNEMOS_DATA`, or one in the user's cache."""
    given = os.environ.get(VARIABLE)
    return expanded(given) if given else cache_folder() / "data"


def locate(path: str) -> Path:
    """A user's path as it is, or below the data folder if it is relative and exists only there."""
    given = expanded(path)
    below = data_folder() / given
    try:
        return below if not given.exists() and below.exists() else given
    except OSError as error:  # a name that is too long
        raise DataError(f"{path} can't be looked for ({error.strerror})") from None


def expanded(path: str) -> Path:
    """A user's path with `~` replaced by the home folder."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:  # `~name` of an unknown user
        raise DataError(f"{path} can't be looked for ({error})") from None


def missing(folder: Path, names: Iterable[str]) -> list[str]:
    """Which of these files the folder lacks."""
    return [name for name in names if not (folder / name).is_file()]


def what_to_put(names: Iterable[str], folder: Path) -> str:
    """The end of an error sentence that says where files are expected."""
    return (
        f"put {', '.join(names)} in {folder}, or set {VARIABLE} to the folder that holds '{folder.name}' "
        f"(now {folder.parent})"
    )


def stamp(path: Path) -> Stamp:
    """Name, size and modification time of a file, or of all files below a folder: equal if none changed."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    found = []
    for file in files:
        if file.is_file():
            status = file.stat()
            found.append((file.relative_to(path).as_posix(), status.st_size, status.st_mtime_ns))
    return tuple(found)
