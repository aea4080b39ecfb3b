"""A run's metrics: an append-only file of JSON lines, one a measured number.

A crash can cut off the last line at most, and readers stop before it; `rewind` drops what was written
after a checkpoint. Times are kept apart, so that metrics are the same bytes whenever a run is repeated.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import pandas as pd

from mnemos.errors import DataError
from mnemos.measures.measure import Record

COLUMNS = ["round", "client", "model", "task", "class", "name", "value"]
_WHOLE = COLUMNS[:5]
"""Columns of whole numbers; all but the round can be empty."""


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
    rows = list(_rows(path))
    frame = pd.DataFrame(rows, columns=COLUMNS)
    whole = dict.fromkeys(_WHOLE, "Int64")
    return frame.astype({**whole, "value": "float64"})


def overall(metrics: pd.DataFrame, name: str) -> pd.DataFrame:
    """The rows of a metric that speak of the global model and the whole federation."""
    return metrics[metrics[_WHOLE[1:]].isna().all(axis=1) & (metrics["name"] == name)]


def _line(record: Record) -> bytes:
    row = {key: value for key, value in asdict(record).items() if value is not None}
    if "cls" in row:
        row["class"] = row.pop("cls")
    if not math.isfinite(row["value"]):
        row["value"] = None  # JSON has no word for it
    return json.dumps(row).encode() + b"\n"


def _is_record(row: Any) -> bool:
    return (
        isinstance(row, dict)
        and isinstance(row.get("name"), str)
        and isinstance(row.get("value"), float | int | None)
        and isinstance(row.get("round"), int)
        and all(isinstance(row.get(key), int | None) for key in _WHOLE[1:])
    )


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return  # still being written, or cut off by a crash
            try:
                row = json.loads(line)
                if not _is_record(row):
                    raise ValueError(line)
            except ValueError:
                raise DataError(f"{path}: line {number} is damaged") from None
            yield row
