"""CSV files with ordinary columns: labels, numbers or paths of images, and perhaps owners."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from mnemos.data.dataset import Dataset, Source, sources
from mnemos.data.folder import locate
from mnemos.data.sources._arrays import Array, SampleTable, build
from mnemos.data.sources._images import Decoder
from mnemos.data.sources._tables import Rows, file_parts, joined, read_rows, sample_columns
from mnemos.errors import DataError


@sources.register("csv")
class Csv(Source):
    """A CSV file with a header, or a folder of them, with the parts `train*` and `test*` by their names.

    Each row is a sample: a column of labels, and columns of numbers or a column of paths of images.
    """

    path: str = Field(min_length=1)
    """The file or folder."""
    label: str = "label"
    """Column of the labels."""
    features: tuple[str, ...] | None = Field(
        None, min_length=1, description="columns of numbers; if left out, all others"
    )
    image: str | None = None
    """Column of paths of images, relative to the CSV file; instead of columns of numbers."""
    owner: str | None = None
    """Column that names each sample's natural owner, if there is one."""
    delimiter: str | None = Field(None, min_length=1, max_length=1)
    """What separates cells; if left out, a comma, or a tab in files whose names end in .tsv."""
    size: int | None = Field(None, ge=1, le=4096)
    """Width and height that images are resized to; if left out, all must be equal already."""
    channels: Literal[1, 3] | None = None
    """Channels that images are converted to; if left out, they keep theirs."""
    test: float = Field(0.2, gt=0, lt=1)
    """Share of each class that is for testing, if there is no test part."""

    def load(self) -> Dataset:
        """The rows of all files, in the order of the files' names."""
        path = locate(self.path)
        decode = Decoder(self.channels, self.size)
        files = file_parts(path, [".csv", ".tsv"], "CSV file")
        train, test = (self._table(part, decode) if part else None for part in files)
        assert train is not None
        layout: Literal["auto", "nchw"] = "nchw" if decode.used else "auto"
        return build(path.stem, (train, test), where=str(path), share=self.test, layout=layout)

    def _table(self, files: list[Path], decode: Decoder) -> SampleTable:
        tables = [read_rows(file, self.delimiter) for file in files]
        return SampleTable(
            np.concatenate([self._samples(rows, decode) for rows in tables]),
            joined([rows.names(self.label) for rows in tables]),
            None if self.owner is None else joined([rows.names(self.owner) for rows in tables]),
        )

    def _samples(self, rows: Rows, decode: Decoder) -> Array:
        taken = [self.label, *([self.owner] if self.owner is not None else [])]
        asked = self.features if self.image is None else (self.image,)
        columns = sample_columns(list(rows.columns), asked, taken, str(rows.file))
        if self.image is not None:
            return _images(rows, self.image, decode)
        values = np.stack([rows.numbers(column) for column in columns], axis=1)
        infinite = np.argwhere(~np.isfinite(values))
        if len(infinite):
            row, column = infinite[0]
            raise DataError(
                f"{rows.where(row)}: column '{columns[column]}' has {values[row, column]}, "
                "and a finite number is expected"
            )
        return values


def _images(rows: Rows, column: str, decode: Decoder) -> Array:
    """The images that a column names, by their paths."""
    found = []
    for row, name in enumerate(rows.column(column)):
        file = rows.file.parent / name
        if not file.is_file():
            raise DataError(f"{rows.where(row)}: column '{column}' names {file}, which doesn't exist")
        found.append(decode(file, str(file)))
    return np.stack(found)
