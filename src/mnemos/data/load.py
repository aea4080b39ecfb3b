"""Data sets in memory, each read once per process and shared by experiments."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from pathlib import Path

from mnemos.common.activity import doing
from mnemos.data.dataset import Dataset, Source
from mnemos.data.folder import data_folder, locate, stamp

LIMIT = 2
"""The number of data sets that are kept."""

_lock = threading.RLock()
_kept: OrderedDict[Hashable, Dataset] = OrderedDict()


def load(source: Source) -> Dataset:
    """The source's data set; the same object while it is kept and its files don't change."""
    key = (source, data_folder(), _files(source))
    try:
        hash(key)
    except TypeError:  # a user's source with options that can't be hashed
        return source.load()
    # One lock for all: a second thread that needs the same data set waits instead of reading it again.
    with _lock:
        if key not in _kept:
            while len(_kept) >= LIMIT:
                _kept.popitem(last=False)
            doing(f"reading {_called(source)}")
            _kept[key] = source.load()
        _kept.move_to_end(key)
        return _kept[key]


def forget() -> None:
    """Drop all data sets that are kept."""
    with _lock:
        _kept.clear()


def _called(source: Source) -> str:
    """The name of a source, or of the file that it reads."""
    path = getattr(source, "path", None)
    return Path(path).name if isinstance(path, str) and path else type(source).name


def _files(source: Source) -> Hashable:
    path = getattr(source, "path", None)
    if not isinstance(path, str):
        return ()
    found = locate(path).absolute()
    return found, stamp(found)
