"""A run's metrics: an append-only file of JSON lines, one for each measured number.

A crash can cut off the last line only, and readers leave an incomplete line out. `rewind` drops what was
written after a checkpoint. Times are kept in another file, so that a repeated run writes the same bytes.
"""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mnemos.common.plain import number, parse_json, whole
from mnemos.errors import DataError

if TYPE_CHECKING:  # a list of runs reads metrics without PyTorch
    import pandas as pd

    from mnemos.measures.measure import Record

COLUMNS = ["round", "client", "model", "task", "class", "layer", "name", "value"]
_WHOLE = COLUMNS[:5]
"""Columns of whole numbers; all but the round can be empty."""
_LAST = 2**31 - 1
"""The largest value in these columns; reports keep them in 32 bits."""
BY = COLUMNS[1:6]
"""Columns that say which client, model, task, class or layer a number is about. All are empty in a record
about the whole federation."""


class Store:
    """An open metrics file."""

    def __init__(self, path: Path) -> None:
        # Unbuffered, so that closing the file doesn't try to write again what a full disk has refused.
        self._file = path.open("ab", buffering=0)

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._file.tell()

    def sync(self) -> None:
        """Wait until everything that was written is on disk, where it survives a loss of power."""
        os.fsync(self._file.fileno())

    def append(self, records: Iterable[Record]) -> None:
        """Write records; when this returns, they survive a crash of the process."""
        if not os.fstat(self._file.fileno()).st_nlink:
            raise FileNotFoundError(errno.ENOENT, "it was removed", self._file.name)
        left = b"".join(_line(record) for record in records)
        while left:
            left = left[self._file.write(left) :]

    def rewind(self, size: int) -> None:
        """Drop everything after the first `size` bytes."""
        self._file.truncate(size)
        self._file.seek(0, os.SEEK_END)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_metrics(path: Path) -> pd.DataFrame:
    """All complete records as a data frame. The file may be written to meanwhile."""
    import pandas as pd  # slow to import, and a run needs none of this

    frame = _read_whole(path)
    if frame is not None:
        return frame
    # A line is odd. Reading line by line finds out which.
    kinds = {**dict.fromkeys(_WHOLE, "Int64"), "layer": "str", "name": "str", "value": "float64"}
    return pd.DataFrame(list(_rows(path)), columns=COLUMNS).astype(kinds)


def read_seconds(path: Path) -> dict[int, float]:
    """The seconds that each round took, by round; of a round that was done again, the last time.

    A line that can't be read, such as one that a full disk has cut off, is skipped.
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


def read_records(path: Path) -> Iterable[dict[str, Any]]:
    """All complete records as dictionaries without what is empty, which needs no data frame.

    A value that wasn't finite is None.
    """
    rows = _parse_whole(path)
    return _rows(path) if rows is None else rows


def overall_values(records: Iterable[Mapping[str, Any]], name: str) -> dict[int, float]:
    """The values of a metric of the whole federation, by round, from records."""
    found = (row for row in records if row.get("name") == name and row.get("value") is not None)
    return {row["round"]: row["value"] for row in found if all(row.get(key) is None for key in BY)}


def overall(metrics: pd.DataFrame, name: str | None = None) -> pd.DataFrame:
    """The rows about the whole federation: those of the metric `name`, or of all metrics."""
    wanted = metrics[BY].isna().all(axis=1)
    return metrics[wanted if name is None else wanted & (metrics["name"] == name)]


def _line(record: Record) -> bytes:
    row = {key: value for key, value in vars(record).items() if value is not None}
    if "cls" in row:
        row["class"] = row.pop("cls")
    if not math.isfinite(row["value"]):
        row["value"] = None  # JSON has no NaN and no infinity
    return json.dumps(row).encode() + b"\n"


def _check(row: Any) -> None:
    """Raise a ValueError if a parsed line isn't a record."""
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
        text.encode()  # a lone surrogate can't be encoded


_ALLOWED: dict[str, set[type]] = {
    "round": {int},
    **{column: {int, type(None)} for column in _WHOLE[1:]},
    "layer": {str, type(None)},
    "name": {str},
    "value": {float, int, type(None)},
}
"""The types that the values of a column can have."""


def _read_whole(path: Path) -> pd.DataFrame | None:
    """The records, parsed as one JSON array and checked by column, which is several times as fast.

    Returns None if anything is odd.
    """
    import pandas as pd  # slow to import, and a run needs none of this

    rows = _parse_whole(path)
    if rows is None:
        return None
    columns = {key: [row.get(key) for row in rows] for key in COLUMNS}
    kinds = {key: set(map(type, values)) for key, values in columns.items()}
    if any(kinds[key] - allowed for key, allowed in _ALLOWED.items()):
        return None
    try:
        found: dict[str, Any] = {key: _integers(columns[key], kinds[key]) for key in _WHOLE}
        found["layer"] = pd.Series(columns["layer"], dtype="str")
        found["name"] = pd.Series(columns["name"], dtype="str")
        found["value"] = np.array(columns["value"], np.float64)
    except (OverflowError, UnicodeEncodeError):
        return None
    return pd.DataFrame(found)


def _parse_whole(path: Path) -> list[dict[str, Any]] | None:
    """The complete lines of a file as JSON objects; None if there is no file, or a line isn't an object."""
    if not path.exists():
        return None
    *lines, _unfinished = path.read_bytes().split(b"\n")
    try:
        rows: list[dict[str, Any]] = parse_json(b"[" + b",".join(lines) + b"]")
    except ValueError:
        return None
    return rows if len(rows) == len(lines) and not set(map(type, rows)) - {dict} else None


def _integers(values: list[int | None], kinds: set[type]) -> pd.arrays.IntegerArray:
    """A column of whole numbers of which some may be missing; `kinds` are the types of its values."""
    import pandas as pd  # slow to import, and a run needs none of this

    if int not in kinds:
        return pd.arrays.IntegerArray(np.zeros(len(values), np.int64), np.ones(len(values), bool))
    missing = np.array([value is None for value in values], bool)
    numbers = np.array([0 if value is None else value for value in values], np.int64)
    if numbers.min() < 0 or numbers.max() > _LAST:
        raise OverflowError
    return pd.arrays.IntegerArray(numbers, missing)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """The records line by line; a DataError names the first line that is damaged."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for position, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return  # still being written, or cut off by a crash
            try:
                row = parse_json(line)
                _check(row)
            except ValueError:
                raise DataError(f"{path}: line {position} is damaged") from None
            yield row
