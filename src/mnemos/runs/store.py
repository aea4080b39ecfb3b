"""A run's metrics: an append-only file of JSON lines, one a measured number.

A crash can cut off the last line at most, and readers stop before it; `rewind` drops what was written
after a checkpoint. Times are kept apart, so that metrics are the same bytes whenever a run is repeated.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd

from mnemos.errors import DataError
from mnemos.measures.measure import Record
from mnemos.plain import number, parse_json, whole

COLUMNS = ["round", "client", "model", "task", "class", "layer", "name", "value"]
_WHOLE = COLUMNS[:5]
"""Columns of whole numbers; all but the round can be empty."""
_LAST = 2**31 - 1
"""What reports keep them in."""
BY = COLUMNS[1:6]
"""Columns that say whose or what part of the whole a number is of; empty for the whole."""


class Store:
    """An open metrics file."""

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] = path.open("ab")

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._file.tell()

    def sync(self) -> None:
        """Wait until everything written survives a loss of power."""
        os.fsync(self._file.fileno())

    def append(self, records: Iterable[Record]) -> None:
        """Write records; when this returns they survive the end of the process."""
        self._file.write(b"".join(_line(record) for record in records))
        self._file.flush()

    def rewind(self, size: int) -> None:
        """Drop everything after the first `size` bytes."""
        self._file.truncate(size)
        self._file.seek(0, os.SEEK_END)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_metrics(path: Path) -> pd.DataFrame:
    """All complete records as a data frame; works while the file is being written."""
    frame = _all_at_once(path)
    if frame is not None:
        return frame
    # Something is odd: line by line, to say which line.
    kinds = {**dict.fromkeys(_WHOLE, "Int64"), "layer": "str", "name": "str", "value": "float64"}
    return pd.DataFrame(list(_rows(path)), columns=COLUMNS).astype(kinds)


def read_seconds(path: Path) -> dict[int, float]:
    """What each round took; of one that was done again after a crash, the last time.

    A line that can't be read, such as one that a full disk has cut off, is left out: it costs a time, not
    the run.
    """
    if not path.exists():
        return {}
    *lines, _unfinished = path.read_bytes().split(b"\n")
    found: dict[int, float] = {}
    for line in lines:
        with suppress(ValueError, TypeError, KeyError):
            row = parse_json(line)
            found[whole(row["round"])] = number(row["seconds"])
    return found


def overall(metrics: pd.DataFrame, name: str | None = None) -> pd.DataFrame:
    """The rows of a metric, or of all, that speak of the global model and the whole federation."""
    wanted = metrics[BY].isna().all(axis=1)
    return metrics[wanted if name is None else wanted & (metrics["name"] == name)]


def _line(record: Record) -> bytes:
    row = {key: value for key, value in vars(record).items() if value is not None}
    if "cls" in row:
        row["class"] = row.pop("cls")
    if not math.isfinite(row["value"]):
        row["value"] = None  # JSON has no word for it
    return json.dumps(row).encode() + b"\n"


def _check(row: Any) -> None:
    """Raise a `ValueError` for what isn't a record."""
    fine = (
        isinstance(row, dict)
        and isinstance(row.get("name"), str)
        and isinstance(row.get("layer"), str | None)
    )
    if not fine or row.get("round") is None:
        raise ValueError(row)
    if any(whole(row[key]) > _LAST for key in _WHOLE if row.get(key) is not None):
        raise ValueError(row)
    if row.get("value") is not None:
        number(row["value"])
    for text in (row["name"], row.get("layer") or ""):
        text.encode()  # half of a pair of surrogates is no text


def _all_at_once(path: Path) -> pd.DataFrame | None:
    """The records parsed as one array and checked by column, which is several times as fast; None if odd."""
    if not path.exists():
        return None
    *lines, _unfinished = path.read_bytes().split(b"\n")
    try:
        rows = parse_json(b"[" + b",".join(lines) + b"]")
    except ValueError:
        return None
    if len(rows) != len(lines) or set(map(type, rows)) - {dict}:
        return None
    columns = {key: [row.get(key) for row in rows] for key in COLUMNS}
    kinds = {key: set(map(type, values)) for key, values in columns.items()}
    nothing = type(None)
    fine = kinds["name"] <= {str} and kinds["round"] <= {int} and kinds["value"] <= {float, int, nothing}
    fine = fine and kinds["layer"] <= {str, nothing}
    if not fine or any(kinds[key] - {int, nothing} for key in _WHOLE[1:]):
        return None
    try:
        found: dict[str, Any] = {key: _integers(columns[key], kinds[key]) for key in _WHOLE}
        found["layer"] = pd.Series(columns["layer"], dtype="str")
        found["name"] = pd.Series(columns["name"], dtype="str")
        found["value"] = np.array(columns["value"], np.float64)
    except (OverflowError, UnicodeEncodeError):
        return None
    return pd.DataFrame(found)


def _integers(values: list[int | None], kinds: set[type]) -> pd.arrays.IntegerArray:
    """A column in which numbers may be missing."""
    if int not in kinds:
        return pd.arrays.IntegerArray(np.zeros(len(values), np.int64), np.ones(len(values), bool))
    missing = np.array([value is None for value in values], bool)
    numbers = np.array([0 if value is None else value for value in values], np.int64)
    if numbers.min() < 0 or numbers.max() > _LAST:
        raise OverflowError
    return pd.arrays.IntegerArray(numbers, missing)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return  # still being written, or cut off by a crash
            try:
                row = parse_json(line)
                _check(row)
            except ValueError:
                raise DataError(f"{path}: line {number} is damaged") from None
            yield row
