"""Tables in files: their parts, their columns, and the rows of CSV and JSON Lines files."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemos.common.plain import parse_json
from mnemos.errors import DataError

CHOOSE = "; data.features names the columns to take, data.owner that of owners; the source 'text' reads texts"
"""The end of a sentence about a column that has no numbers."""


@dataclass(frozen=True)
class Rows:
    """The rows of a file by column, as text, and the line of the file in which each row ends."""

    file: Path
    columns: dict[str, list[str]]
    lines: list[int]

    def column(self, name: str) -> list[str]:
        """A column's cells; raises an error if there is no such column or a cell is empty."""
        if name not in self.columns:
            raise no_column(str(self.file), name, list(self.columns))
        cells = self.columns[name]
        if "" in cells:
            raise DataError(f"{self.where(cells.index(''))}: column '{name}' is empty")
        return cells

    def where(self, row: int) -> str:
        """The file and the line of a row, for errors."""
        return f"{self.file}, line {self.lines[row]}"

    def names(self, column: str) -> NDArray[Any]:
        """Labels or owners: whole numbers if all cells are, else text."""
        cells = self.column(column)
        whole = all(cell.isascii() and cell.isdecimal() and len(cell) < 19 for cell in cells)
        return np.array(cells, dtype=np.int64 if whole else np.str_)

    def numbers(self, column: str) -> NDArray[np.float64]:
        """The numbers of a column."""
        cells = self.column(column)
        try:
            return np.array(cells, dtype=np.float64)
        except ValueError:
            row = next(row for row, cell in enumerate(cells) if not _is_number(cell))
            found = f"column '{column}' has {cells[row][:40]!r}"
            raise DataError(f"{self.where(row)}: {found}, and a number is expected{CHOOSE}") from None


def joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """The labels or owners of several files; as text, if those of any file are text."""
    text = any(part.dtype.kind == "U" for part in parts)
    return np.concatenate([part.astype(np.str_) if text else part for part in parts])


def read_rows(file: Path, delimiter: str | None = None) -> Rows:
    """The rows of a CSV file with a header, or of a file of JSON Lines; .tsv is separated by tabs."""
    reader = _json_lines if file.suffix.lower() in {".jsonl", ".ndjson"} else _csv
    try:
        with file.open(newline="", encoding="utf-8-sig") as stream:
            lines = reader(stream, file, delimiter or ("\t" if file.suffix.lower() == ".tsv" else ","))
            header = next(lines, None)
            if header is None:
                raise DataError(f"{file} is empty, and a header with the names of the columns is expected")
            names, found = header[1], list(lines)
    except UnicodeDecodeError:
        raise DataError(f"{file} is not UTF-8 text") from None
    except (OSError, csv.Error) as error:
        raise DataError(f"{file} can't be read ({getattr(error, 'strerror', None) or error})") from None
    if not found:
        raise DataError(f"{file} has no rows")
    cells = map(list, zip(*(row for _, row in found), strict=True))
    return Rows(file, dict(zip(names, cells, strict=True)), [line for line, _ in found])


def _csv(stream: Any, file: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of the header and of each row; empty lines are skipped."""
    reader = csv.reader(stream, delimiter=delimiter, strict=True)
    header: list[str] | None = None
    for cells in reader:
        if not cells:
            continue
        if header is None:
            cells = header = [cell.strip() for cell in cells]
            twice = next((name for name in header if header.count(name) > 1), None)
            if twice is not None:
                raise DataError(f"{file} has several columns '{twice}'")
        if len(cells) != len(header):
            raise DataError(
                f"{file}, line {reader.line_num}: found {len(cells)} cells, and the header has {len(header)}"
            )
        yield reader.line_num, cells


def _json_lines(stream: Any, file: Path, _delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """(line, values as text) of each row, after the names of the first row's fields."""
    names: list[str] | None = None
    for line, content in enumerate(stream, 1):
        if not content.strip():
            continue
        try:
            row = parse_json(content)
        except ValueError as error:
            raise DataError(f"{file}, line {line}: not JSON ({error})") from None
        if not isinstance(row, dict):
            raise DataError(f"{file}, line {line}: found {type(row).__name__}, and an object is expected")
        if names is None:
            names = list(row)
            yield line, names
        if list(row) != names and set(row) != set(names):
            raise DataError(
                f"{file}, line {line}: found the fields {', '.join(row)}, and line 1 has {', '.join(names)}"
            )
        nested = next((name for name in names if isinstance(row[name], dict | list)), None)
        if nested is not None:
            raise DataError(f"{file}, line {line}: '{nested}' is nested, and a number or text is expected")
        yield line, ["" if row[name] is None else str(row[name]) for name in names]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def no_column(where: str, column: str, found: Sequence[str]) -> DataError:
    """The error for a missing column; if its name is a default, it names the option for another one."""
    hint = "the options of 'data' name columns"
    if column in _DEFAULTS:
        hint = f"the option '{column}', as in data.{column}=COLUMN, names the column of {_DEFAULTS[column]}"
    return DataError(f"{where} has no column '{column}'; found {', '.join(found) or 'none'} ({hint})")


_DEFAULTS = {"label": "labels", "text": "texts", "image": "images"}
"""Columns that are looked for unless the option of that name says otherwise, and what is in them."""


def sample_columns(
    found: Sequence[str], asked: Sequence[str] | None, taken: Sequence[str], where: str
) -> list[str]:
    """The columns that make up a sample: those that are asked for, or all that aren't `taken` otherwise."""
    columns = [name for name in found if name not in taken] if asked is None else list(asked)
    for column in (*columns, *taken):
        if column not in found:
            raise no_column(where, column, found)
    if not columns:
        raise DataError(f"{where} has no columns of features; found only {', '.join(found)}")
    return columns


def file_parts(path: Path, suffixes: Sequence[str], what: str) -> tuple[list[Path], list[Path]]:
    """(files to train on, files to test on): a file, or a folder's files `train*` and `test*`.

    `what` is what errors call such a file, as in 'a Parquet file'.
    """
    if path.is_file():
        return [path], []
    files = sorted(file for suffix in suffixes for file in path.rglob(f"*{suffix}"))
    if not files:
        state = f"has no {what}s" if path.is_dir() else "doesn't exist"
        raise DataError(f"{path} {state}, and a {what} or a folder of them is expected")
    train, test = (
        [file for file in files if file.name.lower().startswith(part)] for part in ("train", "test")
    )
    if test and not train:
        raise DataError(f"{path} has test files ({test[0].name}) and no training files (train*{suffixes[0]})")
    return (train, test) if train else (files, [])
