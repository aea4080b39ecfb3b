"""Apache Parquet files, as Hugging Face and data lakes keep them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field

from mnemos.data.dataset import Dataset, sources
from mnemos.data.folder import locate
from mnemos.data.sources._columns import Batches, TableSource, first_line, pyarrow
from mnemos.errors import DataError

_ROWS = 1024


@sources.register("parquet")
class Parquet(TableSource):
    """A Parquet file, or a folder of them, with the parts `train*` and `test*` by their names."""

    path: str = Field(min_length=1)

    def load(self) -> Dataset:
        """The rows of all files, in the order of the files' names."""
        pyarrow()
        path = locate(self.path)
        train, test = _parts(path)
        return self.assemble(path.stem, self._rows(train), self._rows(test) if test else None, str(path))

    def _rows(self, files: list[Path]) -> Batches:
        return (pair for file in files for pair in self._batches(file))

    def _batches(self, file: Path) -> Iterator[tuple[str, Any]]:
        pa = pyarrow()
        try:
            with pa.parquet.ParquetFile(file, page_checksum_verification=True) as content:
                self.check_columns(content.schema_arrow.names, str(file))
                for batch in content.iter_batches(_ROWS, columns=self.columns):
                    yield str(file), batch
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DataError(f"{file} can't be read as Parquet ({first_line(error)})") from None


def _parts(path: Path) -> tuple[list[Path], list[Path]]:
    """(files to train on, files to test on)."""
    if path.is_file():
        return [path], []
    files = sorted(path.rglob("*.parquet"))
    if not files:
        what = "has no Parquet files" if path.is_dir() else "doesn't exist"
        raise DataError(f"{path} {what}, and a Parquet file or a folder of them is expected")
    train, test = (
        [file for file in files if file.name.lower().startswith(part)] for part in ("train", "test")
    )
    if test and not train:
        raise DataError(f"{path} has test files ({test[0].name}) and no training files (train*.parquet)")
    return (train, test) if train else (files, [])
